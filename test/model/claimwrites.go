package model

// The statements on the row. Each is atomic, except for a claim, whose connection takes two steps; see claimconn.go.

// locked reports whether a transaction that has not committed holds the row: other writers wait.
func (s *claims) locked() bool {
	return s.p[0].conn.errand == claiming2 || s.p[1].conn.errand == claiming2
}

// writable reports whether statements that change the row go through.
func (s *claims) writable() bool { return !s.stalled && !s.locked() }

func (r *claimRow) turn() { r.started, r.excused = false, false }

func (r *claimRow) free() { r.token, r.session = 0, 0 }

// claimable reports whether a claim takes the row.
func (r *claimRow) claimable() bool { return r.status == pending && r.action <= 1 }

// mine reports whether the row has this token.
func (w *claimWorld) mine(r *claimRow, token, session uint8) bool {
	switch {
	case r.status != claimed && !w.off[TokenNeedsClaimed]:
		return false
	case w.off[TokenCounts]:
		return r.token != 0 && r.session == session
	}
	return r.token == token
}

// complete stores a success.
func (w *claimWorld) complete(r *claimRow, version uint8) (bad string) {
	if r.version != version && !w.off[CompleteByVersion] {
		return ""
	}
	if r.status != pending && r.status != claimed && r.status != dead && !(w.off[CompleteOpen] && r.status == cancelled) {
		return ""
	}
	switch {
	case r.version != version:
		bad = "a success settles a version that was not delivered"
	case r.status == cancelled:
		bad = "TWO FINAL STATES"
	}
	r.status = done
	r.free()
	return bad
}

// fail stores a failed attempt: the row is due again in the next tick, or dead.
func (w *claimWorld) fail(r *claimRow, token, session, version uint8) (bad string) {
	allowed := w.mine(r, token, session)
	if w.off[OutcomeByToken] {
		allowed = (r.status == claimed || r.status == pending) && r.version == version
	}
	if !allowed {
		return ""
	}
	switch {
	case r.status == done:
		bad = "UNDONE: a failed attempt undoes a success"
	case r.status.final():
		bad = "TWO FINAL STATES"
	case r.status == pending:
		bad = "a failed attempt changes a row that nobody has claimed"
	case r.token != token:
		bad = "a failed attempt settles a later claim"
	}
	r.attempts++
	r.free()
	if r.attempts >= maxAttempts {
		r.status = dead
		return bad
	}
	r.status, r.action = pending, 1
	r.turn()
	return bad
}

// settle stores the outcome of an attempt.
func (w *claimWorld) settle(s *claims, fails bool, token, session, version uint8) string {
	if fails {
		return w.fail(&s.row, token, session, version)
	}
	return w.complete(&s.row, version)
}

// release gives a row back.
func (w *claimWorld) release(r *claimRow, token, session uint8) (bad string) {
	if !w.mine(r, token, session) {
		return ""
	}
	switch {
	case r.status.final():
		bad = "UNDONE: a release undoes a final state"
	case r.token != token:
		bad = "a release ends a later claim"
	}
	r.status = pending
	r.free()
	return bad
}

// recover gives back the claim of a session that is gone, and counts a crash.
func (w *claimWorld) recover(s *claims, by int) string {
	r := &s.row
	if r.status != claimed || r.session == 0 {
		return ""
	}
	if gone := s.find(r.session) == nil; !gone && !(w.off[RecoverAsks] && !s.p[by].knows(r.session)) {
		return ""
	}
	for i := range s.p {
		if p := &s.p[i]; p.session == r.session && !p.frozen && p.trust <= trusted && !p.former && !p.moved && !p.blind {
			return "a process that lives and beats loses its claim"
		}
	}
	if !r.excused {
		return "a crash is counted, and nobody was killed, frozen or cut off"
	}
	r.crashes++
	r.free()
	if r.status = pending; r.crashes >= maxCrashes {
		r.status = dead
	}
	return ""
}

// knows reports whether a process saw a session in its last read.
func (p *claimer) knows(id uint8) bool {
	for _, x := range p.notes {
		if x.id == id {
			return true
		}
	}
	return id == p.session
}

// user adds what users and operators do.
func (w *claimWorld) user(s *claims) {
	if s.left.user == 0 || !s.writable() {
		return
	}
	do := func(what string, change func(*claims, *claimRow)) {
		w.emit(s, nobody, what, false, func(t *claims) string {
			t.left.user--
			change(t, &t.row)
			if !w.off[TokenNeedsClaimed] {
				t.row.free()
			}
			return ""
		})
	}
	switch s.row.status {
	case pending, claimed:
		do("the user cancels", func(_ *claims, r *claimRow) { r.status = cancelled; r.turn() })
		do("the user reschedules", func(_ *claims, r *claimRow) {
			r.status, r.action, r.attempts = pending, 1, 0
			if !w.off[RescheduleCounts] {
				r.version++
			}
			r.turn()
		})
		do("an operator buries", func(_ *claims, r *claimRow) { r.status = dead })
	case dead:
		if !w.keys {
			return
		}
		do("an operator redrives with the same key", func(t *claims, r *claimRow) {
			r.status, r.action, r.attempts, r.crashes = pending, 0, 0, 0
			r.turn()
			r.excused = true
			for i := range t.p {
				if p := &t.p[i]; p.phase != emptyHanded {
					p.again, p.excused = true, true
				}
			}
		})
	}
}
