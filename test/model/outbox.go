package model

import "fmt"

// The third model has one outbox and two relays that are both active: package relay may never rely on its lock. Every row
// of the outbox is of a transaction of its own.
//
//	business --take an id, insert, commit or roll back--> outbox --poll--> memory of a relay --move--> tasks and ledger
//	  operator: retry, drop                                  ^                 |                        |        |
//	  an emptied outbox gives ids again                      +-----delete------+     deliver, purge <---+     forget
//	                                                                 \--note what is gone, for the next turns
//
// Its promises: every committed row is moved, or dropped by an operator; none is moved twice, and none of a transaction
// that was rolled back; within a biz_id the order of the ids is kept, except among adds; an add is not cancelled
// by what came before it, and no task is delivered that was cancelled; outbox and ledger are empty in the end.
//
// A relay that hangs is one that makes no step while time passes. Time is counted in ticks of a minute: a copy of a row is
// old as soon as one has begun, and the ledger's row is kept for one after the outbox's row was seen to be gone. Relays
// crash, fail and miss the answer to a move as often as they like. Purge takes a task that is done at any time.

// relays is how many of them play, maxRows how many rows the outbox has in all.
const (
	relays  = 2
	maxRows = 4
)

// op is what a row asks for.
type op uint8

const (
	add op = iota
	cancel
	reschedule
)

var opNames = [...]string{"add", "cancel", "reschedule"}

// wish is a row that a business writes, in a transaction of its own. Of one biz_id, the rows are written in their order.
type wish struct {
	biz     byte // 'A', 'B': the biz_id
	op      op
	unknown bool // its biz type is, until an operator applies it
}

// rowStage is how far a row of the outbox has come.
type rowStage uint8

const (
	unwritten rowStage = iota
	numbered           // has its id, and is not inserted yet
	open               // inserted by a transaction that is open
	committed
	undone  // rolled back
	deleted // by a relay
	dropped // by an operator
)

// taskStage is how far the task of an add has come.
type taskStage uint8

const (
	noTask taskStage = iota
	waiting
	inDelivery
	isDone
	isCancelled
	isPurged
)

// ledgerStage is how far the ledger's row of a move has come.
type ledgerStage uint8

const (
	notThere ledgerStage = iota
	stands
	gone     // its outbox row was seen to be gone, in this tick
	longGone // ... before
)

// outboxRow is a row of the outbox, with what it made: one wish.
type outboxRow struct {
	stage  rowStage
	id     uint8
	aside  bool // last_error is set
	moved  bool // it has had its effect
	ledger ledgerStage
	task   taskStage // of an add
	last   uint8     // index of the last add that this task stands for: another with its dedup_key may have found it
}

// set is a set of rows, by index, of ids or of biz_ids.
type set uint8

func (s set) has(n int) bool { return s>>n&1 == 1 }

func (s *set) put(n int) { *s |= 1 << n }

func (s *set) take(n int) { *s &^= 1 << n }

// memory is what a relay knows. A row in memory is a copy: it names what was read.
type memory struct {
	known   set // ids that were read: polls leave them out
	queue   set // rows, read and to be moved
	old     set // of them, read before this tick
	done    set // rows, moved and to be deleted
	refused set // rows, to be set aside
	aside   set // ids that are, and of what waits behind them
	blocked set // biz_ids of those

	stage turnStage
	below uint8 // the id of the note with which a turn begins, then the one to be noted; 0: none
}

// number orders memories.
func (m *memory) number() (n uint64) {
	for _, s := range [...]set{m.known, m.queue, m.old, m.done, m.refused, m.aside, m.blocked} {
		n = n<<8 | uint64(s)
	}
	return n<<8 | uint64(m.stage)<<4 | uint64(m.below)
}

// outboxes is one state of the world.
type outboxes struct {
	rows    [maxRows]outboxRow
	relays  [relays]memory
	next    uint8 // id
	applied bool  // the unknown biz type is, now
	notes   [databases]uint8
	late    uint8 // a note under way to database 2, whatever became of who sent it; 0: none
	unseen  bool  // ids begin anew, and no relay has begun since
}

