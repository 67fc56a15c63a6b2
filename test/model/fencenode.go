package model

// node adds the steps of one node.
func (w *fenceWorld) node(s *fences, i int) {
	n := &s.nodes[i]
	if n.behind.node != 0 {
		w.emit(s, i, "writes the owner row of its former life", true, func(t *fences) string {
			row := t.nodes[i].behind
			t.nodes[i].behind = ownerRow{}
			return w.write(t, row)
		})
	}
	if n.stage == member {
		w.comes(s, i)
	} else if do := alone[n.stage]; do.step != nil {
		w.emit(s, i, do.what, w.progress(n), func(t *fences) string { return do.step(w, t, i) })
	}
	if n.stage == absent && s.left.unread > 0 {
		w.emit(s, i, "can't read the table's owner row", false, func(t *fences) string {
			t.left.unread--
			n := &t.nodes[i]
			n.stage, n.seen, n.known = reading, revision{}, false
			return ""
		})
	}
	if n.stage == acting && s.left.handOvers > 0 {
		w.emit(s, i, "gives the table up", false, func(t *fences) string {
			t.left.handOvers--
			t.nodes[i].stage = member
			t.release(i)
			return ""
		})
	}
	w.leases(s, i)
}

// progress reports whether a node's step happens by itself sooner or later. It does not count on an etcd that has
// forgotten reaching the revision of an owner row: that may take years.
func (w *fenceWorld) progress(n *fenceNode) bool {
	switch n.stage {
	case late:
		return !w.off[EpochProven]
	case claiming:
		return n.behind.node == 0
	}
	return true
}

// alone lists what a node does by itself in each stage.
var alone = [...]struct {
	what string
	step func(*fenceWorld, *fences, int) string
}{
	absent:    {"reads the owner rows", (*fenceWorld).reads},
	reading:   {"gets a lease and looks at the epoch", (*fenceWorld).checks},
	reserving: {"reserves an epoch", (*fenceWorld).reserves},
	ready:     {"registers", (*fenceWorld).registers},
	taking:    {"writes its owner row", (*fenceWorld).writes},
	late:      {"reads the owner rows, as it was overtaken", (*fenceWorld).rereads},
	proving:   {"looks whether its key stands, and gives it back", (*fenceWorld).proves},
	claiming:  {"begins a new life", (*fenceWorld).reborn},
}

// reads: the owner rows are read before etcd is.
func (w *fenceWorld) reads(s *fences, i int) string {
	n := &s.nodes[i]
	n.stage, n.seen = reading, s.row.revision
	n.known = n.seen != revision{}
	return ""
}

// checks reads the epoch. Since the node got its lease before, all later steps belong to this life of etcd.
func (w *fenceWorld) checks(s *fences, i int) string {
	n := &s.nodes[i]
	missing := s.epoch == 0 && !w.off[EpochMissing]
	ahead := w.higher(n.seen, revision{s.epoch, s.now}) && !w.off[EpochAhead]
	n.stage, n.life, n.was = ready, s.life, s.epochAt
	if missing || ahead {
		n.stage = reserving
	}
	return ""
}

// reserves takes an epoch above those of the owner rows and above all reserved ones, in one write to MySQL.
func (w *fenceWorld) reserves(s *fences, i int) string {
	n := &s.nodes[i]
	n.wants = n.seen.epoch + 1
	if !w.off[EpochReserved] {
		n.known = n.known || s.reserved > 0
		n.wants = max(n.wants, s.reserved+1)
		s.reserved = n.wants
	}
	n.stage = ready
	if n.trusts {
		n.stage = proving
	}
	return ""
}

// registers is one transaction, which begins the epoch too. Its conditions: the lease lives, and the epoch is as read.
func (w *fenceWorld) registers(s *fences, i int) string {
	n := &s.nodes[i]
	same := n.life == s.life && n.was == s.epochAt || w.off[EpochChecked]
	if same && n.wants > 0 {
		s.begin(n.wants, n.known && !w.off[Settle])
	}
	*n = fenceNode{behind: n.behind}
	if same {
		n.stage, n.trusts, n.life = member, true, s.life
	}
	return ""
}

