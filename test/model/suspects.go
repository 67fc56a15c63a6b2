package model

import "fmt"

// This model has the rows that one process holds, some of which kill it. When its session is ended, each row that it held gets
// one crash more. Its promises: two rows that kill bury no other
// row, and every row ends. Three may bury another: one that has killed often leaves an innocent row with four crashes, and the others add two.
//
// Rows without a crash are claimed as they come. Rows with crashes are suspects: the highest count among those held sets
// how many of them are held at once. The numbers are smaller than those of the design (64, 16, 4 and 1), in the same order.

// Bounds of a play.
const (
	suspected = 5 // rows
	buried    = 6 // crashes
)

// suspectRow is a row: whether it has come, is held, or has ended.
type suspectRow struct {
	come, held, done bool
	crashes          uint8
}

func (r *suspectRow) final() bool { return r.done || r.crashes >= buried }

// suspects is one state of the world.
type suspects [suspected]suspectRow

// SuspectGuard is a rule for suspects. Each can be switched off to show what it prevents.
type SuspectGuard uint8

// The guards.
const (
	SuspectsLimited   SuspectGuard = iota // suspects are few at a time
	HighestSetsLimit                      // the highest count among the suspects that are held sets the limit for all, not for its own
	NewcomerIsCounted                     // a suspect that is claimed counts among them
	suspectGuards
)

var suspectGuardNames = [suspectGuards]string{
	"suspects are few at a time", "the highest count sets the limit for all", "a suspect that is claimed counts",
}

// suspectWorld makes the steps.
type suspectWorld struct {
	poisons int // the first rows
	off     [suspectGuards]bool
	steps[suspects]
}

func (w *suspectWorld) start() (s suspects) { return s }

// limit is how many suspects are held at once beside one with so many crashes.
func (w *suspectWorld) limit(crashes uint8) int {
	if w.off[SuspectsLimited] || crashes == 0 {
		return suspected
	}
	return max(suspected-int(crashes), 1)
}

// mayHold reports whether a row may be claimed beside those that are held.
func (w *suspectWorld) mayHold(s *suspects, row int) bool {
	crashes := s[row].crashes
	if crashes == 0 {
		return true
	}
	held, highest := 1, crashes
	for i := range s {
		r := &s[i]
		switch {
		case !r.held || r.crashes == 0:
		case w.off[HighestSetsLimit] && r.crashes != crashes:
		default:
			held, highest = held+1, max(highest, r.crashes)
		}
	}
	if w.off[NewcomerIsCounted] {
		held--
	}
	return held <= w.limit(highest)
}

func (w *suspectWorld) moves(s *suspects) []step[suspects] {
	w.out = w.out[:0]
	for i := range s {
		r := &s[i]
		switch {
		case r.final():
		case !r.come:
			w.emit(s, i, "comes", true, func(t *suspects) string { t[i].come = true; return "" })
		case !r.held && w.mayHold(s, i):
			w.emit(s, i, "is claimed", true, func(t *suspects) string { t[i].held = true; return "" })
		case r.held && i < w.poisons:
			w.emit(s, i, "kills the process", true, func(t *suspects) string { return t.crash(w.poisons) })
		case r.held:
			w.emit(s, i, "is done", true, func(t *suspects) string { t[i].held, t[i].done = false, true; return "" })
		}
	}
	return w.out
}

// crash ends the process with what it holds.
func (s *suspects) crash(poisons int) (bad string) {
	for i := range s {
		r := &s[i]
		if !r.held {
			continue
		}
		r.held = false
		r.crashes++
		if i >= poisons && r.final() {
			bad = "an innocent row is buried"
		}
	}
	return bad
}

func (w *suspectWorld) settled(s *suspects) bool {
	for i := range s {
		if !s[i].final() {
			return false
		}
	}
	return true
}

func (w *suspectWorld) stuck(*suspects) string { return "LOST: a row never ends" }

func (w *suspectWorld) first(s *suspects) string {
	return fmt.Sprintf("%d rows, of which %d kill", len(s), w.poisons)
}

func (w *suspectWorld) line(mv *step[suspects]) string {
	t := fmt.Sprintf("%-40s crashes", named("row", mv.who)+mv.what)
	for i := range mv.to {
		t += fmt.Sprintf(" %d", mv.to[i].crashes)
	}
	return t
}

// String names the play.
func (w *suspectWorld) String() string { return "rows that kill" }
