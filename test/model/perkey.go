package model

import "fmt"

// This model has rows of one key, of which one may be in delivery at a time, and two processes that claim them.
//
//	claim: lock the row, if no earlier one is pending and none is claimed --> commit --> read what is claimed --> start, or give back
//	user:  add, reschedule; a transaction may commit long after its statement, so a row may appear with an action time in the past
//
// Its promises: two rows of the key are never in delivery at once, and every row ends. The condition of the claim reads what is committed and locks
// nothing, so two claims that overlap may both pass it. Who sees another claimed row after its own commit
// gives its row back, whatever the order of the two: the other may have started already.

// keyRows is how many rows play.
const keyRows = 3

// keyRow is a row of the key.
type keyRow struct {
	made, claimed, done bool
	at                  uint8 // action time: its place in the order, before that of its number
	moved               bool  // it was rescheduled once
	locked              bool  // by a claim that has not committed
}

// keyStage is how far a process is.
type keyStage uint8

const (
	keyFree     keyStage = iota
	keyChecked           // its claim has locked the row
	keyClaimed           // ... and has committed
	keyDelivers          // the handler runs
)

// keyClaimer is a process.
type keyClaimer struct {
	stage keyStage
	row   uint8
}

// keys is one state of the world.
type keys struct {
	rows [keyRows]keyRow
	p    [2]keyClaimer
}

// KeyGuard is a rule for keys. Each can be switched off to show what it prevents.
type KeyGuard uint8

// The guards.
const (
	KeySeenAgain KeyGuard = iota // who sees another claimed row after its commit gives back
	KeyNoOrder                   // ... whatever the order
	keyGuards
)

var keyGuardNames = [keyGuards]string{"what is claimed is read again after the commit", "whoever sees another gives back"}

// keyWorld makes the steps.
type keyWorld struct {
	off [keyGuards]bool
	steps[keys]
}

func (w *keyWorld) start() (s keys) { return s }

// before reports whether a row is before another in the order of the key.
func (s *keys) before(a, b int) bool {
	return s.rows[a].at < s.rows[b].at || s.rows[a].at == s.rows[b].at && a < b
}

// turn reports whether nothing that is committed stands before a row.
func (s *keys) turn(row int) bool {
	for i := range s.rows {
		if r := &s.rows[i]; i != row && r.made && !r.done && (r.claimed || s.before(i, row)) {
			return false
		}
	}
	return true
}

// other returns a claimed row beside this one, or -1.
func (s *keys) other(row int) int {
	for i := range s.rows {
		if i != row && s.rows[i].claimed {
			return i
		}
	}
	return -1
}

func (w *keyWorld) moves(s *keys) []step[keys] {
	w.out = w.out[:0]
	for i := range s.rows {
		r := &s.rows[i]
		for at := range uint8(2) {
			if !r.made {
				w.emit(s, nobody, fmt.Sprintf("row %d appears at %d", i+1, at), true, func(t *keys) string { t.rows[i].made, t.rows[i].at = true, at; return "" })
			} else if !r.claimed && !r.locked && !r.done && !r.moved && r.at != at {
				w.emit(s, nobody, fmt.Sprintf("row %d is rescheduled to %d", i+1, at), false, func(t *keys) string { t.rows[i].moved, t.rows[i].at = true, at; return "" })
			}
		}
	}
	for i := range s.p {
		w.process(s, i)
	}
	return w.out
}

// process adds the steps of a process.
func (w *keyWorld) process(s *keys, i int) {
	p := &s.p[i]
	row := int(p.row)
	switch p.stage {
	case keyFree:
		for k := range s.rows {
			r := &s.rows[k]
			if r.made && !r.claimed && !r.locked && !r.done && s.turn(k) {
				w.emit(s, i, fmt.Sprintf("locks row %d, whose turn it is", k+1), true, func(t *keys) string {
					t.rows[k].locked = true
					t.p[i] = keyClaimer{keyChecked, uint8(k)}
					return ""
				})
			}
		}
	case keyChecked:
		w.emit(s, i, "commits its claim", true, func(t *keys) string {
			t.rows[row].locked, t.rows[row].claimed = false, true
			t.p[i].stage = keyClaimed
			return ""
		})
	case keyClaimed:
		w.emit(s, i, "reads what is claimed", true, func(t *keys) string {
			o := t.other(row)
			if o >= 0 && !w.off[KeySeenAgain] && (!w.off[KeyNoOrder] || t.before(o, row)) {
				t.rows[row].claimed = false
				t.p[i] = keyClaimer{}
				return ""
			}
			t.p[i].stage = keyDelivers
			if t.p[1-i].stage == keyDelivers {
				return "two rows of the key are in delivery"
			}
			return ""
		})
	case keyDelivers:
		w.emit(s, i, "stores its outcome", true, func(t *keys) string {
			t.rows[row].claimed, t.rows[row].done = false, true
			t.p[i] = keyClaimer{}
			return ""
		})
	}
}

func (w *keyWorld) settled(s *keys) bool {
	for i := range s.rows {
		if !s.rows[i].done {
			return false
		}
	}
	return true
}

func (w *keyWorld) stuck(*keys) string { return "LOST: a row of the key never ends" }

func (w *keyWorld) first(*keys) string { return "nothing is there" }

func (w *keyWorld) line(mv *step[keys]) string { return named("process", mv.who) + mv.what }

// String names the play.
func (w *keyWorld) String() string { return "rows of one key" }
