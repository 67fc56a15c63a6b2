package chaos

import (
	"context"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/internal/wait"
)

// aimWithin is how long a freeze waits for its moment.
const aimWithin = 2 * time.Second

// justClaimedSQL reads rows that a node has claimed a moment ago. Parameter: what its id begins with.
const justClaimedSQL = `(SELECT /* tocsin chaos */
    job_id
FROM {table} FORCE INDEX (idx_due)
WHERE status = 1
    AND claimed_by LIKE ?
    AND gmt_modified >= UTC_TIMESTAMP(3) - INTERVAL 10000 MICROSECOND
LIMIT 1)`

// awaitClaim waits until the node in a seat has just claimed a row: what is frozen then has a run admitted, and its handler is about to be
// called.
func (s *Site) awaitClaim(ctx context.Context, at *seat) {
	ctx, cancel := context.WithTimeout(ctx, aimWithin)
	defer cancel()
	questions := make(map[*database][]string)
	for table := range s.opts.Layout.Total() {
		d := s.databaseOf(table)
		questions[d] = append(questions[d], strings.ReplaceAll(justClaimedSQL, "{table}", s.opts.Layout.Table(table)))
	}
	for ctx.Err() == nil {
		for d, question := range questions {
			args := make([]any, len(question))
			for i := range args {
				args[i] = at.name + "-%"
			}
			if claimed, err := d.jobs(ctx, strings.Join(question, " UNION ALL "), args...); err == nil && len(claimed) > 0 {
				return
			}
		}
		_ = wait.For(ctx, time.Millisecond)
	}
}
