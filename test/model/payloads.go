package model

import "fmt"

// The fifth model has two tasks of one biz type, one with a payload of the first version and one of the second, and the
// programs of a deploy that begins, is broken off and begins again.
//
//	Add, outbox ----> row: its version, if that is stored
//	node 1, node 2 -> look for rows, read one, leave it or deliver it; each runs the first program, the second, or none
//	a sweep --------> the same, of either program
//
// Its promises: no handler is called with a payload that is newer than its program reads; a task that no program here reads
// stays as it was, without an attempt or a crash; it is not read over and over; and whatever a living node reads is
// delivered.
//
// Nodes see late that a newer one is there. From then on they leave it the whole type, and it stands in for them.

// Places of the programs.
const (
	firstNode = iota
	secondNode
	aSweep
	programs
)

// How a program has found the row in its hand.
const (
	byQueue  uint8 = iota // its id, and read when it was due
	byStream              // read whole
	byClaim               // its id, and claimed before it starts: a stand-in's
	bySweep               // likewise, a sweep's
)

var (
	foundNames = [...]string{"finds the id of ", "streams ", "stands in and finds ", "sweeps "}
	taskNames  = [...]string{"task 1", "task 2"}
)

// readStage is how far a program is with the row in its hand.
type readStage uint8

const (
	emptyHand readStage = iota
	found
	taken // claimed, and not looked at yet
	handed
)

// payloadRow is one task. Its index is the version of its payload, less one.
type payloadRow struct {
	status  status
	marked  bool
	claimer uint8 // version of the program that claimed it
	touched bool  // a program that does not read it has written it, or counted a crash for it
}

// reader is a program that runs: a node, or a sweep.
type reader struct {
	version uint8 // 0: it does not run
	sees    bool  // that a newer node is there
	stage   readStage
	row     uint8
	way     uint8
	left    [2]bool // rows that it has left since it last looked at all
	leaves  bool    // the type, as it has met a newer payload
}

// payloads is one state of the world.
type payloads struct {
	rows   [2]payloadRow
	by     [programs]reader
	owner  uint8 // place of the owner of the table, from 1 on; 0: none
	newest uint8 // version that was ever seen to run
	budget payloadBudget
}

// payloadBudget is what may still happen.
type payloadBudget struct{ starts, stops, crashes, sweeps, looks uint8 }

// PayloadGuard is a rule of the protocol. Each can be switched off to show what it prevents.
type PayloadGuard uint8

// The guards.
const (
	VersionOfRow     PayloadGuard = iota // a node decides by the row, not by what other nodes announce
	CheckedWhenRead                      // rows that are found by their id are checked
	CheckedInStreams                     // rows that are read whole are checked
	CheckedInSweeps                      // sweeps check
	CheckedFirst                         // a row is checked before it is claimed
	LeftAsItWas                          // a row that is left has no outcome
	LeftAlone                            // it alone is left, not its type
	LeftForAWhile                        // it is not looked for again at once
	OlderIsRead                          // a program reads older payloads too
	NoMarkIsFirst                        // a row without a version has the first
	MarkTravels                          // the version goes through an outbox
	payloadGuards
)

var payloadGuardNames = [payloadGuards]string{
	"the row says its version", "rows of the queue are checked", "streamed rows are checked", "sweeps check", "a row is checked before it is claimed",
	"a row that is left has no outcome", "only the row is left", "a row that was left is not looked for at once", "older payloads are read",
	"no mark means the first version", "the mark goes through an outbox",
}

// payloadWorld makes the steps of a play.
type payloadWorld struct {
	name   string
	relay  bool // tasks go through an outbox
	nodes  [2]uint8
	budget payloadBudget
	off    [payloadGuards]bool
	steps[payloads]
}

func (w *payloadWorld) start() payloads {
	s := payloads{budget: w.budget, newest: max(w.nodes[0], w.nodes[1])}
	s.by[firstNode].version, s.by[secondNode].version = w.nodes[0], w.nodes[1]
	s.rows[1].marked = !w.relay || !w.off[MarkTravels]
	return s
}

