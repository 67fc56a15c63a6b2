package model

import (
	"fmt"
	"strings"
)

func (w *intakeWorld) moves(s *intake) []step[intake] {
	w.out = w.out[:0]
	w.user(s)
	w.ticks(s)
	w.peeks(s)
	w.looksWhole(s)
	w.pulls(s)
	for n := range s.rows {
		w.rowMoves(s, n)
	}
	for i := range w.out {
		if mv := &w.out[i]; mv.bad == "" {
			mv.bad = w.broken(&mv.to)
		}
	}
	return w.out
}

// broken returns the promise that a state breaks.
func (w *intakeWorld) broken(s *intake) string {
	for n, r := range s.rows {
		if r.open() && r.known && !s.paused && r.due > s.now && r.due < s.horizon && s.hand[n].stage == noHand && (s.ring[n] == 0 || s.ring[n] > r.due+1) {
			return "NOT AHEAD: a row that is due before the horizon is not in the ring"
		}
	}
	return ""
}

// user is what others do to rows: they commit, and are changed, earlier or later.
func (w *intakeWorld) user(s *intake) {
	for n, r := range s.rows {
		if !r.there && !r.over && r.late == (s.now >= r.due+lookBack) {
			w.emit(s, nobody, rowNames[n]+" is committed", true, func(t *intake) string {
				t.rows[n].there = true
				w.tell(t, n)
				return ""
			})
		}
		if !r.open() || s.left.changes == 0 {
			continue
		}
		for _, due := range []uint8{s.now, s.now + 1, s.now + 2} {
			if due == r.due || due > lastTick {
				continue
			}
			w.emit(s, nobody, fmt.Sprintf("row %d is put to tick %d", n, due), false, func(t *intake) string {
				t.left.changes--
				t.rows[n].due, t.rows[n].known, t.rows[n].late = due, false, false
				t.hand[n].fenced = t.hand[n].stage == started
				t.seen &^= 1 << n
				w.tell(t, n)
				return ""
			})
		}
	}
}

// tell rings the doorbell for a row that is due soon.
func (w *intakeWorld) tell(s *intake, n int) {
	if w.bells && s.rows[n].due <= s.now+w.ahead {
		s.bells[n] = s.rows[n].due + 1
	}
}

// ticks lets time pass. A tick without a peek is a fault. The last tick lasts.
func (w *intakeWorld) ticks(s *intake) {
	if s.peek.on || !s.peeked && (s.left.stalls == 0 || s.now == lastTick) {
		return
	}
	for _, r := range s.rows {
		if !r.there && !r.over && !r.late && s.now+1 >= r.due+lookBack {
			return // its commit is awaited
		}
	}
	w.emit(s, nobody, "time passes", s.peeked, func(t *intake) string {
		for n, r := range t.rows {
			if t.peeked && !t.paused && t.seen.has(n) && r.open() && !t.reachable(n) {
				return "OVERLOOKED: a row that is due and was there when a peek began is not found"
			}
		}
		if t.peeked {
			t.missed = 0
		} else {
			t.left.stalls--
			t.missed++
		}
		t.now = min(t.now+1, lastTick)
		t.peeked, t.seen = false, 0
		return ""
	})
}

// reachable reports whether a row will be delivered without a further look.
func (s *intake) reachable(n int) bool {
	r := s.rows[n]
	return s.hand[n].stage != noHand && !s.hand[n].fenced || s.hand[n].again != 0 || s.ring[n] != 0 && s.ring[n] <= max(r.due, s.now)+1 ||
		s.past <= placeOf(r.due, n) || r.due > s.now
}

