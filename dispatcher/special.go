package dispatcher

import (
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/duequeue"
)

// lookInto goes on with rows that an ordinary claim refuses: runs of schedules, and suspects. No loader waits for the schedules of runs: the
// goroutines are joined through Dispatcher.takes, and are as many as the rows that the lanes may hold.
func (s *server) lookInto(tasks []*task, now int64) {
	if len(tasks) == 0 {
		return
	}
	s.d.takes.add(1)
	go func() {
		defer s.d.takes.add(-1)
		s.reads <- struct{}{}
		defer func() { <-s.reads }()
		var runs, alone, others []*task
		for _, t := range tasks {
			if s.isRun(t.row) {
				runs = append(runs, t)
			} else {
				others = append(others, t)
			}
		}
		if len(runs) > 0 {
			runs, _ = s.look(s.d.intake, runs, now, false)
		}
		for _, t := range runs {
			if t.guarded() {
				alone = append(alone, t)
			} else {
				others = append(others, t)
			}
		}
		s.begin(alone)
		s.claimSpecial(s.spare(others))
	}()
}

// claimSpecial claims rows that lookInto has looked into.
func (s *server) claimSpecial(tasks []*task) {
	by := make(map[*lane]*claiming)
	for _, t := range tasks {
		c := by[t.lane]
		if c == nil {
			c = &claiming{server: s, lane: t.lane, special: make(map[tocsin.JobID]*task)}
			by[t.lane] = c
		}
		c.entries, c.special[t.row.JobID] = append(c.entries, t.entry(t.row.Action)), t
	}
	for _, c := range by {
		c.run(s.d.intake)
	}
}

// spare returns the tasks but for the suspects for which there is no room. These are looked at again soon.
func (s *server) spare(tasks []*task) []*task {
	var suspects, kept []*task
	for _, t := range tasks {
		if t.row.Crashes > 0 {
			suspects = append(suspects, t)
		} else {
			kept = append(kept, t)
		}
	}
	admitted, left := s.d.suspects.admit(suspects, time.Now())
	for _, t := range admitted {
		t.suspect = true
	}
	again := s.now() + ceilMilli(suspectWait)
	back := make([]duequeue.Entry, len(left))
	for i, t := range left {
		back[i] = t.entry(again)
		s.d.dropPayloads(t)
	}
	s.mu.Lock()
	s.putBack(back)
	s.mu.Unlock()
	return slices.Concat(kept, admitted)
}