func (w *payloadWorld) moves(s *payloads) []step[payloads] {
	w.out = w.out[:0]
	w.deploys(s)
	for i := range s.by {
		if r := &s.by[i]; r.version > 0 {
			w.ends(s, i)
			if i != aSweep {
				w.looks(s, i)
			}
			w.finds(s, i)
			w.works(s, i)
		}
	}
	for n := range s.rows {
		if s.rows[n].status == claimed && !s.held(n) {
			w.emit(s, nobody, taskNames[n]+": its claim runs out", true, func(t *payloads) string {
				row := &t.rows[n]
				row.touched = row.touched || int(row.claimer) <= n
				row.status = pending
				return t.spoilt(n)
			})
		}
	}
	return w.out
}

// held reports whether a program has the row in its hand, claimed.
func (s *payloads) held(n int) bool {
	for _, r := range s.by {
		if r.version > 0 && (r.stage == taken || r.stage == handed) && int(r.row) == n {
			return true
		}
	}
	return false
}

// spoilt is the promise that is broken if a row that was to be left was not.
func (s *payloads) spoilt(n int) string {
	if s.rows[n].touched {
		return "TOUCHED: a program that does not read the task has left a trace in it"
	}
	return ""
}

// deploys starts programs, and gives a table without an owner to a node.
func (w *payloadWorld) deploys(s *payloads) {
	for i := range s.by {
		for version := uint8(1); version <= 2 && s.by[i].version == 0; version++ {
			if i == aSweep && s.budget.sweeps == 0 || i != aSweep && s.budget.starts == 0 {
				continue
			}
			w.emit(s, i, fmt.Sprintf("starts, with program %d", version), false, func(t *payloads) string {
				if i == aSweep {
					t.budget.sweeps--
				} else {
					t.budget.starts--
				}
				t.by[i], t.newest = reader{version: version}, max(t.newest, version)
				return ""
			})
		}
		if i != aSweep && s.owner == 0 && s.by[i].version > 0 {
			w.emit(s, i, "takes the table", true, func(t *payloads) string {
				t.owner, t.by[i].left = uint8(i+1), [2]bool{}
				return ""
			})
		}
	}
}

// ends are the ways in which a program ends. One that stops gives back what it has claimed.
func (w *payloadWorld) ends(s *payloads, i int) {
	gone := func(t *payloads) {
		t.by[i] = reader{}
		if int(t.owner) == i+1 {
			t.owner = 0
		}
	}
	if s.by[i].stage == emptyHand && (i == aSweep || s.budget.stops > 0) {
		w.emit(s, i, "ends", i == aSweep, func(t *payloads) string {
			if i != aSweep {
				t.budget.stops--
			}
			gone(t)
			return ""
		})
	}
	if s.budget.crashes > 0 {
		w.emit(s, i, "crashes", false, func(t *payloads) string { t.budget.crashes--; gone(t); return "" })
	}
}

// looks is what a node learns of the others, and when it looks at all rows again.
func (w *payloadWorld) looks(s *payloads, i int) {
	r := &s.by[i]
	if newer := s.by[1-i].version > r.version; newer != r.sees {
		w.emit(s, i, "sees the other node, or that it is gone", true, func(t *payloads) string { t.by[i].sees = newer; return "" })
	}
	if (r.left[0] || r.left[1]) && s.budget.looks > 0 {
		w.emit(s, i, "looks at all rows again", false, func(t *payloads) string {
			t.budget.looks--
			t.by[i].left = [2]bool{}
			return ""
		})
	}
}