// peeks: one in each tick, of types that are not paused.
func (w *intakeWorld) peeks(s *intake) {
	switch {
	case s.peek.on:
		w.emit(s, nobody, "the peek ends", true, func(t *intake) string {
			got := t.peek
			t.peek.rows = dues{}
			for n, due := range got.rows {
				if due != 0 {
					w.find(t, n, due-1)
				}
			}
			t.horizon = t.now + w.ahead + 1
			if t.peek.lost != 0 {
				t.horizon = min(t.horizon, t.peek.lost-1)
			}
			t.peek = look{}
			for n, due := range got.rows {
				if r := &t.rows[n]; due == r.due+1 && t.hand[n].stage == noHand {
					r.known = true
				}
			}
			return ""
		})
	case !s.peeked:
		w.emit(s, nobody, "a peek begins", true, func(t *intake) string {
			t.peeked = true
			if t.paused {
				return ""
			}
			from := int(t.now) - lookBack
			if !w.off[MissedIsPeeked] {
				from -= int(t.missed)
			}
			t.peek = look{on: true}
			for n, r := range t.rows {
				if r.open() && int(r.due) >= from && r.due <= t.now+w.ahead {
					t.peek.rows[n] = r.due + 1
				}
				if r.open() && !r.late {
					t.seen.put(n)
				}
			}
			return ""
		})
	}
}

// looksWhole: a full look, at what is due and was never seen, if nothing else is unread.
func (w *intakeWorld) looksWhole(s *intake) {
	if s.whole.on {
		w.emit(s, nobody, "the full look ends", true, func(t *intake) string {
			for n, due := range t.whole.rows {
				if due != 0 {
					w.find(t, n, due-1)
				}
			}
			t.whole = look{}
			return ""
		})
		return
	}
	if s.past != nowhere || s.paused || w.off[FullLook] {
		return
	}
	var rows dues
	for n, r := range s.rows {
		if r.open() && r.late && r.due <= s.now && s.ring[n] == 0 && s.hand[n].stage == noHand {
			rows[n] = r.due + 1
		}
	}
	if rows != (dues{}) {
		w.emit(s, nobody, "a full look begins", true, func(t *intake) string { t.whole = look{on: true, rows: rows}; return "" })
	}
}

// pulls: a page of rows that are due, from the past mark on, as many as there are slots for.
func (w *intakeWorld) pulls(s *intake) {
	if s.pull.on {
		w.emit(s, nobody, "the pull ends", true, w.pulled)
		if s.left.fails > 0 {
			w.emit(s, nobody, "the pull fails", false, func(t *intake) string { t.left.fails--; t.pull = pull{}; return "" })
		}
		return
	}
	room := min(w.demand(s), w.page)
	if room == 0 || s.past == nowhere || s.past.due() > s.now {
		return
	}
	w.emit(s, nobody, "a pull begins", true, func(t *intake) string {
		t.pull = pull{on: true, room: room, last: nowhere, lowest: nowhere}
		count := uint8(0)
		for at := t.past; at <= placeOf(t.now, intakeRows-1) && count < room; at++ {
			n := int(at) % intakeRows
			if r := t.rows[n]; r.open() && placeOf(r.due, n) == at {
				t.pull.rows[n], t.pull.last = r.due+1, at
				count++
			}
		}
		t.pull.full = count == room
		return ""
	})
}

// pulled starts the rows of a page.
func (w *intakeWorld) pulled(t *intake) string {
	p, before := t.pull, t.past
	t.pull = pull{}
	next, took := nowhere, 0
	if p.full {
		next = p.last + 1
		if w.off[PastHasIDs] {
			next = placeOf(p.last.due(), 0)
		}
	}
	for n, due := range p.rows {
		switch {
		case t.paused, due == 0, p.left.has(n), !w.off[KnownIsSkipped] && (t.ring[n] != 0 || t.hand[n].stage != noHand):
		default:
			took++
			if bad := t.begin(n); bad != "" {
				return bad
			}
		}
	}
	t.past = min(next, p.lowest)
	if p.full && took == 0 && !t.paused && t.past == before && p.lowest == nowhere {
		return "SPINS: a page is read over and over, and nothing of it is taken"
	}
	return ""
}

// begin calls the handler of a row.
func (s *intake) begin(n int) string {
	switch {
	case s.hand[n].stage == started || s.hand[n].stage == stored:
		return "TWICE: a row is started that is in hand"
	case s.rows[n].over:
		return "TWICE: a row is started that has ended"
	}
	s.hand[n] = inHand{stage: started, again: s.hand[n].again}
	return ""
}

