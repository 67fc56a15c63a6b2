package model

// relay adds the steps of one relay.
func (w *outboxWorld) relay(s *outboxes, r int) {
	m := &s.relays[r]
	w.emit(s, r, "crashes", false, func(t *outboxes) string { t.relays[r] = w.anew(); return "" })
	if m.stage != works {
		w.begin(s, r)
		return
	}
	w.polls(s, r)
	for h := range w.wishes {
		if w.mayMove(m, h) {
			w.move(s, r, h)
		}
	}
	if m.done != 0 {
		w.deletes(s, r)
	}
	if m.refused != 0 {
		w.emit(s, r, "sets aside what was refused", true, func(t *outboxes) string { return t.setAside(r) })
	}
	if m.aside != 0 && m.refused == 0 {
		w.emit(s, r, "reads again what is aside", true, func(t *outboxes) string { return w.again(t, r) })
	}
	w.whole(s, r)
}

// whole adds what follows when a relay reads all ids.
func (w *outboxWorld) whole(s *outboxes, r int) {
	m := &s.relays[r]
	reused := s.reused(m)
	switch {
	case reused && !w.off[Whole]:
		w.void(s, r, "reads all ids, finds one that it knows, and begins anew", w.anew().stage)
	case reused && w.notes:
	default:
		w.emit(s, r, "closes gaps", true, func(t *outboxes) string { return w.closeGaps(t, r) })
	}
	if w.notes {
		w.writeNotes(s, r)
	}
}

// polls adds the ways in which a poll may go: it reads what is in the gaps of the known ids and above them, or the first
// of it, if there is much.
func (w *outboxWorld) polls(s *outboxes, r int) {
	var found []int
	for id := uint8(1); id < s.next; id++ {
		if h := w.holder(s, id); h >= 0 && w.polled(&s.relays[r], id) {
			found = append(found, h)
		}
	}
	read := func(what string, rows []int) {
		w.emit(s, r, what, true, func(t *outboxes) string {
			for _, h := range rows {
				w.takes(t, r, h)
			}
			return ""
		})
	}
	if len(found) == 0 {
		return
	}
	read("polls", found)
	if len(found) > 1 {
		read("polls, and takes the first row", found[:1])
		if w.off[Snapshot] { // the first was read before, and was not there
			read("polls, and sees the last row only", found[len(found)-1:])
		}
	}
}

// holder returns the row that a poll sees under an id; -1: none.
func (w *outboxWorld) holder(s *outboxes, id uint8) int {
	h := s.at(id)
	if h >= 0 && s.rows[h].stage == open && !w.off[CommittedOnly] {
		return -1
	}
	return h
}

// polled reports whether a poll reads an id.
func (w *outboxWorld) polled(m *memory, id uint8) bool {
	if w.off[Gaps] {
		return m.known>>id == 0
	}
	return !m.known.has(int(id))
}

// hand returns the ids of rows in memory.
func (s *outboxes) hand(m *memory) (ids set) {
	for h := range s.rows {
		if (m.queue | m.done).has(h) {
			ids.put(int(s.rows[h].id))
		}
	}
	return ids
}

// takes gives a row that was read its place.
func (w *outboxWorld) takes(s *outboxes, r, h int) {
	m, row := &s.relays[r], &s.rows[h]
	id, biz := int(row.id), int(w.wishes[h].biz-'A')
	m.known.put(id)
	switch {
	case s.hand(m).has(id):
	case row.aside:
		w.blocks(s, r, h)
	case m.blocked.has(biz):
		m.aside.put(id)
	default:
		m.queue.put(h)
		m.old.take(h)
	}
}

// blocks leaves a row in the outbox, and so what is in the queue of its biz_id.
func (w *outboxWorld) blocks(s *outboxes, r, h int) {
	m := &s.relays[r]
	m.aside.put(int(s.rows[h].id))
	m.queue.take(h)
	m.old.take(h)
	if w.off[Aside] {
		return
	}
	m.blocked.put(int(w.wishes[h].biz - 'A'))
	for k := range w.wishes {
		if m.queue.has(k) && w.wishes[k].biz == w.wishes[h].biz {
			m.aside.put(int(s.rows[k].id))
			m.queue.take(k)
			m.old.take(k)
		}
	}
}

// mayMove reports whether a row may be moved now: of one biz_id adds alone, in any order, or one other row.
func (w *outboxWorld) mayMove(m *memory, h int) bool {
	for k := range h {
		adds := w.wishes[k].op == add && w.wishes[h].op == add
		if m.queue.has(k) && w.wishes[k].biz == w.wishes[h].biz && !adds {
			return false
		}
	}
	return m.queue.has(h)
}

