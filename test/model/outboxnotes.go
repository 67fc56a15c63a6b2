package model

import "fmt"

// A turn begins where notes say that all rows are gone and all gaps are closed. Each database has a note. Anything may happen
// between two steps of a begin:
//
//	begins --a note--> asks --the other--> knows --next id--> may --rows, open transactions--> works
//	   \------ one can't be read or is 0, the next id is lower, something is there -------------^
//
// A gap is closed a minute after its ids were given, when no statement is in its middle: none has an id and no row yet. A begin
// can't wait for a minute. The questions that it asks the outbox are against ids that are given again; the notes are against
// statements in their middle.

// databases is how many have a note.
const databases = 2

// turnStage is how far a turn has come.
type turnStage uint8

const (
	works  turnStage = iota
	begins           // and knows nothing
	asks             // has read one note
	knows            // has read the notes
	may              // has found that the next id is not below them
)

// anew is what a relay knows at the begin of a turn.
func (w *outboxWorld) anew() memory {
	if w.notes {
		return memory{stage: begins}
	}
	return memory{}
}

// start is the first moment of a play.
func (w *outboxWorld) start() outboxes {
	s := outboxes{next: 1 + w.before}
	for h := range w.wishes {
		w.names[h] = w.row(h)
	}
	for r := range s.relays {
		s.relays[r] = w.anew()
	}
	return s
}

// begin adds the next step of a turn that begins.
func (w *outboxWorld) begin(s *outboxes, r int) {
	switch s.relays[r].stage {
	case begins:
		w.emit(s, r, "can't read the notes", false, func(t *outboxes) string { t.relays[r] = memory{}; return "" })
		if !w.seen {
			w.emit(s, r, "reads a note", true, func(t *outboxes) string { t.readsOne(r); return "" })
			return
		}
		t := *s // see TestWhatAStatementInItsMiddleCanDo
		t.readsOne(r)
		w.readsOther(&t, r)
	case asks:
		w.readsOther(s, r)
	case knows:
		w.asksNext(s, r)
	case may:
		w.emit(s, r, "asks what is below the note", true, func(t *outboxes) string { return w.asksBelow(t, r) })
	}
}

func (s *outboxes) readsOne(r int) { s.relays[r].stage, s.relays[r].below = asks, s.notes[0] }

// readsOther reads the other note. Without a note a turn begins at the first id.
func (w *outboxWorld) readsOther(s *outboxes, r int) {
	t := *s
	m := &t.relays[r]
	m.stage, m.below = knows, min(m.below, t.notes[1])
	if w.off[NoteLowest] {
		m.below = max(s.relays[r].below, t.notes[1])
	}
	switch {
	case m.below == 0:
		w.emit(s, r, "finds no note", true, func(t *outboxes) string { t.relays[r], t.unseen = memory{}, false; return "" })
	case w.seen:
		w.asksNext(&t, r)
	default:
		w.emit(s, r, "reads the other note", true, func(to *outboxes) string { *to = t; return "" })
	}
}

// asksNext compares the note with the next id.
func (w *outboxWorld) asksNext(s *outboxes, r int) {
	if s.next < s.relays[r].below && !w.off[NoteNext] {
		w.void(s, r, "finds that the next id is below the note", works)
		return
	}
	w.emit(s, r, "finds that the next id is not below the note", true, func(t *outboxes) string {
		t.relays[r].stage, t.unseen = may, false
		return ""
	})
}

// asksBelow ends the begin of a turn: it is at the note unless rows are below it, committed or of an open transaction.
// Those whose statement is in its middle can't be seen.
func (w *outboxWorld) asksBelow(s *outboxes, r int) string {
	below := s.relays[r].below
	s.relays[r] = memory{}
	for h := range s.rows {
		row := &s.rows[h]
		if row.id < below && (row.stage == committed && !w.off[NoteRows] || row.stage == open && !w.off[NoteOpen]) {
			return ""
		}
	}
	for id := uint8(1); id < below; id++ {
		s.relays[r].known.put(int(id))
	}
	return ""
}

// void adds the ways in which a relay begins again that has seen ids given again: some databases may be away.
func (w *outboxWorld) void(s *outboxes, r int, what string, stage turnStage) {
	for away := range 1 << databases {
		if away > 0 && !w.notes {
			return
		}
		text := what
		if w.notes {
			text += voided[away]
		}
		w.emit(s, r, text, true, func(t *outboxes) string {
			t.relays[r] = memory{stage: stage}
			for d := range t.notes {
				if away>>d&1 == 0 && !w.off[NoteVoid] {
					t.notes[d] = 0
				}
			}
			t.unseen = t.unseen && away == 1<<databases-1
			return ""
		})
	}
}

var voided = [1 << databases]string{
	"; voids the notes", "; voids the note of database 2", "; voids the note of database 1", "; can't void the notes",
}

// writeNotes adds the writes of what was found to be gone.
func (w *outboxWorld) writeNotes(s *outboxes, r int) {
	below := s.relays[r].below
	for d := range s.notes {
		if below == 0 || s.notes[d] == below {
			continue
		}
		w.emit(s, r, fmt.Sprintf("notes in database %d that rows below %d are gone", d+1, below), false, func(t *outboxes) string {
			t.notes[d] = below
			return ""
		})
	}
	if w.lates && s.late == 0 {
		w.emit(s, r, fmt.Sprintf("sends database 2 the note that rows below %d are gone", below), false, func(t *outboxes) string {
			t.late = below
			return ""
		})
	}
}

// restart adds the late arrival of a note, and a restart of the outbox's server: it ends all turns, rolls back what is open, and
// gives all ids above the last row again. A note may still be under way then.
func (w *outboxWorld) restart(s *outboxes) {
	if s.late > 0 {
		w.emit(s, nobody, "a note arrives late in database 2", true, func(t *outboxes) string {
			t.notes[1], t.late = t.late, 0
			return ""
		})
	}
	if !w.falls {
		return
	}
	w.emit(s, nobody, "the server restarts, with a lower next id", false, func(t *outboxes) string {
		t.next = 1
		for h := range t.rows {
			switch row := &t.rows[h]; row.stage {
			case numbered, open:
				row.stage = undone
			case committed:
				t.next = max(t.next, row.id+1)
			}
		}
		for r := range t.relays {
			t.relays[r] = w.anew()
		}
		t.unseen = w.seen
		return ""
	})
}

// closeGaps takes ids out of the polls that no row has, committed or of an open transaction. With notes it follows a read
// of all ids, and finds up to where rows are gone.
func (w *outboxWorld) closeGaps(s *outboxes, r int) string {
	m := &s.relays[r]
	var held set
	for h := range s.rows {
		switch stage := s.rows[h].stage; {
		case stage == committed, stage == open && !w.off[GapsLocked], stage == numbered && !w.off[GapsOld]:
			held.put(int(s.rows[h].id))
		}
	}
	gone := m.known &^ m.aside &^ s.hand(m)
	for id := range int(s.next) {
		switch {
		case id == 0 || m.known.has(id):
		case !held.has(id):
			m.known.put(id)
			gone.put(id)
		case w.off[NoteClosed]:
			gone.put(id)
		}
	}
	for n := uint8(1); w.notes && gone.has(int(n)); n++ {
		m.below = max(m.below, n+1)
	}
	return ""
}