// outboxWorld makes the steps of a play.
type outboxWorld struct {
	name     string
	wishes   []wish
	before   uint8  // ids that were given before the play
	dedup    bool   // adds of one biz_id have the same dedup_key
	restarts bool   // an empty outbox may begin its ids anew, as turns go on
	notes    bool   // relays note what is gone
	lates    bool   // ... and notes may arrive late in database 2
	falls    bool   // the server may restart, and give ids again that no row has
	seen     bool   // ... which a relay notices before programs write again
	halves   bool   // a statement may have taken its id, and not inserted its row yet
	drops    bool   // an operator may drop what is set aside
	lacks    bool   // ... and applies no biz type
	calm     bool   // no task is due, and no minute passes
	only     string // the one promise that counts; "": all
	off      [outboxGuards]bool
	names    [maxRows]string // of the rows
	out      []step[outboxes]
}

// sort lets the relays change places.
func (w *outboxWorld) sort(s *outboxes) {
	if s.relays[0].number() > s.relays[1].number() {
		s.relays[0], s.relays[1] = s.relays[1], s.relays[0]
	}
}

// emit adds a step that changes a copy of s, unless it changes nothing.
func (w *outboxWorld) emit(s *outboxes, who int, what string, progress bool, change func(*outboxes) string) {
	mv := step[outboxes]{who: who, what: what, progress: progress, to: *s}
	mv.bad = change(&mv.to)
	if w.only != "" && !breaks(mv.bad, w.only) {
		mv.bad = ""
	}
	if mv.bad != "" || mv.to != *s {
		w.out = append(w.out, mv)
	}
}

func (w *outboxWorld) moves(s *outboxes) []step[outboxes] {
	w.out = w.out[:0]
	for h := range w.wishes {
		w.business(s, h)
		w.operator(s, h)
		w.upkeep(s, h)
		w.life(s, h)
	}
	if !w.calm {
		w.emit(s, nobody, "time passes", true, (*outboxes).tick)
	}
	if w.restarts && s.empty() {
		w.emit(s, nobody, "the empty outbox begins its ids anew", false, func(t *outboxes) string { t.next = 1; return "" })
	}
	if w.notes {
		w.restart(s)
	}
	for r := range s.relays {
		w.relay(s, r)
	}
	return w.out
}

// business adds the steps of the transaction that writes a row.
func (w *outboxWorld) business(s *outboxes, h int) {
	to := func(stage rowStage, what string, progress bool) {
		w.emit(s, nobody, what+" "+w.names[h], progress, func(t *outboxes) string { t.rows[h].stage = stage; return "" })
	}
	switch s.rows[h].stage {
	case unwritten:
		if w.mayBegin(s, h) {
			w.begins(s, h)
		}
	case numbered:
		to(open, "a transaction inserts", true)
	case open:
		to(committed, "a transaction commits", true)
		to(undone, "a transaction rolls back", true)
	}
}

// begins lets the row's transaction take an id and insert the row. Nobody can tell the two apart unless young gaps are
// closed, or a turn begins above them.
func (w *outboxWorld) begins(s *outboxes, h int) {
	what, stage := "a transaction inserts "+w.names[h], open
	if w.off[GapsOld] || w.halves {
		what, stage = "a transaction takes an id for "+w.names[h], numbered
	}
	w.emit(s, nobody, what, false, func(t *outboxes) string {
		t.rows[h].stage, t.rows[h].id = stage, t.next
		t.next++
		return ""
	})
}

// mayBegin reports whether the row's transaction may begin: those of one biz_id follow one another, as each locks the
// business's own row first.
func (w *outboxWorld) mayBegin(s *outboxes, h int) bool {
	if w.seen && s.unseen {
		return false
	}
	for k := range h {
		switch stage := s.rows[k].stage; {
		case w.wishes[k].biz != w.wishes[h].biz:
		case stage == unwritten, !w.off[RowFirst] && (stage == numbered || stage == open):
			return false
		}
	}
	return true
}

