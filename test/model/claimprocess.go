package model

import "fmt"

// heard is what a process does with an answer of the server, whose clock may have gone on beside its own.
func (w *claimWorld) heard(t *claims, i int, beat bool) {
	q := &t.p[i]
	if q.blind && !beat && !w.off[PauseSeen] {
		q.trust = untrusted
		q.gap = q.gap || q.phase == rowChecked
	}
	q.blind = false
}

// beats adds what a process does about its session.
func (w *claimWorld) beats(s *claims, i int) {
	p := &s.p[i]
	if p.beat >= hit {
		w.emit(s, i, "gets the answer to its slow beat", true, func(t *claims) string { w.answered(t, i); return "" })
	}
	if p.beat == sent || p.beat == hit {
		w.emit(s, i, "gives its slow beat up", true, func(t *claims) string { t.p[i].beat, t.p[i].beatAge = noBeat, 0; return "" })
	}
	if s.stalled {
		return
	}
	if p.session == 0 {
		w.open(s, i)
		return
	}
	if p.beat != noBeat || p.beaten {
		return
	}
	w.emit(s, i, "beats", true, func(t *claims) string {
		q := &t.p[i]
		x := t.find(q.session)
		if x == nil {
			w.sessionEnded(t, i)
			return ""
		}
		x.beat = t.fresh()
		w.heard(t, i, true)
		q.trust, q.beaten, q.hurt = 0, true, false
		if !w.apart {
			q.note(&t.tables)
		}
		return ""
	})
	if s.left.faults > 0 && w.slowBeats {
		w.emit(s, i, "sends a beat that is slow", false, func(t *claims) string {
			t.left.faults--
			q := &t.p[i]
			q.beat, q.beatAge, q.hurt = sent, 0, true
			t.excuse(i)
			return ""
		})
	}
	if s.left.faults > 0 && w.losses {
		w.emit(s, i, "beats, and the answer is lost", false, func(t *claims) string {
			t.left.faults--
			q := &t.p[i]
			if x := t.find(q.session); x != nil {
				x.beat = t.fresh()
			}
			q.beaten = true // the next try is in the next tick
			return ""
		})
	}
}

// answered takes the answer to a slow beat.
func (w *claimWorld) answered(t *claims, i int) {
	q := &t.p[i]
	was, age := q.beat, q.beatAge
	q.beat, q.beatAge = noBeat, 0
	switch {
	case was == missed:
		w.sessionEnded(t, i)
	case w.off[TrustFromBegin]:
		q.trust = 0
	default:
		q.trust = min(q.trust, age)
	}
	w.heard(t, i, was == hit)
}

// sessionEnded is what a process does that finds its session gone.
func (w *claimWorld) sessionEnded(t *claims, i int) {
	q := &t.p[i]
	old := q.session
	q.session, q.trust, q.beaten, q.blind = 0, untrusted, false, false
	if w.off[SessionNeverReused] {
		if t.insert(sessionRow{id: old, beat: t.fresh(), owner: uint8(i + 1)}) {
			q.session, q.trust, q.beaten, q.hurt = old, 0, true, false
		}
		return
	}
	if q.phase == rowHeld || q.phase == rowChecked {
		if q.phase = rowGiving; w.off[EndedGivesBack] {
			q.rest()
		}
	}
}

// open adds the INSERT of a new session.
func (w *claimWorld) open(s *claims, i int) {
	if s.p[i].leaving {
		return
	}
	insert := func(t *claims) uint8 {
		q := &t.p[i]
		id := t.fresh()
		if t.insert(sessionRow{id: id, beat: t.fresh(), owner: uint8(i + 1)}) {
			q.session, q.trust, q.beaten, q.hurt, q.blind = id, 0, true, false, false
		}
		return id
	}
	w.emit(s, i, "opens a session", true, func(t *claims) string { insert(t); return "" })
	if s.left.faults > 0 && w.doubles && s.p[i].conn.errand == noErrand {
		w.emit(s, i, "opens a session by a second try, the first is still under way", false, func(t *claims) string {
			t.left.faults--
			id := insert(t)
			if !w.off[InsertNeverReused] {
				id = t.fresh()
			}
			t.p[i].conn = connection{errand: opening1, session: id}
			return ""
		})
	}
}

// judge adds reading beats, ending sessions, and recovering their claims.
func (w *claimWorld) judge(s *claims, i int) {
	p := &s.p[i]
	if w.swept(i) && w.off[SweepWatches] {
		return
	}
	if !p.read && (w.apart || p.beaten) {
		w.emit(s, i, "reads the sessions", true, func(t *claims) string {
			q := &t.p[i]
			q.note(&t.tables)
			w.heard(t, i, false)
			return ""
		})
	}
	if p.session == 0 || (!p.beaten || p.gapped) && !w.off[EndsWhileBeating] || s.stalled {
		return
	}
	for k := range p.notes {
		w.end(s, i, k)
	}
	able := s.row.status == claimed && s.writable() && (!w.off[RecoverAgain] || p.owes == s.row.session)
	if gone := s.find(s.row.session) == nil; able && (gone || w.off[RecoverAsks]) {
		w.emit(s, i, "recovers what has no session", s.first == uint8(i) || w.sweep, func(t *claims) string { return w.recover(t, i) })
	}
	if p.owes != 0 {
		w.emit(s, i, "has recovered", true, func(t *claims) string { t.p[i].owes = 0; return "" })
	}
}

