package model

// actor gives the steps of one process that runs.
func (m *machine) actor(s *state, i int) {
	if m.cast.Roles[i] == Node {
		m.ownership(s, i)
	}
	switch s.actors[i].phase {
	case idle:
		m.looks(s, i)
	case peeked:
		m.emit(s, i, "loads what it peeked", true, func(t *state) string { return m.loadsPeeked(t, i) })
	case loaded:
		m.fromLoaded(s, i)
	case unsure:
		m.emit(s, i, "reads its claim back", true, func(t *state) string { return m.readsBack(t, i) })
	case inClaim:
		m.fromClaim(s, i)
	case checked:
		m.emit(s, i, "starts the delivery", true, func(t *state) string { return m.starts(t, i) })
	case delivering:
		m.delivers(s, i)
	case ended:
		m.settles(s, i)
	}
}

// to enters a phase, and forgets what mattered in the one before alone.
func (a *actor) to(p phase) {
	a.phase, a.timer, a.wants = p, 0, false
	if p == checked {
		a.found = 0
	}
	if p >= delivering {
		a.cause, a.gap = false, false
	}
}

// ownership: nodes take, give up and release the table.
func (m *machine) ownership(s *state, i int) {
	a := &s.actors[i]
	free := s.owner == 0 || s.actors[s.owner-1].frozen
	switch {
	case !s.owns(i) && free:
		m.emit(s, i, "takes the table", true, func(t *state) string { t.take(i); return "" })
	case !s.owns(i):
	case !a.leaving && s.left.handOvers > 0:
		m.emit(s, i, "gives the table up", false, func(t *state) string { t.handOver(i); return "" })
	case !a.leaving:
	case !a.unsettled() || m.rules.off[HandOver]:
		m.emit(s, i, "releases the table", true, func(t *state) string { t.owner, t.actors[i].leaving = 0, false; return "" })
	}
}

// handOver forgets what is loaded and not started.
func (s *state) handOver(i int) {
	s.left.handOvers--
	if s.actors[i].phase == loaded {
		s.actors[i].rest()
	}
	s.actors[i].leaving = true
}

// take makes a node the owner. What it loaded under an earlier lease is forgotten.
func (s *state) take(i int) {
	if s.owner > 0 {
		s.actors[s.owner-1].leaving = false
	}
	if s.actors[i].phase == loaded {
		s.actors[i].rest()
	}
	s.owner, s.fence = uint8(i+1), uint8(i+1)
}

// looks: an owner, or a claimer, loads what is due; a sweeper peeks what is overdue.
func (m *machine) looks(s *state, i int) {
	switch {
	case m.cast.Roles[i] == Sweeper:
		m.peeks(s, i)
	case m.cast.Roles[i] == Claimer, s.owns(i) && !s.actors[i].leaving, !s.owns(i) && int(s.fence) == i+1:
		if m.loadable(&s.row) {
			m.emit(s, i, "loads the row", true, func(t *state) string { return m.loads(t, i) })
		}
	}
}

// overdue reports whether a sweeper may look at the row; without the guard it may look at whatever is due.
func (m *machine) overdue(r *row, guard Guard) bool {
	return -r.action >= grace || m.rules.off[guard] && r.action <= 0
}

func (m *machine) peeks(s *state, i int) {
	if s.row.status != pending || !m.overdue(&s.row, SweepGrace) {
		return
	}
	m.emit(s, i, "peeks the row", true, func(t *state) string {
		t.actors[i] = actor{phase: peeked}
		return ""
	})
}

// loadable reports whether a load gives the row and takes it as due.
func (m *machine) loadable(r *row) bool {
	return m.rules.allow(Load, r, &params{}) && (r.action <= 0 || m.rules.off[LoadDue])
}

func (m *machine) loadsPeeked(s *state, i int) string {
	if !m.loadable(&s.row) || !m.overdue(&s.row, SweepGraceYet) {
		s.actors[i].rest()
		return ""
	}
	return m.loads(s, i)
}

func (m *machine) loads(s *state, i int) string {
	r := &s.row
	s.actors[i] = actor{
		phase: loaded, leaving: s.actors[i].leaving, wants: m.mustClaim(s, i),
		version: r.version, attempts: r.attempts, at: max(r.action, past), same: true, fresh: true,
	}
	if r.status == cancelled {
		return "a task cancelled before it is loaded goes on to its delivery"
	}
	return ""
}

