package model

import "fmt"

// step is one step of a history.
type step[S any] struct {
	who      int    // actor; nobody: the user, an operator or time
	what     string // "loads the row"
	progress bool   // happens by itself if everything that lives goes on: no user, no fault
	to       S
	bad      string // the promise that it breaks
}

// steps are those from one state.
type steps[S any] struct{ out []step[S] }

// emit adds a step that changes a copy of s.
func (w *steps[S]) emit(s *S, who int, what string, progress bool, change func(*S) string) {
	w.out = append(w.out, step[S]{who: who, what: what, progress: progress, to: *s})
	last := &w.out[len(w.out)-1]
	last.bad = change(&last.to)
}

// named is "node 2 " of the second node, and "" of nobody.
func named(kind string, who int) string {
	if who == nobody {
		return ""
	}
	return fmt.Sprintf("%s %d ", kind, who+1)
}

// sort is that of worlds whose actors are not alike.
func (*steps[S]) sort(*S) {}

// move is a step in the life of a row.
type move = step[state]

// machine makes the moves of a cast under some rules. It is not safe for concurrent use.
type machine struct {
	cast  *Cast
	rules *rules
	steps[state]
	params params // of the write at hand: a search makes millions
}

// moves gives every step from a state. The slice is reused by the next call.
func (m *machine) moves(s *state) []move {
	m.out = m.out[:0]
	m.world(s)
	for i, role := range m.cast.Roles {
		switch {
		case role == None:
		case s.actors[i].frozen:
			m.emit(s, i, "is continued", m.allFrozen(s), func(t *state) string { t.actors[i].frozen = false; return "" })
		default:
			m.actor(s, i)
			m.faults(s, i)
		}
	}
	return m.out
}

// allFrozen: then only who is continued can make progress. As long as somebody runs, nobody needs the frozen.
func (m *machine) allFrozen(s *state) bool {
	for i, role := range m.cast.Roles {
		if role != None && !s.actors[i].frozen {
			return false
		}
	}
	return true
}

// try adds a step that is one write, if the write hits.
func (m *machine) try(s *state, what string, progress bool, w Write, p params) {
	t := *s
	hit, bad := m.write(&t, w, p)
	if !hit {
		return
	}
	m.out = append(m.out, move{who: nobody, what: what, progress: progress, to: t, bad: bad})
}

// world is what happens without an actor.
func (m *machine) world(s *state) {
	if m.prompt(s) {
		m.emit(s, nobody, "time passes", true, (*state).tick)
	}
	if s.row.status != claimed || m.cast.Breaks || m.cast.Strict {
		m.userChanges(s)
	}
	m.recovers(s)
	m.try(s, "purge deletes the row", true, Purge, params{by: nobody})
	if s.late > 0 {
		t := *s
		t.late = 0
		m.try(&t, "a handler succeeds after its time-out", false, Complete, params{by: nobody, version: s.late - 1})
	}
}

// userChanges are bounded where they make a new version.
func (m *machine) userChanges(s *state) {
	m.try(s, "the user cancels", false, Cancel, params{by: nobody, strict: m.cast.Strict})
	if s.left.reschedules > 0 {
		t := *s
		t.left.reschedules--
		if m.cast.Coincide {
			m.try(&t, "the user reschedules to now", false, Reschedule, params{by: nobody, strict: m.cast.Strict, next: 0})
		}
		m.try(&t, "the user reschedules to the next tick", false, Reschedule, params{by: nobody, strict: m.cast.Strict, next: 1})
	}
	if m.cast.Redrives > 0 {
		m.try(s, "an operator buries", false, BuryByHand, params{by: nobody, strict: m.cast.Strict})
	}
	if s.left.redrives > 0 {
		t := *s
		t.left.redrives--
		if m.cast.SameKey {
			m.try(&t, "an operator redrives with the same key", false, RedriveSameKey, params{by: nobody})
		} else {
			m.try(&t, "an operator redrives", false, Redrive, params{by: nobody})
		}
	}
}

// recovers is one transaction of two statements.
func (m *machine) recovers(s *state) {
	first, second := RecoverBury, RecoverBack
	if m.rules.off[BuryFirst] {
		first, second = second, first
	}
	t := *s
	hit, bad := m.write(&t, first, params{by: nobody})
	again, worse := m.write(&t, second, params{by: nobody})
	if hit || again {
		m.out = append(m.out, move{who: nobody, what: "somebody recovers the claim", progress: true, to: t, bad: bad + worse})
	}
}

// prompt reports whether nobody who lives has something to do in this tick.
func (m *machine) prompt(s *state) bool {
	for i := range s.actors {
		if a := &s.actors[i]; !a.frozen && m.busy(a) {
			return false
		}
	}
	return true
}

func (m *machine) busy(a *actor) bool {
	switch a.phase {
	case unsure:
		return a.timer >= settleLate && !a.away
	case inClaim:
		return a.timer >= margin && !m.rules.off[Prompt]
	case checked:
		return true
	case delivering:
		return a.timer >= timeout
	case ended:
		return a.timer >= settleLate && !a.away
	}
	return false
}

// tick moves everything a tick further into the past. Timers stop where nothing tells more from less.
func (s *state) tick() string {
	s.row.tick()
	for i := range s.actors {
		if a := &s.actors[i]; a.phase > peeked {
			a.timer = min(a.timer+1, 1+max(stale, margin, timeout, settleLate))
		}
		s.actors[i].at = max(s.actors[i].at-1, past)
		if found := &s.actors[i].found; *found < 0 {
			*found = max(*found-1, -grace-1)
		}
	}
	return ""
}

// faults are what may happen to an actor at any step, for a price.
func (m *machine) faults(s *state, i int) {
	a := &s.actors[i]
	if s.left.faults == 0 || a.phase < loaded {
		return
	}
	m.emit(s, i, "is killed", false, func(t *state) string { t.left.faults--; t.kill(i); return "" })
	m.emit(s, i, "is stopped", false, func(t *state) string { t.left.faults--; t.freeze(i); return "" })
	if (a.phase == ended || a.phase == unsure) && !a.away {
		m.emit(s, i, "can't reach the database", false, func(t *state) string {
			t.left.faults--
			a := &t.actors[i]
			a.away, a.slow = true, true
			t.excuse(a)
			return ""
		})
	}
}

// kill ends a process; who starts in its place has another node id.
func (s *state) kill(i int) {
	s.excuse(&s.actors[i])
	s.actors[i] = actor{}
	s.abandon(i)
	if s.owns(i) {
		s.owner = 0
	}
	if int(s.fence) == i+1 {
		s.fence = 0
	}
}

// abandon leaves a claim to nobody.
func (s *state) abandon(i int) {
	if int(s.row.claimant) == i+1 {
		s.row.claimant = 0
	}
}

// freeze stops a process where it is: SIGSTOP, a long pause, a virtual machine that moves.
func (s *state) freeze(i int) {
	a := &s.actors[i]
	a.frozen, a.slow = true, true
	a.gap = a.gap || a.phase == checked
	a.cause = a.cause || a.phase == checked
	s.excuse(a)
}

// name says who an actor is.
func (c *Cast) name(i int) string {
	if i == nobody {
		return ""
	}
	return named([...]string{"", "node", "sweeper", "claimer"}[c.Roles[i]], i)
}