// move adds the ways in which a move may go.
func (w *outboxWorld) move(s *outboxes, r, h int) {
	m, name := &s.relays[r], w.names[h]
	switch {
	case m.old.has(h) && !w.off[Fresh]:
		w.emit(s, r, "has read "+name+" too long ago to move it", true, func(t *outboxes) string { return w.unreads(t, r, h) })
		return
	case w.noted(s, h):
		w.emit(s, r, "finds "+name+" in the ledger", true, func(t *outboxes) string { return t.isDone(r, h) })
		return
	case w.wishes[h].unknown && !s.applied:
		w.emit(s, r, "can't move "+name+", whose biz type is unknown", true, func(t *outboxes) string {
			w.blocks(t, r, h)
			t.relays[r].refused.put(h)
			return ""
		})
		return
	}
	t := *s
	busy, bad := w.apply(&t, h)
	moved := func(what string, progress, heard bool) {
		w.emit(&t, r, what, progress, func(t *outboxes) string {
			if heard && !busy {
				t.isDone(r, h)
			} else {
				w.blocks(t, r, h)
			}
			return bad
		})
	}
	if busy {
		moved("meets a delivery with "+name, true, true)
	} else {
		moved("moves "+name, true, true)
		moved("moves "+name+", but does not hear of it", false, false)
	}
	w.emit(s, r, "fails to move "+name, false, func(t *outboxes) string { w.blocks(t, r, h); return "" })
}

// noted reports whether a row stands in the ledger.
func (w *outboxWorld) noted(s *outboxes, h int) bool {
	for k := range s.rows {
		if s.rows[k].ledger != notThere && (k == h || w.off[LedgerKey] && s.rows[k].id == s.rows[h].id) {
			return !w.off[Ledger]
		}
	}
	return false
}

// isDone notes that a row is moved.
func (s *outboxes) isDone(r, h int) string {
	m := &s.relays[r]
	m.queue.take(h)
	m.old.take(h)
	m.done.put(h)
	return ""
}

// unreads forgets what waits to be moved, so that it is read again.
func (w *outboxWorld) unreads(s *outboxes, r, h int) string {
	m := &s.relays[r]
	for k := range s.rows {
		if m.queue.has(k) && (k == h || !w.off[FreshAll]) {
			m.known.take(int(s.rows[k].id))
			m.queue.take(k)
			m.old.take(k)
		}
	}
	return ""
}

// deletes deletes what was moved.
func (w *outboxWorld) deletes(s *outboxes, r int) {
	m := &s.relays[r]
	ids := set(0)
	for h := range s.rows {
		if m.done.has(h) {
			ids.put(int(s.rows[h].id))
		}
	}
	if w.off[DeleteList] {
		first, last := ids&-ids, ids
		for last&(last-1) != 0 {
			last &= last - 1
		}
		ids = last | (last - first)
	}
	for h := range s.rows {
		if s.rows[h].stage == open && ids.has(int(s.rows[h].id)) && w.off[DeleteList] {
			return // the statement waits for it
		}
	}
	w.emit(s, r, "deletes what it has moved", true, func(t *outboxes) string {
		m := &t.relays[r]
		for h := range w.wishes {
			row := &t.rows[h]
			named := m.done.has(h) || ids.has(int(row.id)) && (w.off[DeleteKey] || w.off[DeleteList])
			if row.stage != committed || !named {
				continue
			}
			row.stage = deleted
			if !row.moved {
				return lost + ": " + w.names[h] + " is deleted, and was never moved"
			}
		}
		m.done = 0
		return ""
	})
}

// setAside notes refusals in the outbox.
func (s *outboxes) setAside(r int) string {
	for h := range s.rows {
		if s.relays[r].refused.has(h) && s.rows[h].stage == committed {
			s.rows[h].aside = true
		}
	}
	s.relays[r].refused = 0
	return ""
}

// again reads what was set aside and what waits behind it, before anything else.
func (w *outboxWorld) again(s *outboxes, r int) string {
	m := &s.relays[r]
	ids := m.aside
	m.aside, m.blocked = 0, 0
	for id := uint8(1); id < s.next; id++ {
		if h := w.holder(s, id); h >= 0 && ids.has(int(id)) {
			w.takes(s, r, h)
		}
	}
	return ""
}

// reused reports whether a row is in the outbox under an id that the relay knows, and that it does not wait for.
func (s *outboxes) reused(m *memory) bool {
	for h := range s.rows {
		id := int(s.rows[h].id)
		if s.rows[h].stage == committed && m.known.has(id) && !m.aside.has(id) && !s.hand(m).has(id) {
			return true
		}
	}
	return false
}
