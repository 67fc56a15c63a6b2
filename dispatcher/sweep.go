package dispatcher

import (
	"context"
	"fmt"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/store"
)

// clockSlack is how much later than its estimate a server's clock may be.
const clockSlack = time.Second

// Deliver takes rows that this node has claimed (Action is the deadline) and
// returns when the lanes have accepted them. Each starts only while the claim
// leaves the delivery time-out. Settled is called once for every row, from the
// settler, when its outcome is stored; it must be quick. A row that was not
// started is given back to the database and reported with the verb Defer: the
// lane had no room in time, ctx ended, the node stops, or its type is paused or
// has no target here. Run must be running. The error is ctx's, or that a
// server's clock is unknown; then too settled is called for every row.
func (d *Dispatcher) Deliver(ctx context.Context, rows []store.Row, settled func(store.Row, store.Fate, tocsin.Verb)) error {
	var failed error
	for _, row := range rows {
		d.swept.add(1)
		s := d.servers[d.cfg.ServerOf(row.JobID.Table())]
		t := s.sweptTask(row, settled)
		accepted, err := s.accept(ctx, t)
		if err != nil {
			failed = err
		}
		if !accepted {
			s.returnSwept(t)
		}
	}
	return failed
}

// Flush returns when every row handed to Deliver is settled, or ctx's error.
func (d *Dispatcher) Flush(ctx context.Context) error { return d.swept.wait(ctx) }

// sweptTask makes a task of a claimed row. It has no lane where the type has no
// target here, and must start before the zero time where the clock is unknown.
func (s *server) sweptTask(row store.Row, settled func(store.Row, store.Fate, tocsin.Verb)) *task {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	t := &task{lane: s.lanes[row.Type], row: row, claimed: true, loaded: now, swept: settled}
	if clock := s.now(); clock != 0 && t.lane != nil {
		left := time.Duration(row.Action-clock)*time.Millisecond - clockSlack
		t.startBy = now.Add(left - t.lane.kind.rule.Load().timeout)
		t.late = max(time.Duration(clock-row.DueTime.UnixMilli())*time.Millisecond, 0)
	}
	return t
}

// accept makes the row ready as soon as its lane has room. It reports false for
// a row that must not or can't start.
func (s *server) accept(ctx context.Context, t *task) (bool, error) {
	if s.now() == 0 {
		return false, fmt.Errorf("the clock of server %d is not known yet", s.index)
	}
	inTime, cancel := context.WithDeadline(ctx, t.startBy)
	defer cancel()
	for ctx.Err() == nil {
		switch {
		case t.lane == nil || t.lane.paused() || t.tooOld(time.Now()) || s.d.phase.Load() == stopping:
			return false, nil
		case s.reserve(t.lane):
			t.lane.kind.put(t.lane, []*task{t})
			return true, nil
		}
		select {
		case <-inTime.Done():
		case <-t.lane.room:
		}
	}
	return false, ctx.Err()
}

// reserve books one held row if the lane has room, and wakes the next who waits
// for it if there is more.
func (s *server) reserve(l *lane) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	limit := l.kind.free() + l.ahead
	if l.held >= limit {
		return false
	}
	if l.held++; l.held < limit {
		signal(l.room)
	} else if l.ahead < maxAhead {
		l.ahead++
	}
	return true
}

// returnSwept gives a row back that no lane accepted.
func (s *server) returnSwept(t *task) {
	s.d.metrics.givenBack.Inc()
	s.report([]result{{task: t, ending: ending{verb: tocsin.Defer, next: s.now()}}})
}
