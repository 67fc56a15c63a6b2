package schedule

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/schedule/firetimes"
)

// transition is what becomes of the runs of a schedule at a change.
//
//	fire time                                      if the schedule stays active
//	its run is due by the lead after the change    the run stays with its revision: a node may have begun it, and its row does not show that
//	its run is due later, or waits for its turn    the run ends, and the next revision makes it if it has that fire time
//	its run waits for a retry                      the run ends
//	its run is claimed, or has ended               the next revision makes none
//	not made yet, and past                         the policy for missed runs decides, if both revisions have it
//	not made yet, and to come                      the next revision makes it, behind the last run that stays
//
// Otherwise all pending runs end. A run that ends and is not made again is dropped: the history says so.
type transition struct {
	goesOn     bool                 // the schedule stays active
	gone       []pendingRun         // runs that end
	dropped    []drop               // those of them that the next revision does not make
	again      []Fire               // past fire times for which the next revision makes runs
	taken      func(time.Time) bool // fire times to come for which it makes none
	until      time.Time            // made_until, from which its first window goes on
	passedOver int                  // past fire times that no revision makes any more
}

// pendingRun is a pending run that a change has locked.
type pendingRun struct {
	sibling
	version uint32
}

// drop is a run that a change drops, and what the history adds to the reason.
type drop struct {
	pendingRun
	why string
}

// transitionOf decides at a time of the server. pending are the locked runs of earlier revisions for fire times.
func transitionOf(old, next *row, pending []pendingRun, now time.Time, lead time.Duration) *transition {
	t := &transition{gone: pending, until: now, goesOn: (old.State == Active || old.State == Ended) && next.State == Active} // one that has ended may have runs to come
	before, err := old.Times()
	after, failed := next.Times()
	if !t.goesOn || err != nil || failed != nil {
		for _, r := range pending {
			t.dropped = append(t.dropped, drop{r, ""})
		}
		return t
	}
	made := old.MadeUntil
	if old.FarAhead() {
		made = now
	}
	t.gone = nil
	var kept time.Time // the last fire time whose run stays
	ended := map[time.Time]bool{}
	for _, r := range pending {
		if r.stays(old, now.Add(lead)) {
			kept = later(kept, r.of.Nominal())
			continue
		}
		t.gone = append(t.gone, r)
		t.end(r, after, now)
		ended[r.of.Nominal()] = true
	}
	t.bound()
	if made.Before(now) {
		t.catchUp(old, next, before, after, now)
	}
	t.taken = func(fire time.Time) bool {
		return !fire.After(kept) || !fire.After(made) && !ended[fire] && before.Has(fire)
	}
	return t
}

// stays reports whether the run may be in a delivery that began without a claim, or may begin before the change is committed. Runs of a
// schedule that does not allow overlaps begin with the schedule's row locked.
func (r pendingRun) stays(old *row, until time.Time) bool {
	claimed := old.Overlap != OverlapAllow && r.of.Revision == old.Revision
	return !claimed && r.action <= until.UnixMilli()
}

// end decides whether a run that ends is made again. One to come is left to the window. A shorter jitter makes none late.
func (t *transition) end(r pendingRun, after *firetimes.Times, now time.Time) {
	fire := r.of.Nominal()
	switch {
	case !r.first():
		t.dropped = append(t.dropped, drop{r, " before its retry"})
	case !after.Has(fire):
		t.dropped = append(t.dropped, drop{r, ", and fires at other times"})
	case !fire.After(now):
		due, was := fire.Add(after.Offset()), time.UnixMilli(min(r.due, now.UnixMilli())).UTC()
		t.again = append(t.again, Fire{Time: fire, Due: later(due, was)})
	}
}

// bound keeps the change short: of runs that have waited for a long outage only the latest are made again.
func (t *transition) bound() {
	if len(t.again) <= MaxRuns {
		return
	}
	latest := t.again[len(t.again)-MaxRuns:]
	for _, r := range t.gone {
		if fire := r.of.Nominal(); r.first() && fire.Before(latest[0].Time) && slices.ContainsFunc(t.again, func(f Fire) bool { return f.Time.Equal(fire) }) {
			t.dropped = append(t.dropped, drop{r, fmt.Sprintf(": of those that wait, the latest %d are made again", MaxRuns)})
		}
	}
	t.again = latest
}

// catchUp is for past fire times that nobody has made yet, as all nodes were away.
func (t *transition) catchUp(old, next *row, before, after *firetimes.Times, now time.Time) {
	same := old.Cron == next.Cron && old.Zone == next.Zone && old.Start.Equal(next.Start) && old.End.Equal(next.End) && old.Anchor.Equal(next.Anchor)
	if same {
		t.until = old.MadeUntil // makers go on as if nothing had happened
		return
	}
	w := windowOf(old.Schedule, before, now)
	t.passedOver = w.passedOver
	for _, fire := range w.fires {
		switch {
		case fire.After(now):
		case after.Has(fire):
			t.again = append(t.again, Fire{Time: fire, Due: fire.Add(after.Offset())})
		default:
			t.passedOver++
		}
	}
}

