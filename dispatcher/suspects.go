package dispatcher

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin"
)

const (
	acquittedAfter = time.Minute     // a suspect that has been in delivery for so long counts no more
	suspectGone    = 4 * suspectWait // a suspect that has waited, and was not tried again for so long, holds up no later one
)

// suspects are the rows in hand whose sessions were ended by others before, so that one of them may have ended its process. The highest number of
// crashes among them limits how many there may be: the others would be counted, and in the end buried, for the crashes that one causes.
// They are taken in the order of their times, so that none waits for ever. Nothing else is locked under mu.
type suspects struct {
	mu      sync.Mutex
	inHand  map[*task]suspect
	waiting map[tocsin.JobID]waitingSuspect
}

// suspect is one in hand. Its row is another's once it is claimed.
type suspect struct {
	crashes int
	began   time.Time // its delivery; zero: it has not
}

// waitingSuspect is a suspect that found no room.
type waitingSuspect struct {
	due   int64
	tried time.Time
}

// besideCrashes is how many suspects may be in hand, by the highest number of crashes among them.
func besideCrashes(crashes int) int {
	switch crashes {
	case 0, 1:
		return 64
	case 2:
		return 16
	case 3:
		return 4
	}
	return 1
}

// admit takes the first of the tasks for which there is room, and returns the others. It sorts the slice.
func (s *suspects) admit(tasks []*task, now time.Time) (admitted, left []*task) {
	slices.SortFunc(tasks, func(a, b *task) int {
		return cmp.Or(cmp.Compare(a.row.Action, b.row.Action), cmp.Compare(a.row.JobID, b.row.JobID))
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	highest, count := s.count(now)
	for _, t := range tasks {
		delete(s.waiting, t.row.JobID)
	}
	first, some := s.firstWaiting(now)
	for i, t := range tasks {
		highest = max(highest, t.row.Crashes)
		if count >= besideCrashes(highest) || some && first < t.row.Action {
			left = tasks[i:]
			break
		}
		count++
		s.inHand[t] = suspect{crashes: t.row.Crashes}
		admitted = append(admitted, t)
	}
	for _, t := range left {
		s.waiting[t.row.JobID] = waitingSuspect{t.row.Action, now}
	}
	return admitted, left
}

// count returns how many suspects in hand count, and the highest number of crashes of these. Called under mu.
func (s *suspects) count(now time.Time) (highest, count int) {
	for _, one := range s.inHand {
		if one.began.IsZero() || now.Sub(one.began) < acquittedAfter {
			count++
			highest = max(highest, one.crashes)
		}
	}
	return highest, count
}

// firstWaiting returns the time of the first suspect that waits. Called under mu.
func (s *suspects) firstWaiting(now time.Time) (due int64, some bool) {
	for id, w := range s.waiting {
		if now.Sub(w.tried) > suspectGone {
			delete(s.waiting, id)
		} else if !some || w.due < due {
			due, some = w.due, true
		}
	}
	return due, some
}

// begin notes that the delivery of a suspect begins.
func (s *suspects) begin(t *task, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.inHand[t]
	one.began = now
	s.inHand[t] = one
}

// remove lets go of a suspect.
func (s *suspects) remove(t *task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.inHand, t)
}