// begin begins an epoch.
func (s *fences) begin(epoch uint8, settle bool) {
	s.now++
	s.epoch, s.epochAt = epoch, s.now
	s.settles = s.settles || settle
}

// comes creates the table's key, or starts on the table when its view shows the key.
func (w *fenceWorld) comes(s *fences, i int) {
	n := &s.nodes[i]
	switch {
	case n.life != s.life:
	case s.key.node == 0:
		w.emit(s, i, "creates the table's key", true, func(t *fences) string {
			t.now++
			t.born++
			t.key = ownerKey{node: uint8(i + 1), created: t.now, born: t.born}
			t.nodes[i].key = t.key
			return ""
		})
	case s.key == n.key && !s.settles:
		w.emit(s, i, "sends its owner row", true, func(t *fences) string {
			n := &t.nodes[i]
			n.stage = taking
			n.row = ownerRow{node: uint8(i + 1), revision: revision{t.epoch, n.key.created}, born: n.key.born}
			return ""
		})
	}
}

// writes receives the answer to the node's write. The node starts to work only if the row names it.
func (w *fenceWorld) writes(s *fences, i int) string {
	n := &s.nodes[i]
	bad := w.write(s, n.row)
	n.stage, n.row = acting, ownerRow{}
	if s.row.born != n.key.born {
		n.stage = late
	}
	return bad
}

// rereads reads the row again, as it may have changed since.
func (w *fenceWorld) rereads(s *fences, i int) string {
	n := &s.nodes[i]
	n.stage, n.seen, n.was = reserving, s.row.revision, s.epochAt
	if w.off[EpochProven] {
		w.giveBack(s, i)
	}
	return ""
}

// proves is one transaction: an overtaken node whose key still stands has proof that etcd has forgotten.
func (w *fenceWorld) proves(s *fences, i int) string {
	n := &s.nodes[i]
	stands := n.life == s.life && s.key == n.key
	if n.was == s.epochAt && stands {
		s.begin(n.wants, !w.off[Settle])
	}
	w.giveBack(s, i)
	return ""
}

// giveBack gives up the key of a table that could not be started.
func (w *fenceWorld) giveBack(s *fences, i int) {
	s.release(i)
	n := &s.nodes[i]
	n.stage, n.seen, n.was, n.wants = member, revision{}, 0, 0
}

// release deletes the node's key, if it exists.
func (s *fences) release(i int) {
	if s.key == s.nodes[i].key {
		s.key = ownerKey{}
	}
	s.nodes[i].key = ownerKey{}
}

// leases ends leases: a node that can't renew stops trusting its lease; then etcd ends it. A lease that etcd does not
// know is always lost.
func (w *fenceWorld) leases(s *fences, i int) {
	n := &s.nodes[i]
	if n.trusts && (n.life != s.life || s.left.losses > 0) {
		w.emit(s, i, "can't prove its lease", n.life != s.life, func(t *fences) string {
			n := &t.nodes[i]
			if n.life == t.life {
				t.left.losses--
			}
			behind := n.behind
			if n.stage == taking { // what was sent may still arrive at any time
				behind = n.row
			}
			*n = fenceNode{stage: claiming, life: n.life, key: n.key, behind: behind}
			return ""
		})
	}
	if n.stage == claiming && n.life == s.life && s.key == n.key && s.key.node != 0 {
		w.emit(s, i, "loses its key", true, func(t *fences) string { t.key = ownerKey{}; return "" })
	}
}

// reborn registers as another node, since its former lease has ended.
func (w *fenceWorld) reborn(s *fences, i int) string {
	if s.nodes[i].life == s.life {
		s.release(i)
	}
	s.nodes[i] = fenceNode{behind: s.nodes[i].behind}
	return ""
}