// fires are the fire times of the first window after a change, or of any other one: t is nil then.
func (t *transition) fires(w window, times *firetimes.Times) (all []Fire) {
	if t != nil {
		all = t.again
	}
	for _, fire := range w.fires {
		if t == nil || t.taken == nil || !t.taken(fire) {
			all = append(all, Fire{Time: fire, Due: fire.Add(times.Offset())})
		}
	}
	return all
}

// readPending locks the pending runs of one schedule with keys of a range, all of them: a caller's session may have sql_select_limit. A range of uk_biz. Parameters: biz_id, biz type, the first key, the
// first key behind them.
const readPending = `SELECT /* tocsin schedule pending */` + siblingColumns + `, version
FROM {task} FORCE INDEX (uk_biz)
WHERE biz_id = ?
    AND biz_type = ?
    AND dedup_key >= ?
    AND dedup_key < ?
    AND status = 0
ORDER BY dedup_key
LIMIT 18446744073709551615
FOR UPDATE`

func (h *here) pending(ctx context.Context, from, until string) (all []pendingRun, err error) {
	err = h.sets(ctx, readPending, []any{h.row.subject(), h.row.number, []byte(from), []byte(until)}, func(_ int, rows *sql.Rows) (err error) {
		var r pendingRun
		r.sibling, err = scanSibling(rows, &r.version)
		all = append(all, r)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read runs in %s: %w", h.task(), err)
	}
	return all, nil
}

// cancelRuns cancels runs that are locked. Primary key. Parameters: reason; {ids}.
const cancelRuns = `UPDATE /* tocsin schedule cancel */ {task} FORCE INDEX (PRIMARY)
SET status = 3,
    action_time = UTC_TIMESTAMP(3),
    dedup_key = NULL,
    last_error = ?,
    gmt_modified = UTC_TIMESTAMP(3)
WHERE job_id IN ({ids})
    AND status = 0`

// tellDropped and toldRun write a line of the history for each run that is dropped. Parameters: job_id, schedule_id, biz type, version, attempt, the
// server's clock, lateness, output.
const (
	tellDropped = `INSERT /* tocsin schedule dropped */ INTO {database}.run (
    job_id, schedule_id, biz_type, version, attempt, node, started, lateness_ms, duration_ms, outcome, output)
VALUES `
	toldRun = `(?, ?, ?, ?, ?, '', ?, ?, 0, 'cancelled', ?)`
)

// mostTold is how many dropped runs a change tells one by one. A schedule that fires each second has a thousand runs made ahead.
const mostTold = 20

// cancel cancels runs that are locked, and tells of those that are dropped, the earliest first.
func (h *here) cancel(ctx context.Context, gone []pendingRun, dropped []drop, reason string) error {
	for part := range slices.Chunk(gone, MaxRuns) {
		args := []any{reason}
		for _, r := range part {
			args = append(args, uint64(r.id))
		}
		if _, err := h.exec(ctx, strings.Replace(cancelRuns, "{ids}", list("?", len(part)), 1), args...); err != nil {
			return fmt.Errorf("cancel runs in %s: %w", h.task(), err)
		}
	}
	if len(dropped) == 0 {
		return nil
	}
	slices.SortStableFunc(dropped, func(a, b drop) int { return int(min(max(a.time()-b.time(), -1), 1)) })
	told := dropped[:min(len(dropped), mostTold)]
	var args []any
	for i, r := range told {
		why := reason + r.why
		if more := len(dropped) - mostTold; i == mostTold-1 && more > 0 {
			why += fmt.Sprintf("; and so are %d later ones", more)
		}
		late := max(h.now.UnixMilli()-r.time(), 0)
		args = append(args, uint64(r.id), uint64(h.row.ID), h.row.number, r.version, r.attempts+1, at(h.now), late, Unwanted("cancelled: "+why, r.of.Nominal()))
	}
	if _, err := h.exec(ctx, tellDropped+list(toldRun, len(told)), args...); err != nil {
		return fmt.Errorf("write the history of runs that are dropped: %w", err)
	}
	return nil
}

// Unwanted is the output in the history of a run that is not delivered, for a reason. It has the fire time, unless that is zero: the run's row loses it with its
// dedup_key.
func Unwanted(reason string, fire time.Time) string {
	if fire.IsZero() {
		return reason
	}
	return reason + "; fire time " + fire.UTC().Format("2006-01-02T15:04:05.999Z")
}
