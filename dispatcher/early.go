package dispatcher

import (
	"context"
	"slices"
	"time"
)

// keep holds a row until it is due. Called under s.mu.
func (s *server) keep(t *task) {
	t.lane.held--
	t.lane.early++
	behind := func(e *task, due int64) int { // rows of the same time count as earlier, so that a row is usually appended
		if e.row.Action <= due {
			return -1
		}
		return 1
	}
	at, _ := slices.BinarySearchFunc(s.early, t.row.Action, behind)
	s.early = slices.Insert(s.early, at, t)
	if at == 0 {
		signal(s.sooner)
	}
}

// runStarter starts each held row at its time, until ctx ends.
func (s *server) runStarter(ctx context.Context) {
	alarm := newAlarm(s.d.cfg.Exact)
	defer alarm.close()
	for {
		if wait, some := s.startEarly(); some {
			alarm.set(wait)
		}
		select {
		case <-ctx.Done():
			return
		case <-s.sooner:
		case <-alarm.C:
		}
	}
}

// startEarly makes ready the held rows whose time has come by the lower bound of the
// server's clock. It returns how long the next one has to wait, and false if none is
// held. Rows that by now must be claimed go back to their queue, and are loaded
// again.
func (s *server) startEarly() (wait time.Duration, some bool) {
	now := s.nowMicro()
	ready, back := make(map[*lane][]*task), []*task(nil)
	s.mu.Lock()
	ripe := 0
	for ; ripe < len(s.early) && s.early[ripe].row.Action*1000 <= now; ripe++ {
		t := s.early[ripe]
		t.lane.early--
		t.lane.held++
		if t.lane.rests() || s.fence(t.table()) != "" || s.needsClaim(t, now/1000) || !t.trusts() {
			back = append(back, t)
		} else {
			ready[t.lane] = append(ready[t.lane], t)
		}
	}
	s.early = slices.Delete(s.early, 0, ripe)
	if len(s.early) > 0 && s.early[0].unripe(now+s.d.unripeFrom().Microseconds()) { // and so are the others
		back = append(back, s.takeEarly(func(*task) bool { return true })...)
	}
	if some = len(s.early) > 0; some {
		wait = time.Duration(s.early[0].row.Action*1000-now) * time.Microsecond
	}
	s.mu.Unlock()
	for l, tasks := range ready {
		l.kind.put(l, tasks)
	}
	giveBack(back)
	return wait, some
}

// takeEarly removes the held rows that match and returns them, the one that is due first in front. Each then counts as
// loaded. Called under s.mu.
func (s *server) takeEarly(match func(*task) bool) (taken []*task) {
	s.early = slices.DeleteFunc(s.early, func(t *task) bool {
		matches := match(t)
		if matches {
			t.lane.early--
			t.lane.held++
			taken = append(taken, t)
		}
		return matches
	})
	return taken
}

// giveBackEarly returns the held rows that match to their queues.
func (s *server) giveBackEarly(match func(*task) bool) {
	s.mu.Lock()
	taken := s.takeEarly(match)
	s.mu.Unlock()
	giveBack(taken)
}
