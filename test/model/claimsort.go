package model

// naming gives sessions, tokens and beats new numbers, in the order in which it meets them.
type naming struct {
	to   [256]uint8
	last uint8
}

func (n *naming) name(all ...*uint8) {
	for _, x := range all {
		if *x == 0 {
			continue
		}
		if n.to[*x] == 0 {
			n.last++
			n.to[*x] = n.last
		}
		*x = n.to[*x]
	}
}

// sort puts processes that are alike into one order, and renames sessions, tokens and beats.
func (w *claimWorld) sort(s *claims) {
	if !w.one && !w.sweep && s.number(1) < s.number(0) {
		s.swap()
	}
	if !s.behind {
		s.replica, s.behindAge = tables{}, 0
	}
	var n naming
	for i := range s.p {
		p := &s.p[i]
		n.name(&p.session, &p.of, &p.token, &p.conn.session, &p.conn.token, &p.owes)
	}
	for _, d := range []*tables{&s.tables, &s.replica} {
		n.name(&d.row.session, &d.row.token)
		d.sort(&n)
	}
	for _, d := range []*tables{&s.tables, &s.replica} {
		for i := range d.sessions {
			n.name(&d.sessions[i].beat)
		}
	}
	for i := range s.p {
		s.p[i].rename(&n)
	}
	s.renamed = n.last
}

// number orders processes by what is not a name.
func (s *claims) number(i int) uint64 {
	p := &s.p[i]
	return uint64(p.phase)<<48 | uint64(p.beat)<<44 | uint64(p.beatAge)<<40 | uint64(p.trust)<<36 | uint64(p.conn.errand)<<32 |
		uint64(p.version)<<28 | uint64(p.action+1)<<24 |
		uint64(p.notes[0].age)<<22 | bits(s.first == uint8(i), s.find(p.session) != nil, s.row.token != 0 && s.row.token == p.token, p.gapped, p.conn.hurt, p.session != 0, p.beaten, p.read, p.frozen, p.paused, p.blind, p.away, p.gone, p.leaving, p.former, p.fails, p.looks,
		p.hurt, p.gap, p.moved, p.excused, p.again)
}

// swap lets the processes change places.
func (s *claims) swap() {
	s.p[0], s.p[1] = s.p[1], s.p[0]
	s.first = 1 - s.first
	for _, d := range []*tables{&s.tables, &s.replica} {
		for i := range d.sessions {
			if x := &d.sessions[i]; x.owner != 0 {
				x.owner = 3 - x.owner
			}
		}
	}
}

// sort orders the rows of the session table: those with names first, then by owner.
func (d *tables) sort(n *naming) {
	for i := range d.sessions {
		if d.sessions[i].id == 0 {
			d.sessions[i] = sessionRow{}
		}
		for k := i; k > 0 && d.sessions[k].before(d.sessions[k-1], n); k-- {
			d.sessions[k], d.sessions[k-1] = d.sessions[k-1], d.sessions[k]
		}
	}
	for i := range d.sessions {
		n.name(&d.sessions[i].id)
	}
}

// before reports whether a row stands before another.
func (r sessionRow) before(other sessionRow, n *naming) bool {
	if r.id == 0 || other.id == 0 {
		return r.id != 0 && other.id == 0
	}
	a, b := n.to[r.id], n.to[other.id]
	switch {
	case (a == 0) != (b == 0):
		return b == 0
	case a != b:
		return a < b
	case r.owner != other.owner:
		return r.owner < other.owner
	}
	return r.id < other.id
}

// rename drops notes of sessions that are in no table and in nobody's hand, and sorts the others.
func (p *claimer) rename(n *naming) {
	for i := range p.notes {
		x := &p.notes[i]
		if x.id == 0 || n.to[x.id] == 0 {
			*x = beatNote{}
			continue
		}
		x.id = n.to[x.id]
		if x.beat = n.to[x.beat]; x.beat == 0 {
			x.beat = 255 // only said to be another one
		}
		for k := i; k > 0 && p.notes[k].id != 0 && (p.notes[k-1].id == 0 || p.notes[k].id < p.notes[k-1].id); k-- {
			p.notes[k], p.notes[k-1] = p.notes[k-1], p.notes[k]
		}
	}
}

// find returns the row of a session, or nil.
func (d *tables) find(id uint8) *sessionRow {
	for i := range d.sessions {
		if id != 0 && d.sessions[i].id == id {
			return &d.sessions[i]
		}
	}
	return nil
}

// insert adds a session, if its id is new and there is room.
func (d *tables) insert(x sessionRow) bool {
	if d.find(x.id) != nil {
		return false
	}
	for i := range d.sessions {
		if d.sessions[i].id == 0 {
			d.sessions[i] = x
			return true
		}
	}
	return false
}

// fresh returns a number that nothing else has.
func (s *claims) fresh() uint8 { s.renamed++; return s.renamed }
