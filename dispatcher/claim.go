package dispatcher

import (
	"context"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/store"
)

// needsClaim decides whether a row is claimed before it starts. It always is if its biz type is strict, if this process
// could not deliver the type a moment ago, or if the row has crashed a process before. It also is when a sweeper or
// another live process may be looking at the row, and if a run has waited long for its schedule to be read. Called under s.mu.
func (s *server) needsClaim(t *task, now int64) bool {
	if t.session {
		return false
	}
	r := t.lane.kind.rule.Load()
	overdue := time.Duration(now-t.row.Action) * time.Millisecond
	if s.d.cfg.ClaimAll || r.claims() || t.row.Crashes > 0 || overdue >= r.claimAfter || t.turn != nil && time.Since(t.loaded) > staleAfter/2 {
		return true
	}
	return overdue > time.Second && time.Now().Before(s.known(t.table()).uncleanUntil)
}

// fence is that of a claim on behalf of an owner, nil for "".
func (d *Dispatcher) fence(owner string) *store.Fence {
	if owner == "" {
		return nil
	}
	return &store.Fence{Group: d.cfg.Group, Node: owner}
}

// isolate lets at most one row through that has ended processes before, and none
// while another of these is in hand in this process: beside such a row others
// would be counted, and in the end buried, for the crashes that it causes. Those
// that have to wait are looked at again soon. Nor does it let more rows of a key through than
// may be in delivery.
func (s *server) isolate(tasks []*task) []*task {
	var kept []*task
	var back []duequeue.Entry
	again := s.now() + ceilMilli(suspectWait)
	if s.d.claims() {
		kept, tasks = s.spare(tasks), nil
	}
	for _, t := range tasks {
		switch {
		case t.row.Crashes < suspectFrom:
			kept = append(kept, t)
		case s.d.suspect.CompareAndSwap(false, true):
			t.suspect = true
			kept = append(kept, t)
		default:
			back = append(back, t.entry(again))
			s.d.dropPayloads(t)
		}
	}
	s.mu.Lock()
	s.putBack(back)
	kept, waiting := s.takeTurns(kept)
	s.mu.Unlock()
	for _, t := range waiting {
		s.d.dropPayloads(t)
	}
	if len(waiting) > 0 {
		signal(s.wake) // the lane holds fewer
	}
	return kept
}

// acquit makes room for the next row that has ended processes, and for the next of the
// task's key. Called under s.mu.
func (t *task) acquit() {
	if t.suspect {
		t.suspect = false
		if d := t.lane.kind.d; d.claims() {
			d.suspects.remove(t)
		} else {
			d.suspect.Store(false)
		}
	}
	if t.keyed {
		t.keyed = false
		t.lane.server.leaveKey(keyOf(t), t.claimed)
	}
}

// claim claims rows of one lane in the database and returns those it got. The others drop out, or are retried in a
// second if the claim failed.
func (s *server) claim(l *lane, owner string, tasks []*task) []*task {
	if tasks = s.isolate(tasks); len(tasks) == 0 {
		return nil
	}
	entries := make([]duequeue.Entry, len(tasks))
	byID := make(map[tocsin.JobID]*task, len(tasks))
	known := make(map[tocsin.JobID]*store.Row, len(tasks))
	for i, t := range tasks {
		entries[i] = t.entry(t.row.Action)
		byID[t.row.JobID], known[t.row.JobID] = t, t.row
	}
	if err := s.d.cfg.MayClaim(s.index); err != nil {
		s.notClaimed(byID, err)
		return nil
	}
	r := l.kind.rule.Load()
	before, hold, by := time.Now(), r.hold(), s.claimer(r)
	wary := before.UnixNano() < l.wary.Load()
	draining, end := s.d.whileDraining()
	defer end()
	ctx, cancel := context.WithTimeout(draining, min(hold, claimWithin))
	defer cancel()
	rows, err := s.claimRows(ctx, s.d.whileDraining, store.Claim{
		Server: s.index,
		Rows:   entries,
		By:     by,
		Hold:   hold,
		Fence:  s.d.fence(owner),
		Known:  known,
		PerKey: l.perKey(),
		NoWait: wary,
	})
	if !wary && mysql.ClassOf(err) == mysql.Contended {
		l.wary.Store(time.Now().Add(waryFor).UnixNano())
	}
	got, at := make([]*task, 0, len(rows)), time.Now() // the claim itself is no sign of a slow lane
	for i := range rows {
		row := &rows[i]
		t := byID[row.JobID]
		delete(byID, row.JobID)
		row.ActionTime = t.row.ActionTime // for the target, whom the claim's deadline does not concern
		row.Schedule, row.FireTime = t.row.Schedule, t.row.FireTime
		t.row, t.claimed, t.by, t.until, t.loaded = row, true, by, before.Add(hold), at
		got = append(got, t)
	}
	s.granted(got)
	s.notClaimed(byID, err)
	s.d.metrics.claimed.Add(float64(len(got)))
	s.d.claimed.Add(int64(len(got)))
	return got
}

// notClaimed lets go of the rows that a claim did not get.
func (s *server) notClaimed(left map[tocsin.JobID]*task, err error) {
	for _, t := range left {
		s.d.dropPayloads(t)
	}
	s.refused(left)
	if err != nil {
		back := make([]duequeue.Entry, 0, len(left))
		for _, t := range left {
			back = append(back, t.entry(t.row.Action))
		}
		s.hold(back, err)
		return
	}
	s.d.metrics.droppedClaim.Add(float64(len(left)))
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, t := range left {
		t.lane.held--
		t.lane.queue.Done(id)
	}
	signal(s.wake) // the lane holds fewer
}

// gained returns until when each row of a newly delivered biz type is claimed: others
// stood in for this process, and may not know yet that it can deliver the type. Types
// in its first policies are not newly gained: it had no table before them.
func gained(before *rule, informed bool) time.Time {
	switch {
	case before != nil && !before.lacked:
		return before.claimUntil
	case informed:
		return time.Now().Add(uncleanFor)
	}
	return time.Time{}
}