// finds is how a program comes to a row.
func (w *payloadWorld) finds(s *payloads, i int) {
	r := &s.by[i]
	if r.stage != emptyHand || r.leaves {
		return
	}
	var ways []uint8
	switch {
	case i == aSweep:
		ways = []uint8{bySweep}
	case int(s.owner) == i+1 && !r.sees:
		ways = []uint8{byQueue, byStream}
	case int(s.owner) == 2-i && s.by[1-i].sees && s.by[1-i].version > 0:
		ways = []uint8{byClaim}
	}
	for _, way := range ways {
		for n := range s.rows {
			if s.rows[n].status != pending || r.left[n] && !w.off[LeftForAWhile] {
				continue
			}
			w.emit(s, i, foundNames[way]+taskNames[n], true, func(t *payloads) string {
				t.by[i].stage, t.by[i].row, t.by[i].way = found, uint8(n), way
				return ""
			})
		}
	}
}

// works is what a program does with the row in its hand.
func (w *payloadWorld) works(s *payloads, i int) {
	r := &s.by[i]
	n := int(r.row)
	switch r.stage {
	case found:
		if s.rows[n].status != pending {
			w.emit(s, i, "drops it, as it is no more pending", true, func(t *payloads) string { t.by[i].stage = emptyHand; return "" })
		} else if !w.off[CheckedFirst] {
			w.emit(s, i, "reads it", true, func(t *payloads) string { return w.decide(t, i) })
		} else {
			w.emit(s, i, "claims it", true, func(t *payloads) string {
				t.rows[n].status, t.rows[n].claimer, t.by[i].stage = claimed, r.version, taken
				return ""
			})
		}
	case taken:
		w.emit(s, i, "reads what it has claimed", true, func(t *payloads) string { return w.decide(t, i) })
	case handed:
		w.emit(s, i, "completes it", true, func(t *payloads) string {
			t.rows[n].status, t.by[i].stage = done, emptyHand
			return ""
		})
	}
}

// reads reports whether a program takes a row for one that it reads.
func (w *payloadWorld) reads(s *payloads, r *reader) bool {
	version := uint8(1)
	switch {
	case w.off[VersionOfRow]:
		return !r.sees
	case r.way == byStream && w.off[CheckedInStreams], r.way == bySweep && w.off[CheckedInSweeps], r.way != byStream && r.way != bySweep && w.off[CheckedWhenRead]:
		return true
	case s.rows[r.row].marked:
		version = 2
	case w.off[NoMarkIsFirst]:
		version = s.newest
	}
	return version == r.version || version < r.version && !w.off[OlderIsRead]
}

// decide leaves a row, or begins its delivery.
func (w *payloadWorld) decide(t *payloads, i int) string {
	r := &t.by[i]
	n := int(r.row)
	row := &t.rows[n]
	if w.reads(t, r) {
		row.status, row.claimer, r.stage = claimed, r.version, handed
		if int(r.version) <= n {
			return "MISREAD: a handler is called with a payload that is newer than it reads"
		}
		return ""
	}
	r.stage = emptyHand
	if r.left[n] {
		return "SPINS: a row that was left is read over and over"
	}
	r.left[n] = true
	row.status = pending
	if w.off[LeftAsItWas] {
		row.touched = true
	}
	r.leaves = w.off[LeftAlone]
	return t.spoilt(n)
}

// settled reports whether all that a living node reads is delivered.
func (w *payloadWorld) settled(s *payloads) bool {
	for n := range s.rows {
		for i := range aSweep {
			if s.rows[n].status != done && int(s.by[i].version) > n {
				return false
			}
		}
	}
	return true
}

func (w *payloadWorld) stuck(*payloads) string {
	return "WAITS: a task that a living node reads is never delivered"
}

func (w *payloadWorld) first(*payloads) string { return w.name }

func (w *payloadWorld) line(mv *step[payloads]) string {
	who := ""
	if mv.who != nobody {
		who = [programs]string{"node 1 ", "node 2 ", "the sweep "}[mv.who]
	}
	return fmt.Sprintf("%-60s %s %s", who+mv.what, mv.to.rows[0].status, mv.to.rows[1].status)
}

// String names the play.
func (w *payloadWorld) String() string { return w.name }