// mustClaim decides by who reads the row whether it is claimed before it starts.
func (m *machine) mustClaim(s *state, i int) bool {
	overdue := -s.row.action >= claimAfter && !m.rules.off[ClaimFirst]
	strict := m.cast.Strict && !m.rules.off[ClaimStrict]
	return !s.owns(i) || strict || overdue || s.row.crashes > 0
}

// fromLoaded claims the row or starts it without; what may not start any more is forgotten, to be found again.
func (m *machine) fromLoaded(s *state, i int) {
	a := &s.actors[i]
	off := &m.rules.off
	leased := s.owns(i) && !a.leaving || off[StartLeased]
	switch {
	case a.wants && m.fenced(s, i):
		m.claims(s, i)
	case !a.wants && leased && (a.timer <= stale || off[StartFresh]):
		m.emit(s, i, "checks that it may start the row unclaimed", true, func(t *state) string { t.actors[i].to(checked); return "" })
	default:
		m.emit(s, i, "forgets the row", true, func(t *state) string { t.actors[i].rest(); return "" })
	}
}

// fenced reports whether a claim passes the fence; sweepers and claimers have none.
func (m *machine) fenced(s *state, i int) bool {
	return m.cast.Roles[i] != Node || s.owns(i) || int(s.fence) == i+1 || m.rules.off[ClaimFenced]
}

func (m *machine) claims(s *state, i int) {
	p := params{by: i, same: s.actors[i].same, found: m.cast.Roles[i] == Sweeper}
	found := int8(0)
	if p.found {
		found = s.row.action - 1
	}
	m.emit(s, i, "claims the row", true, func(t *state) string {
		hit, bad := m.write(t, Claim, p)
		a := &t.actors[i]
		if !hit {
			a.rest()
			return ""
		}
		a.to(inClaim)
		a.held, a.at, a.same, a.fresh, a.behind, a.found = true, hold, true, true, false, found
		a.version, a.attempts = t.row.version, t.row.attempts
		return bad
	})
	m.losesClaim(s, i, p, func(t *state, written bool) {
		a := &t.actors[i]
		a.to(unsure)
		a.at, a.same, a.fresh, a.behind, a.found = hold, written, true, false, found
		a.version, a.attempts = t.row.version, t.row.attempts
	})
}

// losesClaim is a claim whose commit gets no answer, whether it was written or not.
func (m *machine) losesClaim(s *state, i int, p params, then func(t *state, written bool)) {
	if s.left.faults == 0 || !m.rules.allow(Claim, &s.row, &p) {
		return
	}
	m.emit(s, i, "claims the row, but does not hear of it", false, func(t *state) string {
		t.left.faults--
		_, bad := m.write(t, Claim, p)
		then(t, true)
		return bad
	})
	m.emit(s, i, "claims the row in vain, and does not hear of it", false, func(t *state) string {
		t.left.faults--
		then(t, false)
		return ""
	})
}

// readsBack goes on with a claim that stands, which keeps its age, and forgets the row otherwise.
func (m *machine) readsBack(s *state, i int) string {
	a := &s.actors[i]
	if m.rules.allow(ReadBack, &s.row, &params{by: i, same: a.same}) && !m.rules.off[AskAgain] {
		a.phase, a.held, a.away = inClaim, true, false
		return ""
	}
	bad := m.leaves(s, i)
	a.rest()
	return bad
}

// leaves returns what is wrong with forgetting the row now.
func (m *machine) leaves(s *state, i int) string {
	if s.row.status == claimed && int(s.row.claimant) == i+1 {
		return ownClaimLeft
	}
	return ""
}

// fromClaim starts a claimed row in time, or gives it back.
func (m *machine) fromClaim(s *state, i int) {
	if s.actors[i].timer < margin || m.rules.off[StartInClaim] {
		m.emit(s, i, "checks that its claim lasts", true, func(t *state) string { t.begins(i); return "" })
	}
	m.emit(s, i, "decides to give the row back", true, func(t *state) string { t.actors[i].ends(giveBack); return "" })
}

