package store

import (
	"context"
	"database/sql"
	"strings"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

// readOnly asks whether the server is read-only: 0 and OFF say that it is not.
var readOnly = prepare(`SELECT /* tocsin read_only */ @@global.read_only`)

// beside finds out whether the tables beside the tasks of one database are there
// and may be read. It reads no row.
var beside = prepare(`
SELECT /* tocsin beside */ {database_no} FROM {database}.owner WHERE FALSE
UNION ALL
SELECT {database_no} FROM {database}.doorbell WHERE FALSE
UNION ALL
SELECT {database_no} FROM {database}.biz_type WHERE FALSE`)

// Survey is what a look at one server showed. Databases are by number.
type Survey struct {
	Offset   Offset
	ReadOnly bool
	Unusable map[int]error // must not be used, each an *Unusable; statements to them are refused
	Flawed   map[int]error // may be used, but lack a table beside the tasks, or a right to it
}

// Survey looks at a server: its clock, as Measure does, and all its databases.
// From then on statements to the unusable ones are refused, and to those that
// are usable again admitted. An error is the server's as a whole, and changes
// neither.
func (s *Store) Survey(ctx context.Context, server int) (Survey, error) {
	sv := s.servers[server]
	taken, err := s.measure(ctx, sv)
	if err != nil {
		return Survey{}, s.wrap(err, "read the clock", sv)
	}
	found := Survey{Offset: taken.offset(), Unusable: sv.refused().errors()}
	var mode string
	err = s.read(ctx, sv.DB, readOnly.name, readOnly.render(nil, nil), func(_ int, rows *sql.Rows) error { return rows.Scan(&mode) })
	if err != nil {
		return Survey{}, s.wrap(err, "ask whether it is read-only", sv)
	}
	found.ReadOnly = mode != "0" && !strings.EqualFold(mode, "OFF")
	found.Flawed, err = s.flaws(ctx, sv)
	return found, err
}

// flaws says what is wrong beside the tasks of the databases that may be used.
func (s *Store) flaws(ctx context.Context, sv *server) (map[int]error, error) {
	text := func(b []byte, database int) []byte {
		return beside.render(b, func(b []byte, slot string) []byte { return s.fillDatabase(b, slot, database) })
	}
	_, failed, err := eachDatabase(ctx, s.gated(sv), beside.name, sv.refused().without(sv.Databases), text,
		func(*sql.Rows) (struct{}, error) { return struct{}{}, nil })
	if err != nil {
		return nil, s.wrap(err, "look at the tables", sv)
	}
	for database, err := range failed {
		if mysql.ClassOf(err) == mysql.Contended {
			delete(failed, database)
		}
	}
	return failed, nil
}

// without gives those of the databases that are not refused.
func (r refusals) without(databases []int) []int {
	var left []int
	for _, database := range databases {
		if r[database] == nil {
			left = append(left, database)
		}
	}
	return left
}
