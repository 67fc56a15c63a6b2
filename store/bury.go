package store

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/tocsinhq/tocsin"
)

// buryByHand makes one task dead at an operator's word: a pending one, or a claimed one of
// a biz type that is not strict. Its argument is the reason. Zero rows: it is neither.
// An attempt under way may still complete it; if that fails, it stays dead.
var buryByHand = prepare(`
UPDATE /* tocsin bury_by_hand */ {table} AS t FORCE INDEX (PRIMARY)
SET status = 4,
    action_time = UTC_TIMESTAMP(3),
    last_error = ?,
    gmt_modified = UTC_TIMESTAMP(3)
WHERE job_id IN ({ids})
  AND (status = 0
    OR status = 1 AND NOT COALESCE((SELECT JSON_CONTAINS(b.policy, 'true', '$.strict') FROM {database}.biz_type AS b WHERE b.number = t.biz_type), 0))`)

// Bury makes a pending task dead, or a claimed one of a biz type that is not strict, with a
// reason for last_error, cut to fit. False: there is no such task.
func (s *Store) Bury(ctx context.Context, id tocsin.JobID, reason string) (bool, error) {
	home := s.ServerOf(id.Table())
	if home < 0 {
		return false, fmt.Errorf("bury job_id %s: %w", id, s.refuse(0, id.Table()))
	}
	sv := s.servers[home]
	var hit bool
	err := s.transact(ctx, sv, []int{id.Table()}, func(conn *sql.Conn) error {
		counts, err := s.write(ctx, conn, buryByHand.name, buryByHand.render(nil, s.fillRows(idsOf{id.Table(), []tocsin.JobID{id}}, "", nil)), cut(reason))
		hit = sum(counts) > 0
		return err
	})
	if err != nil {
		return false, s.wrap(err, "bury job_id "+id.String()+" in", sv, id.Table())
	}
	return hit, nil
}