// begins marks a claimed row as begun, so that it is no longer given back as it was found.
func (s *state) begins(i int) {
	s.actors[i].to(checked)
	for j := range s.actors {
		s.actors[j].again = false
	}
}

func (m *machine) starts(s *state, i int) string {
	bad := m.started(s, i)
	s.actors[i].to(delivering)
	return bad
}

// ends has an outcome.
func (a *actor) ends(v verb) {
	if v == retry && a.attempts+1 >= maxAttempts {
		v = giveUp
	}
	a.to(ended)
	a.verb = v
}

var endings = [...]struct {
	verb verb
	what string
}{
	{success, "succeeds"},
	{retry, "fails: again at once"},
	{snooze, "snoozes for a tick"},
	{giveUp, "fails for good"},
}

func (m *machine) delivers(s *state, i int) {
	a := &s.actors[i]
	for _, e := range endings {
		m.emit(s, i, e.what, e.verb == success, func(t *state) string { t.actors[i].ends(e.verb); return "" })
	}
	if m.cast.Late && s.late == 0 && a.timer >= timeout {
		m.emit(s, i, "times out while its handler goes on", false, func(t *state) string {
			t.late = a.version + 1
			t.actors[i].ends(retry)
			return ""
		})
	}
	if m.cast.InTx && m.rules.allow(Complete, &s.row, &params{version: a.version}) {
		m.emit(s, i, "completes in its own transaction", true, func(t *state) string {
			_, bad := m.write(t, Complete, params{by: i, version: a.version})
			return bad
		})
	}
	if a.leaving && !a.held && !a.foreign {
		m.handsOver(s, i)
	}
}

// handsOver claims what is in delivery. What it can't get is another's.
func (m *machine) handsOver(s *state, i int) {
	p := params{by: i, version: s.actors[i].version, same: s.actors[i].same}
	m.emit(s, i, "claims what it has in delivery", true, func(t *state) string {
		hit, bad := m.write(t, Claim, p)
		a := &t.actors[i]
		if a.foreign = !hit; hit {
			a.held, a.at, a.same, a.doubts = true, hold, true, false
		}
		return bad
	})
	if a := &s.actors[i]; a.doubts {
		m.emit(s, i, "reads back the claim of what it has in delivery", true, func(t *state) string {
			a := &t.actors[i]
			if m.rules.allow(ReadBack, &t.row, &params{by: i, same: a.stands}) {
				a.held, a.at, a.same = true, hold, true
			}
			a.doubts, a.stands = false, false
			return ""
		})
		return
	}
	m.losesClaim(s, i, p, func(t *state, written bool) {
		a := &t.actors[i]
		a.doubts, a.stands = true, written
	})
}

// ownClaimLeft is the promise that a crash is counted for crashes alone.
const ownClaimLeft = "a process that lives leaves its own claim to run out"

// outcomes says how each verb is written.
var outcomes = [...]struct {
	write Write
	next  int8
}{
	success:  {Complete, 0},
	retry:    {Retry, 0},
	snooze:   {Snooze, 1},
	giveUp:   {Bury, 0},
	giveBack: {Snooze, 0},
}

func (m *machine) settles(s *state, i int) {
	a := &s.actors[i]
	o := outcomes[a.verb]
	p := params{by: i, version: a.version, attempts: a.attempts, held: a.held, same: a.same, next: o.next}
	if a.doubts && !m.rules.allow(o.write, &s.row, &p) {
		p.held, p.same = true, a.stands // once more, as the outcome of a claim
	}
	if a.found < 0 { // a node gives it back as due now
		p.next, p.found = a.found+1, true
	}
	what := o.write.String() + ": stored"
	if !m.rules.allow(o.write, &s.row, &p) {
		what = o.write.String() + ": the row is another's"
	}
	m.emit(s, i, what, true, func(t *state) string {
		hit, bad := m.write(t, o.write, p)
		if !hit {
			bad = m.leaves(t, i)
		}
		t.abandon(i)
		t.actors[i].rest()
		return bad
	})
	if s.left.faults > 0 && m.rules.allow(o.write, &s.row, &p) {
		m.emit(s, i, o.write.String()+": stored, but it does not hear of it", false, func(t *state) string {
			t.left.faults--
			_, bad := m.write(t, o.write, p)
			return bad
		})
	}
}
