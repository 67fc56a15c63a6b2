package dispatcher

import (
	"container/heap"
	"context"
	"time"
)

// earliest is a heap of rows that were loaded ahead of their time, the one that is
// due first on top.
type earliest []*task

func (e earliest) Len() int           { return len(e) }
func (e earliest) Less(i, j int) bool { return e[i].row.Action < e[j].row.Action }
func (e earliest) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }

// Push implements heap.Interface.
func (e *earliest) Push(t any) { *e = append(*e, t.(*task)) }

// Pop implements heap.Interface.
func (e *earliest) Pop() any {
	last := len(*e) - 1
	t := (*e)[last]
	(*e)[last] = nil
	*e = (*e)[:last]
	return t
}

// keep holds a row until it is due. Called under s.mu.
func (s *server) keep(t *task) {
	t.lane.held--
	t.lane.early++
	heap.Push(&s.early, t)
	if s.early[0] == t {
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
	for len(s.early) > 0 && s.early[0].row.Action*1000 <= now {
		t := heap.Pop(&s.early).(*task)
		t.lane.matured()
		if t.lane.rests() || s.fence(t.table()) != "" || s.needsClaim(t, now/1000) {
			back = append(back, t)
		} else {
			ready[t.lane] = append(ready[t.lane], t)
		}
	}
	if len(s.early) > 0 && s.early[0].unripe(now+holdWithin.Microseconds()) { // and so are the others
		back = append(back, s.takeEarly(func(*task) bool { return true })...)
	}
	if some = len(s.early) > 0; some {
		wait = time.Duration(s.early[0].row.Action*1000-now) * time.Microsecond
	}
	s.mu.Unlock()
	for l, tasks := range ready {
		l.kind.put(l, tasks)
	}
	for _, t := range back {
		s.giveBack(t)
	}
	return wait, some
}

// matured records that a row is no longer held for its time.
func (l *lane) matured() {
	l.early--
	l.held++
}

// takeEarly removes the held rows that match and returns them. Each then counts as
// loaded. Called under s.mu.
func (s *server) takeEarly(match func(*task) bool) (taken []*task) {
	kept := s.early[:0]
	for _, t := range s.early {
		if match(t) {
			t.lane.matured()
			taken = append(taken, t)
		} else {
			kept = append(kept, t)
		}
	}
	clear(s.early[len(kept):])
	s.early = kept
	heap.Init(&s.early)
	return taken
}

// giveBackEarly returns all held rows to their queues.
func (s *server) giveBackEarly() {
	s.mu.Lock()
	taken := s.takeEarly(func(*task) bool { return true })
	s.mu.Unlock()
	for _, t := range taken {
		s.giveBack(t)
	}
}
