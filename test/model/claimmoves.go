package model

import "fmt"

func (w *claimWorld) moves(s *claims) []step[claims] {
	w.out = w.out[:0]
	if s.row.status.final() && !s.behind && s.atRest() && (s.row.status != dead || !w.keys || s.left.user == 0) {
		return nil
	}
	w.world(s)
	for i := range s.p {
		if !(w.one && i == 1) {
			w.network(s, i)
			w.process(s, i)
		}
	}
	return w.out
}

// atRest reports whether nobody has the row in hand.
func (s *claims) atRest() bool {
	for i := range s.p {
		if s.p[i].phase != emptyHanded || s.p[i].conn.errand != noErrand {
			return false
		}
	}
	return true
}

// swept reports whether a process is a sweep.
func (w *claimWorld) swept(i int) bool { return w.sweep && i == 1 }

// world adds time, the servers, the user and the seats.
func (w *claimWorld) world(s *claims) {
	if w.mayPass(s) {
		w.emit(s, nobody, "time passes", true, func(t *claims) string { w.pass(t); return "" })
	}
	if s.stalled {
		w.emit(s, nobody, "the server takes writes again", true, func(t *claims) string { t.stalled = false; return "" })
	} else if s.left.stalls > 0 {
		w.emit(s, nobody, "the server takes no writes for a while", false, func(t *claims) string { t.left.stalls--; t.stalled = true; return "" })
	}
	if s.left.failovers > 0 && !s.behind && !s.stalled {
		w.emit(s, nobody, "the replica falls behind", false, func(t *claims) string {
			t.left.failovers--
			t.behind, t.replica, t.behindAge = true, t.tables, 0
			return ""
		})
	}
	if s.behind {
		w.emit(s, nobody, "the replica becomes the primary", false, func(t *claims) string { t.failOver(); return "" })
	}
	w.user(s)
	w.seat(s)
}

// mayPass reports whether a tick may end: who is well has beaten, and nobody is between a check and its call.
func (w *claimWorld) mayPass(s *claims) bool {
	for i := range s.p {
		p := &s.p[i]
		kept := p.frozen || p.away || p.gone || s.stalled || p.session == 0 || p.beaten || p.beat != noBeat
		if !kept || p.phase == rowChecked && !p.frozen {
			return false
		}
	}
	return true
}

// pass ends a tick.
func (w *claimWorld) pass(t *claims) {
	t.row.action = max(t.row.action-1, -1)
	if t.behind {
		t.replica.row.action = max(t.replica.row.action-1, -1)
		t.behindAge++
		t.behind = t.behindAge < 2
	}
	for i := range t.p {
		p := &t.p[i]
		p.gapped = p.gapped || t.stalled // a stall over the end of a tick is longer than a beat may be late
		for k := range p.notes {
			w.age(p, &p.notes[k])
		}
		p.gapped = t.stalled
		p.beaten, p.read = false, false
		if p.phase == rowHeld || p.phase == rowRunning || p.phase == rowChecked {
			p.action = max(p.action-1, -1)
		}
		if !p.paused {
			p.trust = min(p.trust+1, untrusted)
		}
		if p.beat != noBeat {
			p.beatAge = min(p.beatAge+1, untrusted)
		}
	}
}

// age ends a tick for what a process has noted of a session.
func (w *claimWorld) age(p *claimer, x *beatNote) {
	if x.id == 0 {
		return
	}
	if !p.read && !w.off[EndsWithoutGaps] || (!p.beaten || p.gapped) && !w.off[EndsWhileBeating] {
		*x = beatNote{}
		return
	}
	x.age = min(x.age+1, standstill)
}

// failOver makes the replica the primary; what was not replicated is lost, and all connections are cut.
func (s *claims) failOver() {
	s.tables, s.behind = s.replica, false
	s.row.excused = true
	for i := range s.p {
		p := &s.p[i]
		p.conn, p.beat, p.beatAge = connection{}, noBeat, 0
		p.former = !p.gone
		p.moved = p.phase != emptyHanded
		p.excused = p.excused || p.phase != emptyHanded
	}
}

// seat adds the change of the first member.
func (w *claimWorld) seat(s *claims) {
	other := 1 - s.first
	if w.one || w.sweep || s.p[other].silent() {
		return
	}
	passed := s.p[s.first].silent() && !w.off[SilentPassedOver]
	if !passed && s.left.seats == 0 {
		return
	}
	w.emit(s, int(other), "is first now", passed, func(t *claims) string {
		if t.first = other; !passed {
			t.left.seats--
		}
		return ""
	})
}

// silent reports whether a process is not heard.
func (p *claimer) silent() bool { return p.frozen || p.away || p.gone || p.leaving }

// alone reports whether no process lives that could do what a silent one does not.
func (w *claimWorld) alone(s *claims, of func(*claimer) bool) bool {
	for i := range s.p {
		if !of(&s.p[i]) && !(w.one && i == 1) {
			return false
		}
	}
	return true
}