// rowMoves is the way of one row.
func (w *intakeWorld) rowMoves(s *intake, n int) {
	row := rowNames[n]
	if s.bells[n] != 0 {
		w.emit(s, nobody, row+": its bell is heard", true, func(t *intake) string {
			due := t.bells[n] - 1
			t.bells[n] = 0
			if !t.paused {
				w.find(t, n, due)
			}
			return ""
		})
		w.emit(s, nobody, row+": its bell is lost", false, func(t *intake) string { t.bells[n] = 0; return "" })
	}
	if due := s.ring[n]; due != 0 && due-1 <= s.now && w.demand(s) > 0 {
		w.emit(s, nobody, row+" is taken from the ring", true, func(t *intake) string {
			t.ring[n], t.hand[n] = 0, inHand{stage: loading, due: due - 1}
			return ""
		})
	}
	w.works(s, n, row)
	w.pauses(s, n)
}

// works is what becomes of a row in hand.
func (w *intakeWorld) works(s *intake, n int, row string) {
	switch h := s.hand[n]; h.stage {
	case loading:
		w.emit(s, nobody, row+" is loaded", true, func(t *intake) string {
			if r := t.rows[n]; !w.off[LoadedIsChecked] && (!r.open() || r.due > t.now) {
				w.leave(t, n)
				if r.open() {
					w.putBack(t, n, r.due)
				}
				return ""
			}
			return t.begin(n)
		})
		if s.left.fails > 0 {
			w.emit(s, nobody, row+" can't be loaded", false, func(t *intake) string {
				t.left.fails--
				w.leave(t, n)
				if !w.off[FailedIsFound] {
					w.find(t, n, h.due)
				}
				return ""
			})
		}
	case started:
		w.emit(s, nobody, row+": its outcome is stored", true, func(t *intake) string {
			t.hand[n].stage = stored
			t.rows[n].over = t.rows[n].over || !h.fenced
			return ""
		})
		if s.left.retries > 0 && !h.fenced && s.now < lastTick {
			w.emit(s, nobody, row+" is to be tried again", false, func(t *intake) string {
				t.left.retries--
				t.hand[n].stage, t.hand[n].retry = stored, true
				t.rows[n].due, t.rows[n].known, t.rows[n].late = t.now+1, false, false
				t.seen &^= 1 << n
				return ""
			})
		}
	case stored:
		w.emit(s, nobody, row+": the node hears of it", true, func(t *intake) string {
			w.leave(t, n)
			if r := &t.rows[n]; h.retry && !r.over {
				w.putBack(t, n, r.due)
				r.known = true
			}
			return ""
		})
	}
}

// pauses: the biz type is paused for a while. What is paused has no demand and is not peeked.
func (w *intakeWorld) pauses(s *intake, n int) {
	switch {
	case n > 0:
	case s.paused:
		w.emit(s, nobody, "the type is resumed", true, func(t *intake) string {
			t.paused, t.horizon = false, 0
			if !w.off[ResumedReadsAll] {
				t.past = 0
				if t.pull.on {
					t.pull.lowest = 0
				}
			}
			t.seen = 0
			return ""
		})
	case s.left.pauses > 0:
		w.emit(s, nobody, "the type is paused", false, func(t *intake) string { t.left.pauses--; t.paused = true; return "" })
	}
}

func (w *intakeWorld) stuck(*intake) string { return "WAITS: a row is never delivered" }

func (w *intakeWorld) first(*intake) string { return w.name }

func (w *intakeWorld) line(mv *step[intake]) string {
	var b strings.Builder
	t := &mv.to
	fmt.Fprintf(&b, "%-36s tick %d, horizon %d, past %d;", mv.what, t.now, t.horizon, t.past)
	for n, r := range t.rows {
		if r.open() || t.hand[n].stage != noHand {
			fmt.Fprintf(&b, " row %d due %d ring %d hand %d", n, r.due, t.ring[n], t.hand[n].stage)
		}
	}
	return b.String()
}

// String names the play.
func (w *intakeWorld) String() string { return w.name }
