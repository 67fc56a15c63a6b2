package judge

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/store"
)

// mark says how far the runs of a schedule are settled.
type mark struct {
	key    string // runs with lower keys are
	passed int    // runs passed since the mark was stored
}

// overlap decides about a run while earlier ones are open. Runs that people asked for wait for their turn, whatever the
// policy: a backfill would come to nothing else.
func (j *Judge) overlap(ctx context.Context, h *hearing) error {
	if h.Overlap == overlapAllow {
		return nil
	}
	open, doubtful, err := j.earlier(ctx, h)
	n := len(open) + len(doubtful)
	switch {
	case err != nil:
		return j.failed(err, h.task)
	case n == 0:
		return nil
	case h.byHand(), h.Overlap == overlapQueue && n == 1:
		return j.wait(h, n)
	case h.Overlap == overlapReplace:
		return j.replace(ctx, h, append(open, doubtful...))
	case len(doubtful) > 0 && (!h.waited() || h.task.Crashes > 0): // a moment later it is known whether they were delivered, or missed
		return j.wait(h, 1)
	case h.Overlap == overlapQueue:
		return j.drop(skipped, fmt.Sprintf("skipped: %d earlier runs are open", n))
	}
	return j.drop(skipped, fmt.Sprintf("skipped: run %s is open", nameOf(append(open, doubtful...)[0])))
}

// nameOf names a run for a reason.
func nameOf(r store.RunRow) string {
	if run := parse(r.Key); !run.byHand() {
		return run.String()
	}
	return r.JobID.String()
}

// wait puts the run off: for a second at first, for ten if it has waited for long or many are before it.
func (j *Judge) wait(h *hearing, before int) error {
	j.metrics.count(queued)
	waited := time.Duration(max(h.now-h.task.DueTime.UnixMilli(), 0)) * time.Millisecond
	most := min(max(shortest, waited/patience, time.Duration(before)*shortest), longest)
	return tocsin.Snooze(between(most/2, most))
}

// replace cancels earlier runs.
func (j *Judge) replace(ctx context.Context, h *hearing, open []store.RunRow) error {
	ids := make([]tocsin.JobID, len(open))
	for i, r := range open {
		ids[i] = r.JobID
	}
	why := fmt.Sprintf("replaced: by the run %s", h.run)
	if err := j.cfg.Store.Replace(ctx, ids, why); err != nil {
		return j.failed(err, h.task)
	}
	j.strike(ids, why)
	return nil
}

// earlier returns the open runs that come before this one. Doubtful ones are missed by now: they are about to be dropped,
// unless their delivery had begun in time.
func (j *Judge) earlier(ctx context.Context, h *hearing) (open, doubtful []store.RunRow, err error) {
	rows, err := j.unsettled(ctx, h)
	for _, r := range rows {
		switch {
		case !h.after(r):
		case !h.droppable(r):
			open = append(open, r)
		case r.Status == tocsin.Claimed || h.now <= r.Due+(h.StartWithin+h.timeout+settleTime).Milliseconds():
			doubtful = append(doubtful, r)
		}
	}
	return open, doubtful, err
}

// after reports whether this run comes after another. Runs that people asked for come in the order in which they were stored,
// by the server's clock, which is that of the lock on their schedule; job_ids go by the clocks of their makers. Beside the others they come commitTime after that: a run whose time is sooner may
// have begun before the one by hand could be seen, so it has to be the earlier one of the two.
func (h *hearing) after(r store.RunRow) bool {
	other, made := parse(r.Key), h.task.Created.UnixMilli()
	switch {
	case r.JobID == h.task.JobID:
		return false
	case h.byHand() && other.byHand():
		return r.Created < made || r.Created == made && r.JobID < h.task.JobID
	case h.byHand():
		return max(r.Due, r.Created) <= made+commitTime.Milliseconds()
	case other.byHand():
		return r.Created+commitTime.Milliseconds() < max(h.task.DueTime.UnixMilli(), made)
	}
	return true // its key is lower
}

// droppable reports whether another run, if its delivery has not begun, will be dropped as missed.
func (h *hearing) droppable(r store.RunRow) bool {
	other := parse(r.Key)
	first := r.Attempts == 0 && r.Crashes == 0 && (r.Status == tocsin.Claimed || r.Action <= max(r.Due, r.Created))
	return first && !other.byHand() && h.missed(other.nominal(), r.Due, h.now) != ""
}

// unsettled reads the pending and claimed runs with lower keys, and those that people asked for. It begins at the mark of
// the schedule, which it moves.
func (j *Judge) unsettled(ctx context.Context, h *hearing) (found []store.RunRow, err error) {
	by := store.RunRange{Table: h.task.JobID.Table(), BizID: h.task.BizID, Type: h.number, Limit: page}
	by.From, by.Until = j.markOf(h), h.task.DedupKey
	people := by
	people.From, people.Until, people.Open, people.Limit = firstByHand(h.Schedule), afterLast(h.Schedule), true, mostByHand
	if h.byHand() {
		by.Until = people.From
	}
	ranges := []store.RunRange{by, people}
	for {
		sets, err := j.cfg.Store.RunsFrom(ctx, ranges...)
		if err != nil {
			return nil, err
		}
		n := len(sets[0])
		if n > 0 {
			by.From = next(sets[0][n-1].Key)
		}
		if len(found) == 0 {
			j.advance(ctx, tocsin.JobID(h.Schedule), sets[0])
		}
		for _, set := range sets {
			found = append(found, slices.DeleteFunc(set, func(r store.RunRow) bool { return r.Status.Final() })...)
		}
		if n < by.Limit {
			return found, nil
		}
		ranges = []store.RunRange{by}
	}
}

// markOf returns the key from which on runs of the schedule may be open. A mark above the run itself, which is open, is of a
// time when the server's clock was ahead: see schedule.Maker.
func (j *Judge) markOf(h *hearing) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	m, _ := j.marks.get(tocsin.JobID(h.Schedule))
	key := max(m.key, h.OpenFrom)
	if !h.byHand() && key > h.task.DedupKey {
		j.marks.set(tocsin.JobID(h.Schedule), mark{})
		key = ""
	}
	return max(key, firstKey(h.Schedule))
}

// advance moves the mark over the settled runs at the beginning of rows, which begin at the mark. It is stored now and
// then, for whoever reads next after a restart. Keys only grow, so none is added below it.
func (j *Judge) advance(ctx context.Context, schedule tocsin.JobID, rows []store.RunRow) {
	n := slices.IndexFunc(rows, func(r store.RunRow) bool { return !r.Status.Final() })
	if n < 0 {
		n = len(rows)
	}
	if n == 0 {
		return
	}
	j.mu.Lock()
	m, _ := j.marks.get(schedule)
	m.key, m.passed = max(m.key, next(rows[n-1].Key)), m.passed+n
	far := m.passed >= page
	if far {
		m.passed = 0
	}
	j.marks.set(schedule, m)
	j.mu.Unlock()
	if !far {
		return
	}
	if err := j.cfg.Store.OpenFrom(ctx, schedule, m.key); err != nil {
		j.limit.Of(j.cfg.Logger, "mark").Warn("the mark below which a schedule's runs are settled can't be stored", "error", err, "schedule_id", schedule.String())
	}
}