// process adds the steps of a process.
func (w *claimWorld) process(s *claims, i int) {
	p := &s.p[i]
	if p.beat == sent && !s.stalled {
		w.emit(s, i, "'s slow beat reaches the server", true, func(t *claims) string {
			q := &t.p[i]
			q.beat = missed
			if x := t.find(q.session); x != nil {
				x.beat, q.beat = t.fresh(), hit
			}
			return ""
		})
	}
	switch {
	case p.gone:
		w.emit(s, i, "is started", true, func(t *claims) string { t.p[i] = claimer{trust: untrusted, conn: t.p[i].conn}; return "" })
		return
	case p.frozen:
		w.emit(s, i, "is continued", w.alone(s, func(p *claimer) bool { return p.frozen }), func(t *claims) string {
			q := &t.p[i]
			q.blind = q.paused && q.trust <= trusted
			q.frozen, q.paused = false, false
			return ""
		})
		w.kill(s, i)
		return
	case p.away:
		w.emit(s, i, "reaches the server again", w.alone(s, func(p *claimer) bool { return p.away || p.frozen }),
			func(t *claims) string { t.p[i].away = false; return "" })
	case p.former:
		w.emit(s, i, "sees that another server answers", true, func(t *claims) string { return w.arrive(t, i) })
	default:
		w.beats(s, i)
		w.judge(s, i)
	}
	w.hand(s, i)
	w.faults(s, i)
}

// arrive is what a process does when another server answers.
func (w *claimWorld) arrive(t *claims, i int) string {
	q := &t.p[i]
	q.former, q.beaten, q.read = false, false, false
	q.looks = !w.off[OwnAfterMove]
	if !w.off[MoveRestartsNotes] {
		q.notes = [mostSession]beatNote{}
	}
	if w.off[MoveEndsTrust] {
		return ""
	}
	q.trust, q.blind = untrusted, false
	if q.phase == rowHeld || q.phase == rowChecked {
		q.phase = rowGiving
	}
	return ""
}

// rest ends what a process has in hand.
func (p *claimer) rest() {
	p.phase, p.fails, p.token, p.of, p.version, p.action = emptyHanded, false, 0, 0, 0, 0
	p.gap, p.moved, p.excused, p.again = false, false, false, false
}

// faults adds what may go wrong with a process.
func (w *claimWorld) faults(s *claims, i int) {
	p := &s.p[i]
	w.kill(s, i)
	if s.left.leaves > 0 && !w.swept(i) && !p.leaving {
		w.emit(s, i, "is told to stop", false, func(t *claims) string {
			t.left.leaves--
			t.p[i].leaving = true
			if q := &t.p[i]; q.phase == rowHeld || q.phase == rowChecked {
				q.phase = rowGiving
			}
			return ""
		})
	}
	if s.left.faults == 0 {
		return
	}
	stop := func(what string, change func(*claimer)) {
		w.emit(s, i, what, false, func(t *claims) string {
			t.left.faults--
			q := &t.p[i]
			q.hurt = true
			t.excuse(i)
			change(q)
			return ""
		})
	}
	if w.freezes {
		stop("is stopped", func(q *claimer) { q.frozen, q.gap = true, q.gap || q.phase == rowChecked })
	}
	if w.pauses {
		stop("is stopped, with its clocks", func(q *claimer) { q.frozen, q.paused, q.gap = true, true, q.gap || q.phase == rowChecked })
	}
	if w.cuts && !p.away {
		stop("can't reach the server", func(q *claimer) { q.away = true })
	}
}

// kill adds a kill -9, after which the process is started again, or the next sweep later.
func (w *claimWorld) kill(s *claims, i int) {
	if s.left.faults == 0 || !w.kills {
		return
	}
	w.emit(s, i, "is killed", false, func(t *claims) string {
		t.left.faults--
		t.excuse(i)
		for _, d := range []*tables{&t.tables, &t.replica} {
			if x := d.find(t.p[i].session); x != nil {
				x.owner = 0
			}
		}
		t.p[i] = claimer{trust: untrusted, conn: t.p[i].conn, gone: true}
		return ""
	})
}

// excuse notes for the checks that a process was stopped or cut off with the row in hand.
func (s *claims) excuse(i int) {
	if p := &s.p[i]; p.phase != emptyHanded || p.conn.errand != noErrand {
		s.row.excused, p.excused = true, p.phase != emptyHanded
		p.conn.hurt = p.conn.errand != noErrand
	}
}

// call starts the handler.
func (w *claimWorld) call(t *claims, i int) string {
	p := &t.p[i]
	r := &t.row
	p.phase = rowRunning
	unseen := p.gap || p.blind || p.former
	same := r.version == p.version
	switch {
	case p.action > 0:
		return "EARLY: a delivery begins before its time"
	case p.moved && !unseen:
		return "a delivery begins of what was claimed at a former server"
	case t.find(p.of) == nil && !unseen:
		return fmt.Sprintf("a delivery begins under session S%d, which has ended, though nothing stood still since the check", p.of)
	case same && (r.status == pending || r.status == claimed && r.token != p.token) && !unseen && !p.again:
		return "a delivery begins though its claim is gone, and nothing stood still since the check"
	case !same || r.status != claimed && r.status != pending:
		return ""
	}
	r.excused = r.excused || p.excused || unseen
	if r.started && !r.excused {
		return "a second delivery, and nobody was killed, frozen or cut off"
	}
	r.started = true
	return ""
}