// operator adds what an operator does about a row that was set aside.
func (w *outboxWorld) operator(s *outboxes, h int) {
	if w.wishes[h].unknown && !s.applied && !w.lacks {
		w.emit(s, nobody, "an operator applies the biz type", true, func(t *outboxes) string { t.applied = true; return "" })
	}
	if !s.rows[h].aside || s.rows[h].stage != committed {
		return
	}
	w.emit(s, nobody, "an operator retries "+w.names[h], true, func(t *outboxes) string { t.rows[h].aside = false; return "" })
	if w.drops {
		w.emit(s, nobody, "an operator drops "+w.names[h], true, func(t *outboxes) string { t.rows[h].stage = dropped; return "" })
	}
}

// upkeep adds the steps that keep the ledger small.
func (w *outboxWorld) upkeep(s *outboxes, h int) {
	row := &s.rows[h]
	forgets := row.ledger == longGone || row.ledger == gone && w.off[LedgerStays]
	switch {
	case row.ledger == stands && (row.stage != committed || w.off[LedgerLooks]):
		w.emit(s, nobody, "the ledger notes that "+w.names[h]+" is gone", true, func(t *outboxes) string { t.rows[h].ledger = gone; return "" })
	case forgets:
		w.emit(s, nobody, "the ledger forgets "+w.names[h], true, func(t *outboxes) string { t.rows[h].ledger = notThere; return "" })
	}
}

// tick begins another minute.
func (s *outboxes) tick() string {
	for h := range s.rows {
		if s.rows[h].ledger == gone {
			s.rows[h].ledger = longGone
		}
	}
	for r := range s.relays {
		s.relays[r].old = s.relays[r].queue
	}
	return ""
}

// empty reports whether the outbox has no row, committed or not.
func (s *outboxes) empty() bool {
	for h := range s.rows {
		switch s.rows[h].stage {
		case numbered, open, committed:
			return false
		}
	}
	return true
}

// settled reports whether the outbox and the ledger are empty.
func (w *outboxWorld) settled(s *outboxes) bool {
	for h := range s.rows {
		if s.rows[h].ledger != notThere && !w.calm {
			return false
		}
	}
	return s.empty()
}

func (w *outboxWorld) stuck(s *outboxes) string {
	for h := range w.wishes {
		if s.rows[h].stage == committed {
			return stranded + ": " + w.names[h] + " stays in the outbox for ever"
		}
	}
	return stranded + ": the ledger never forgets"
}

func (w *outboxWorld) first(*outboxes) string { return "the outbox is empty, two relays are active" }

func (w *outboxWorld) row(h int) string {
	name := fmt.Sprintf("%c's %s", w.wishes[h].biz, opNames[w.wishes[h].op])
	for k := range h {
		if w.wishes[k].biz == w.wishes[h].biz && w.wishes[k].op == w.wishes[h].op {
			name += " again"
		}
	}
	return name
}

// at returns the row that has an id in the outbox, in a transaction that is open or committed; -1: none.
func (s *outboxes) at(id uint8) int {
	for h := range s.rows {
		if row := &s.rows[h]; row.id == id && (row.stage == open || row.stage == committed) {
			return h
		}
	}
	return -1
}

// line shows a step, and the outbox, the tasks and the ledger after it.
func (w *outboxWorld) line(mv *step[outboxes]) string {
	rows, tasks, ledger := "", "", ""
	for id := range mv.to.next {
		if h := mv.to.at(id); h >= 0 {
			rows += fmt.Sprintf(" %d %s%s", id, w.names[h], map[bool]string{true: " (open)"}[mv.to.rows[h].stage == open])
		}
	}
	for h := range w.wishes {
		row := &mv.to.rows[h]
		if row.task != noTask {
			tasks += fmt.Sprintf(" %s %s", w.names[h], taskStages[row.task])
		}
		if row.ledger != notThere {
			ledger += fmt.Sprintf(" %d", row.id)
		}
	}
	if w.notes {
		ledger += fmt.Sprintf("; notes: %d", mv.to.notes)
	}
	return fmt.Sprintf("%-62s outbox:%s; tasks:%s; ledger:%s", named("relay", mv.who)+mv.what, rows, tasks, ledger)
}

var taskStages = [...]string{"no task", "pending", "in delivery", "done", "cancelled", "purged"}

// String names the play.
func (w *outboxWorld) String() string { return w.name }
