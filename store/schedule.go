package store

import (
	"context"
	"database/sql"

	"github.com/tocsinhq/tocsin"
)

// scheduleName reads the name of a schedule, by primary key. Zero rows: it was deleted.
var scheduleName = prepare(`
SELECT /* tocsin schedule_name */
    name
FROM {database}.schedule FORCE INDEX (PRIMARY)
WHERE schedule_id = {schedule_id}`)

// ScheduleName reads the name of the schedule with the id that its runs' keys have; "": there is none.
func (s *Store) ScheduleName(ctx context.Context, schedule tocsin.JobID) (name string, err error) {
	table := schedule.Table()
	if s.ServerOf(table) < 0 {
		return "", s.refuse(0, table)
	}
	sv := s.servers[s.ServerOf(table)]
	text := scheduleName.render(nil, func(b []byte, slot string) []byte {
		if slot == "schedule_id" {
			return append(b, schedule.String()...)
		}
		return s.fillDatabase(b, slot, s.layout.DatabaseOf(table))
	})
	err = s.readTables(ctx, sv, []int{table}, scheduleName.name, text, func(_ int, rows *sql.Rows) error { return rows.Scan(&name) })
	if err != nil {
		return "", s.wrap(err, "read schedule "+schedule.String()+" of", sv, table)
	}
	return name, nil
}
