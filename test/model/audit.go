package model

import "fmt"

// write makes a write if its condition holds, lets every actor's knowledge grow stale, and checks what the write did.
// Bad says which promise it broke.
func (m *machine) write(s *state, w Write, by params) (hit bool, bad string) {
	m.params = by
	p := &m.params
	if !m.rules.allow(w, &s.row, p) {
		return false, ""
	}
	before := s.row
	table[w].set(&s.row, p)
	if w == Reschedule && m.rules.off[NewVersion] {
		s.row.version = before.version
	}
	bad = audit(&before, s, w, p)
	s.rewritten(w, p, m.cast.Coincide && (w != RedriveSameKey || m.rules.off[LaterAgain]), w == RedriveSameKey && !m.cast.Strict)
	return true, bad
}

// rewritten tells the actors that the row has changed. Its action_time has changed too, unless two writes coincide, or
// a sweeper gives back what it has claimed. Asked: an operator wants another delivery under the same key, beside one that
// may be under way.
func (s *state) rewritten(w Write, p *params, coincide, asked bool) {
	ends := s.endsTurn(w, p)
	for i := range s.actors {
		a := &s.actors[i]
		if a.phase < loaded {
			continue
		}
		same, back := a.same, w == Snooze && p.found && a.again
		a.same = back || coincide && a.at != past && a.at == s.row.action
		a.again = same && w == Claim && p.found && i != p.by
		a.stands = false
		a.fresh = a.fresh && i == p.by
		if ends && !a.behind {
			a.behind, a.cause = true, a.cause || s.row.turn.excused || asked
		}
	}
	if ends {
		s.row.turn = turn{}
	}
}

// endsTurn reports whether a write asks for another delivery.
func (s *state) endsTurn(w Write, p *params) bool {
	switch w {
	case Reschedule, Redrive, RedriveSameKey:
		return true
	case Retry, Snooze:
		return s.actors[p.by].started
	}
	return false
}

// audit checks one write against the promises.
func audit(before *row, s *state, w Write, p *params) string {
	for _, check := range []func(*row, *state, Write, *params) string{finalStays, claimStays, crashCounts, outcomeCounts, timeStays} {
		if bad := check(before, s, w, p); bad != "" {
			return bad
		}
	}
	return ""
}

// finalStays: a final row changes by a redrive, by a success found late on a dead row, and by a purge alone.
func finalStays(before *row, s *state, w Write, _ *params) string {
	switch {
	case !before.status.final() && w == Purge:
		return fmt.Sprintf("LOST: a %s task is deleted", before.status)
	case !before.status.final():
		return ""
	case w == Purge && before.action > -retention:
		return "a final task is deleted before its retention is over"
	case w == Purge, before.status == dead && (w == Redrive || w == RedriveSameKey || w == Complete):
		return ""
	case before.status == done && s.row.status != done:
		return fmt.Sprintf("UNDONE: a success is undone by %s", w)
	case before.status != s.row.status:
		return fmt.Sprintf("TWO FINAL STATES: %s becomes %s by %s", before.status, s.row.status, w)
	case !before.visible(&s.row):
		return fmt.Sprintf("a %s row is changed by %s", before.status, w)
	}
	return ""
}

// claimStays: a claim is ended by its holder's outcome, by a success, by recover, or by a user or an operator unless the biz
// type is strict.
func claimStays(before *row, _ *state, w Write, p *params) string {
	if before.status != claimed {
		return ""
	}
	switch w {
	case Complete, RecoverBack, RecoverBury:
		return ""
	case Cancel, Reschedule, BuryByHand:
		if !p.strict {
			return ""
		}
	case Retry, Snooze, Bury:
		if p.held && int(before.claimant) == p.by+1 {
			return ""
		}
	}
	return fmt.Sprintf("a claim is broken: %s by who does not hold it", w)
}

// crashCounts: a crash is counted where a claim ran out since its holder crashed, froze or never heard of it; the last
// one buries.
func crashCounts(before *row, s *state, w Write, _ *params) string {
	if w == Claim && before.action > 0 {
		return "EARLY: a row is claimed before its time"
	}
	if w != RecoverBack && w != RecoverBury {
		return ""
	}
	switch {
	case before.status != claimed:
		return "a crash is counted of a row that nobody had claimed"
	case before.claimant != 0 && !s.actors[before.claimant-1].slow:
		return "a crash is counted of a process that lives and is prompt"
	case (s.row.crashes >= maxCrashes) != (s.row.status == dead):
		return fmt.Sprintf("%d crashes leave the row %s, the bound is %d", s.row.crashes, s.row.status, maxCrashes)
	}
	return ""
}

// outcomeCounts: an outcome is of the row's version, and costs one attempt at most.
func outcomeCounts(before *row, s *state, w Write, p *params) string {
	switch w {
	case Complete, Retry, Snooze, Bury:
	default:
		return ""
	}
	if p.version != before.version {
		return fmt.Sprintf("LOST: %s of version %d changes version %d, which was never delivered", w, p.version, before.version)
	}
	if w == Complete {
		return ""
	}
	a := &s.actors[p.by]
	switch {
	case a.behind:
		return fmt.Sprintf("one attempt is settled twice: %s after another outcome was stored", w)
	case w == Snooze:
		return ""
	case a.counted:
		return "one delivery costs two attempts"
	}
	a.counted = true
	return ""
}

// timeStays: what waits is brought forward by the user alone; not by a redrive, and not by an outcome of a row that was
// put off since it was loaded.
func timeStays(before *row, s *state, w Write, p *params) string {
	if (w == Redrive || w == RedriveSameKey) && before.status == pending && before.action > 0 {
		return "EARLY: a redrive brings forward what is pending"
	}
	late := (w == Retry || w == Snooze) && !s.actors[p.by].fresh
	if late && before.status == pending && s.row.action < before.action {
		return fmt.Sprintf("EARLY: a late %s brings forward what a later outcome put off", w)
	}
	return ""
}

// started checks the start of a delivery.
func (m *machine) started(s *state, i int) string {
	a := &s.actors[i]
	a.started = true
	if s.row.status == cancelled && m.cast.Strict && !a.gap {
		return "a delivery starts after a strict cancel succeeded"
	}
	if a.version != s.row.version && m.cast.Strict && !a.gap {
		return "a delivery starts after a strict reschedule succeeded"
	}
	if s.row.status == purged || a.version != s.row.version {
		return "" // an older version: rescheduled in flight, under another key
	}
	again := a.behind || s.row.turn.started
	excused := a.cause || s.row.turn.excused
	if !a.behind {
		s.row.turn.started = true
		s.row.turn.excused = excused
	}
	switch {
	case s.row.due > 0, !a.held && a.same && s.row.action > 0:
		return "EARLY: a delivery starts before its time"
	case again && !excused:
		return "a second delivery, and nobody was killed, frozen or cut off"
	}
	return ""
}

// excuse notes that an actor's delivery may be repeated with a cause.
func (s *state) excuse(a *actor) {
	if a.started && !a.behind && a.version == s.row.version {
		s.row.turn.excused = true
	}
}