// note takes in a read of the session table.
func (p *claimer) note(d *tables) {
	var notes [mostSession]beatNote
	n := 0
	for _, x := range d.sessions {
		if x.id == 0 || x.id == p.session {
			continue
		}
		notes[n] = beatNote{x.id, x.beat, 0}
		for _, old := range p.notes {
			if old.id == x.id && old.beat == x.beat {
				notes[n].age = old.age
			}
		}
		n++
	}
	p.notes, p.read = notes, true
}

// end adds the end of a session whose beat stood still.
func (w *claimWorld) end(s *claims, i, k int) {
	x := s.p[i].notes[k]
	wait := uint8(standstill)
	if w.off[EndsAfterWait] {
		wait = 1
	}
	if x.id == 0 || x.age < wait {
		return
	}
	w.emit(s, i, fmt.Sprintf("ends session S%d, which stood still", x.id), true, func(t *claims) string {
		t.p[i].notes[k] = beatNote{}
		d := t.find(x.id)
		if d == nil || d.beat != x.beat && !w.off[EndsSameBeat] {
			return ""
		}
		owner := d.owner
		*d = sessionRow{}
		if w.off[RecoverAgain] {
			t.p[i].owes = x.id
		}
		if owner == 0 {
			return ""
		}
		switch v := &t.p[owner-1]; {
		case v.session == x.id && !v.hurt:
			return "a session is ended though its process lives and beats"
		case v.session == x.id && v.trust <= trusted && !v.frozen && !v.former && !v.blind:
			return "a session is ended that its process trusts"
		}
		return ""
	})
}

// hand adds what a process does with the row in its hand.
func (w *claimWorld) hand(s *claims, i int) {
	p := &s.p[i]
	reach := !p.away && !p.former
	switch p.phase {
	case emptyHanded:
		if reach && !p.leaving {
			w.claim(s, i)
		}
		w.leave(s, i)
	case rowAsked, rowUnsure:
		w.unanswered(s, i)
	case rowHeld:
		if (p.trust <= trusted || w.off[TrustEnds]) && (p.action <= 0 || w.off[StartsWhenDue]) && !p.leaving {
			w.emit(s, i, "checks trust and time", true, func(t *claims) string { t.p[i].phase = rowChecked; return "" })
		}
		if reach && p.session == p.of && w.late {
			w.emit(s, i, "decides to give the row back", false, func(t *claims) string { t.p[i].phase = rowGiving; return "" })
		}
	case rowChecked:
		w.emit(s, i, "calls the handler", true, func(t *claims) string { return w.call(t, i) })
	case rowRunning:
		w.emit(s, i, "'s handler succeeds", true, func(t *claims) string { t.p[i].phase = rowEnded; return "" })
		if w.fails {
			w.emit(s, i, "'s handler fails", true, func(t *claims) string { t.p[i].phase, t.p[i].fails = rowEnded, true; return "" })
		}
		if p.leaving {
			w.emit(s, i, "cuts its handler off, as its time to drain is over", true, func(t *claims) string {
				t.row.excused = true
				t.p[i].phase = rowGiving
				return ""
			})
		}
	case rowEnded, rowGiving:
		if reach && s.writable() {
			w.store(s, i)
		}
	}
	if p.looks && reach && s.writable() {
		w.emit(s, i, "compares the claims of its session with what it holds", true, func(t *claims) string {
			q := &t.p[i]
			q.looks = false
			if r := &t.row; r.status == claimed && r.session == q.session && q.session != 0 && (r.token != q.token || q.phase == emptyHanded) {
				return w.release(r, r.token, r.session)
			}
			return ""
		})
	}
	if w.off[LeaveWaits] {
		w.leave(s, i)
	}
}

// store adds storing an outcome, or a release.
func (w *claimWorld) store(s *claims, i int) {
	what, errand := "stores its outcome", settling1
	if s.p[i].phase == rowGiving {
		what, errand = "gives the row back", giving1
	}
	write := func(t *claims) string {
		q := &t.p[i]
		w.heard(t, i, false)
		if errand == giving1 {
			return w.release(&t.row, q.token, q.of)
		}
		return w.settle(t, q.fails, q.token, q.of, q.version)
	}
	w.emit(s, i, what, true, func(t *claims) string {
		bad := write(t)
		t.p[i].rest()
		return bad
	})
	if s.left.faults > 0 && w.losses {
		w.emit(s, i, what+", and the answer is lost", false, func(t *claims) string { t.left.faults--; return write(t) })
	}
	if s.left.faults > 0 && w.late && s.p[i].conn.errand == noErrand {
		w.emit(s, i, what+" by a second try, the first is still under way", false, func(t *claims) string {
			t.left.faults--
			q := &t.p[i]
			q.conn = connection{errand: errand, fails: q.fails, token: q.token, session: q.of, version: q.version}
			bad := write(t)
			q.rest()
			return bad
		})
	}
}

// leave adds the end of a process that was told to stop, and of a sweep that has nothing to do.
func (w *claimWorld) leave(s *claims, i int) {
	p := &s.p[i]
	if p.away || p.former || s.stalled || p.session == 0 && w.swept(i) {
		return
	}
	done := p.phase == emptyHanded && p.conn.errand == noErrand
	switch {
	case w.swept(i) && (!done || s.row.status == claimed || s.row.claimable() && s.row.action < 0):
		return
	case !w.swept(i) && (!p.leaving || !done && !w.off[LeaveWaits]):
		return
	}
	w.emit(s, i, "deletes its session, and ends", true, func(t *claims) string {
		q := &t.p[i]
		if x := t.find(q.session); x != nil {
			*x = sessionRow{}
		}
		*q = claimer{trust: untrusted, conn: q.conn, gone: true}
		return ""
	})
}
