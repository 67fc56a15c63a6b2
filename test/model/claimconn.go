package model

// network adds the steps of a process's connection at the server, which goes on whatever becomes of the process.
func (w *claimWorld) network(s *claims, i int) {
	c := s.p[i].conn
	if c.errand == noErrand || s.stalled && c.errand != claiming1 {
		return
	}
	switch c.errand {
	case claiming1:
		if s.locked() {
			return
		}
		w.emit(s, i, "'s claim finds its session, and changes the row", true, func(t *claims) string {
			q := &t.p[i].conn
			q.errand = refused1
			if (w.off[ClaimAsks] || t.find(q.session) != nil) && t.row.claimable() {
				q.errand = claiming2
			}
			return ""
		})
	case claiming2:
		w.emit(s, i, "'s claim commits", true, func(t *claims) string {
			q := &t.p[i].conn
			t.row.status, t.row.token, t.row.session = claimed, q.token, q.session
			t.row.excused = t.row.excused || q.hurt || t.p[i].hurt || t.p[i].phase != rowAsked
			q.errand = claimed1
			return ""
		})
	case claimed1, refused1:
		w.answer(s, i)
	case settling1, giving1, opening1:
		if s.locked() && c.errand != opening1 {
			return
		}
		w.emit(s, i, "'s late packet reaches the server", true, func(t *claims) string {
			q := t.p[i].conn
			t.p[i].conn = connection{}
			switch q.errand {
			case settling1:
				return w.settle(t, q.fails, q.token, q.session, q.version)
			case giving1:
				return w.release(&t.row, q.token, q.session)
			}
			t.insert(sessionRow{id: q.session, beat: t.fresh(), owner: uint8(i + 1)})
			return ""
		})
	}
	w.lose(s, i)
}

// lose adds the loss of what is under way: free where nobody waits for it, else a fault.
func (w *claimWorld) lose(s *claims, i int) {
	p := &s.p[i]
	unheard := p.frozen || p.away || p.gone || p.phase != rowAsked
	if p.conn.errand == claiming2 || !unheard && (s.left.faults == 0 || !w.losses) {
		return
	}
	w.emit(s, i, "'s packet is lost", unheard, func(t *claims) string {
		if !unheard {
			t.left.faults--
		}
		t.p[i].conn = connection{}
		return ""
	})
}

// answer adds the step in which the answer to a claim arrives, if anybody still waits for it.
func (w *claimWorld) answer(s *claims, i int) {
	if p := &s.p[i]; p.frozen || p.away {
		return
	}
	w.emit(s, i, "gets the answer to its claim", true, func(t *claims) string {
		q := &t.p[i]
		r := &t.row
		awaited := q.phase == rowAsked && q.token == q.conn.token
		q.conn = connection{}
		if !awaited {
			return ""
		}
		q.rest()
		if r.status == claimed && r.token == s.p[i].token {
			w.hold(t, i)
		}
		return ""
	})
}

// hold takes the claimed row into a process's hand, as it was read after the commit.
func (w *claimWorld) hold(t *claims, i int) {
	q, r := &t.p[i], &t.row
	q.phase, q.token, q.of, q.version, q.action = rowHeld, r.token, r.session, r.version, r.action
	if q.leaving || q.session != q.of && !w.off[StartsUnderItsSession] {
		q.phase = rowGiving
	}
	w.heard(t, i, false)
}

// claim adds the steps that begin a claim.
func (w *claimWorld) claim(s *claims, i int) {
	p := &s.p[i]
	able := s.row.claimable() && (!w.swept(i) || s.row.action < 0)
	if p.session == 0 || p.trust > trusted || p.conn.errand != noErrand || !able || p.looks {
		return
	}
	if w.atOnce {
		w.emit(s, i, "claims the row", s.first == uint8(i) || w.swept(i), func(t *claims) string {
			if q, r := &t.p[i], &t.row; (w.off[ClaimAsks] || t.find(q.session) != nil) && !t.locked() && !t.stalled {
				r.status, r.token, r.session = claimed, t.fresh(), q.session
				w.hold(t, i)
			}
			return ""
		})
		return
	}
	w.emit(s, i, "sends a claim", s.first == uint8(i) || w.swept(i), func(t *claims) string {
		q := &t.p[i]
		q.phase, q.token, q.of = rowAsked, t.fresh(), q.session
		q.conn = connection{errand: claiming1, token: q.token, session: q.session, hurt: q.hurt}
		return ""
	})
}

// unanswered adds what a process does about a claim without an answer.
func (w *claimWorld) unanswered(s *claims, i int) {
	p := &s.p[i]
	if p.phase == rowAsked {
		gone := p.conn.errand == noErrand
		if !gone && (s.left.faults == 0 || !w.losses && !w.late) {
			return
		}
		w.emit(s, i, "waits no more for the answer to its claim", gone, func(t *claims) string {
			if !gone {
				t.left.faults--
			}
			t.p[i].phase = rowUnsure
			return ""
		})
		return
	}
	if w.off[OwnByID] {
		w.emit(s, i, "forgets the claim that got no answer", true, func(t *claims) string { t.p[i].rest(); return "" })
		return
	}
	if p.frozen || p.away {
		return
	}
	if e := p.conn.errand; e != noErrand && !w.off[OwnUntilGone] {
		w.emit(s, i, "kills the connection of its claim", true, func(t *claims) string { t.p[i].conn = connection{}; return "" })
		return
	}
	if s.row.status == claimed && s.row.token == p.token && !s.writable() {
		return
	}
	w.emit(s, i, "reads the row of the claim that got no answer", true, func(t *claims) string {
		q := &t.p[i]
		bad := w.release(&t.row, q.token, q.of)
		q.rest()
		return bad
	})
}
