package store

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/tocsinhq/tocsin"
)

// buryByHand makes one pending task dead at an operator's word. Its argument is
// the reason. Zero rows: it is not pending. An attempt under way may still
// complete it; if that fails, it stays dead.
var buryByHand = prepare(`
UPDATE /* tocsin bury_by_hand */ {table} FORCE INDEX (PRIMARY)
SET status = 4,
    action_time = UTC_TIMESTAMP(3),
    last_error = ?,
    gmt_modified = UTC_TIMESTAMP(3)
WHERE job_id = {job_id}
  AND status = 0`)

// Bury makes a pending task dead, with a reason for last_error, cut to fit.
// False: there is no such pending task.
func (s *Store) Bury(ctx context.Context, id tocsin.JobID, reason string) (bool, error) {
	home := s.ServerOf(id.Table())
	if home < 0 {
		return false, fmt.Errorf("bury job_id %s: %w", id, s.refuse(0, id.Table()))
	}
	sv := s.servers[home]
	var hit bool
	err := s.transact(ctx, sv, []int{id.Table()}, func(conn *sql.Conn) error {
		counts, err := s.write(ctx, conn, buryByHand.name, buryByHand.render(nil, s.fillRow(id)), cut(reason))
		hit = sum(counts) > 0
		return err
	})
	if err != nil {
		return false, s.wrap(err, "bury job_id "+id.String()+" in", sv, id.Table())
	}
	return hit, nil
}
