package schedule

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/ids"
	"github.com/tocsinhq/tocsin/internal/store"
)

// Why says what a run was made for.
type Why string

// What runs are made for.
const (
	ForFireTime Why = "fire_time"
	ForBackfill Why = "backfill"
	ForRunNow   Why = "run_now"
)

// OpenRun is a run that is pending or being delivered.
type OpenRun struct {
	JobID    tocsin.JobID  `json:"job_id"`
	For      Why           `json:"for"`
	Time     time.Time     `json:"time,omitzero"` // nominal fire time; zero of ForRunNow
	Due      time.Time     `json:"due"`           // as it was made
	Status   tocsin.Status `json:"status"`        // Pending or Claimed
	Action   time.Time     `json:"action_time"`   // when it is delivered, or delivered again; claimed: until when
	Attempts int           `json:"attempts"`
}

// MaxOpen is the largest number of runs that OpenRuns returns.
const MaxOpen = 1000

// readOpen reads the open ones among the newest runs of a schedule. A range of uk_biz, backwards. Parameters: biz_id, biz
// type, the first key, the first key behind them, how many are looked at, how many are returned.
const readOpen = `SELECT /* tocsin schedule open */
    job_id, status, dedup_key, due_time, action_time, attempts
FROM (
    SELECT job_id, status, dedup_key, due_time, action_time, attempts
    FROM {task} FORCE INDEX (uk_biz)
    WHERE biz_id = ?
        AND biz_type = ?
        AND dedup_key >= ?
        AND dedup_key < ?
    ORDER BY dedup_key DESC
    LIMIT ?
) newest
WHERE status IN (0, 1)
ORDER BY action_time, job_id
LIMIT ?`

// lookedAt is how many runs OpenRuns examines. No more than that are made ahead or retried; settled runs, perhaps
// millions, come before them.
const lookedAt = 5000

// OpenRuns returns runs of a schedule that are pending or being delivered, the first to be delivered first, at most limit
// (1 to MaxOpen). It looks at the newest 5,000 runs for fire times and the newest 5,000 by hand, of the schedule's present biz type.
func (s *Schedules) OpenRuns(ctx context.Context, name string, limit int) ([]OpenRun, error) {
	if limit < 1 || limit > MaxOpen {
		return nil, client.Refuse(ErrInvalid, "limit %d: use 1 to %d", limit, MaxOpen)
	}
	r, _, err := s.find(ctx, name)
	if err != nil {
		return nil, err
	}
	return s.openRuns(ctx, r, limit)
}

// openRuns is OpenRuns of a row.
func (s *Schedules) openRuns(ctx context.Context, r *row, limit int) ([]OpenRun, error) {
	open := []OpenRun{}
	from, until := ids.RunKeys(uint64(r.ID))
	hand, layout := byHand(uint64(r.ID)), s.tables.Layout()
	for _, keys := range [][2]string{{from, hand}, {hand, until}} {
		some, err := store.Gather(ctx, s.tables, s.tables.ServerOf(r.Table), []int{layout.DatabaseOf(r.Table)}, "schedule open", taskIn(layout, r.Table, readOpen), scanOpen,
			r.subject(), r.number, []byte(keys[0]), []byte(keys[1]), lookedAt, limit)
		if err != nil {
			return nil, fmt.Errorf("open runs of schedule %s: %w", r.Name, err)
		}
		open = append(open, some...)
	}
	slices.SortStableFunc(open, func(a, b OpenRun) int { return a.Action.Compare(b.Action) })
	return open[:min(len(open), limit)], nil
}

func scanOpen(rows *sql.Rows) (o OpenRun, err error) {
	var key []byte
	if err = rows.Scan(&o.JobID, &o.Status, &key, &o.Due, &o.Action, &o.Attempts); err != nil {
		return o, err
	}
	k, _ := ids.ParseRunKey(string(key)) // it is in the range of such keys
	o.Time = k.Nominal()
	o.For = Why(k.Kind.String())
	return o, nil
}
