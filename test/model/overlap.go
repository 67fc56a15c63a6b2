package model

import "fmt"

// The fourth model has the runs of one schedule that skips, queues or replaces, and two processes that deliver them.
//
//	maker, run-now, edit ---+
//	process: Begin ---------+--> each with the schedule's row locked --> rows of the runs
//	process: settle --------+                                               ^
//	  handler: begins, returns, or outlives its time-out                    |
//	  crash, SIGSTOP: the claim runs out --------------recover--------------+
//
// Its promises: no two handlers of the schedule run at once, except behind a claim that ran out, as its process was frozen or is gone,
// or that a later run replaced; a run is skipped only beside an earlier one that is open, and never once it has begun; no
// run that is missed begins, and none is missed that has begun; a failed attempt had a handler; every run ends.
//
// The index of a run is its place in the order. A process that lives is prompt, as in the first model. Lateness counts from when the run could
// have begun: its time, or the end of the run that it waited for.

// Bounds of a play.
const (
	couriers = 2 // processes
	mostRuns = 3
)

// runStage is the status of a run's row.
type runStage uint8

const (
	unmade runStage = iota
	runPending
	runClaimed
	runDone
	runDead
	runSkipped
	runMissed
	runReplaced // or cancelled by an edit
)

var runNames = [mostRuns]string{"run 1", "run 2", "run 3"}

var runStageNames = [...]string{"unmade", "pending", "claimed", "done", "dead", "skipped", "missed", "cancelled"}

func (r *openRun) final() bool { return r.stage >= runDone }

// openRun is a run, and what is true of it.
type openRun struct {
	stage    runStage
	due      bool  // its time has come
	far      bool  // it waits, and looks again later
	putOff   bool  // it was given back before its handler began
	begun    bool  // it has failed attempts, or crashes
	attempts uint8 // failed
	late     bool  // longer than start_within
}

// courierStage is how far a process is with the run in its hand.
type courierStage uint8

const (
	atRestNow courierStage = iota
	looked                 // has read the row; and with a naive Begin, the others
	admitted               // has claimed the row
	handling               // its handler runs
	overtime               // ... and is over its time-out
	settling               // has an outcome to store
	crashed
)

// outcomeOf is what a process is about to store.
type outcomeOf uint8

const (
	succeeded outcomeOf = iota
	failedOnce
	notCalled // the handler did not begin
)

// courier is a process that delivers one run at a time.
type courier struct {
	stage   courierStage
	run     uint8
	same    bool      // the row is as it was read
	mine    bool      // the row is claimed, by this process and for what is in its hand
	begun   bool      // the run, as it was read
	late    bool      // likewise
	free    bool      // likewise: no earlier run is open
	outcome outcomeOf // of settling
	ran     bool      // its handler began
	goesOn  bool      // its handler runs beside what is to be settled
	frozen  bool
	excused bool // its claim ran out while it was frozen or gone, or its run was cancelled
}

// hasHandler reports whether a handler of this process runs.
func (c *courier) hasHandler() bool { return c.stage == handling || c.stage == overtime || c.goesOn }

// number orders processes.
func (c *courier) number() uint64 {
	return uint64(c.stage)<<24 | uint64(c.run)<<20 | uint64(c.outcome)<<16 |
		bits(c.same, c.mine, c.begun, c.late, c.free, c.ran, c.goesOn, c.frozen, c.excused)
}

// overlaps is one state of the world.
type overlaps struct {
	runs     [mostRuns]openRun
	couriers [couriers]courier
	left     overlapFaults
	edited   bool
}

// overlapFaults are what may still happen.
type overlapFaults struct{ crashes, freezes, fails, overtimes, edits, redrives, lates uint8 }

// Overlap is what a schedule does about open runs.
type Overlap uint8

// The policies.
const (
	Skips Overlap = iota
	Queues
	Replaces
)

// OverlapGuard is a rule of the protocol. Each can be switched off to show what it prevents.
type OverlapGuard uint8

// The guards.
const (
	AtOnce       OverlapGuard = iota // the look at other runs and the claim are one transaction
	EveryAttempt                     // retries look too
	AnyClaim                         // a later run in delivery holds up too
	RetryWaits                       // a retry waits; it is never skipped
	MissedThen                       // whether a run is missed is judged in that transaction
	JudgedAgain                      // a run that was put off is judged again
	MissedAside                      // an earlier run that is missed is not open
	StaysOpen                        // a run whose handler is over its time-out stays claimed
	Prolonged                        // ... and its claim is prolonged
	CallCounts                       // an attempt counts if its handler began
	ClaimHolds                       // no handler begins behind a claim that ran out
	OwnClaim                         // an outcome is stored for its own claim alone
	LooksAgain                       // a run that waits looks again
	overlapGuards
)

var overlapGuardNames = [overlapGuards]string{
	"one transaction looks and claims", "retries look at other runs", "a later run in delivery holds up an earlier one", "a retry is never skipped",
	"a run is missed by the clock of its claim", "a run that was put off may be missed", "a missed run holds up none",
	"a handler over its time-out keeps its run open", "its claim is prolonged", "an attempt without a handler does not count",
	"no handler begins behind a claim that ran out", "an outcome is that of its own claim", "a run that waits looks again",
}

// overlapWorld makes the steps of a play.
type overlapWorld struct {
	name   string
	policy Overlap
	runs   int
	byHand set // runs that somebody asks for: made when due, never missed or skipped
	faults overlapFaults
	off    [overlapGuards]bool
	steps[overlaps]
}

func (w *overlapWorld) start() overlaps {
	s := overlaps{left: w.faults}
	for i := range w.runs {
		if !w.byHand.has(i) {
			s.runs[i].stage = runPending
		}
	}
	return s
}

// sort lets the processes change places.
func (w *overlapWorld) sort(s *overlaps) {
	if s.couriers[0].number() > s.couriers[1].number() {
		s.couriers[0], s.couriers[1] = s.couriers[1], s.couriers[0]
	}
}

func (w *overlapWorld) moves(s *overlaps) []step[overlaps] {
	w.out = w.out[:0]
	for i := range w.runs {
		w.passes(s, i)
	}
	if s.left.edits > 0 {
		w.emit(s, nobody, "the schedule is edited", false, func(t *overlaps) string { t.left.edits--; t.edit(w); return "" })
	}
	for i := range s.couriers {
		w.faultsOf(s, i)
		if c := &s.couriers[i]; !c.frozen && c.stage != crashed {
			w.courier(s, i)
		}
	}
	return w.out
}

// passes is what time, and those who recover, redrive and make runs, do to a run.
func (w *overlapWorld) passes(s *overlaps, i int) {
	r, run := &s.runs[i], runNames[i]
	switch {
	case !r.due && (i == 0 || s.runs[i-1].due):
		w.emit(s, nobody, run+": its time comes", true, func(t *overlaps) string {
			t.runs[i].due = true
			if w.byHand.has(i) {
				t.runs[i].stage = runPending
			}
			return ""
		})
	case r.stage == runPending && r.far && !w.off[LooksAgain]:
		w.emit(s, nobody, run+": it is to look again", true, func(t *overlaps) string { t.runs[i].far = false; return "" })
	case r.stage == runPending && r.due && !r.late && !r.begun && !r.far && !w.byHand.has(i) && s.left.lates > 0:
		w.emit(s, nobody, run+": start_within passes", false, func(t *overlaps) string { t.left.lates--; t.runs[i].late = true; return "" })
	case r.stage == runDead && s.left.redrives > 0:
		w.emit(s, nobody, run+": an operator redrives it", false, func(t *overlaps) string {
			t.left.redrives--
			t.runs[i].stage, t.runs[i].attempts, t.runs[i].begun = runPending, 0, true
			return ""
		})
	}
	if c := s.holder(i); r.stage == runClaimed && (c == nil || c.frozen || c.stage == crashed || c.stage == overtime && w.off[Prolonged]) {
		w.emit(s, nobody, run+": its claim runs out", true, func(t *overlaps) string {
			if c := t.holder(i); c != nil {
				c.mine, c.excused = false, c.excused || c.frozen || c.stage == crashed
			}
			t.changed(i)
			t.runs[i].stage, t.runs[i].begun = runPending, true
			return ""
		})
	}
}

// holder is the process whose claim a run has; nil: none that knows of it.
func (s *overlaps) holder(n int) *courier {
	for i := range s.couriers {
		if c := &s.couriers[i]; c.mine && int(c.run) == n {
			return c
		}
	}
	return nil
}

// changed notes that a row is no more as it was read.
func (s *overlaps) changed(n int) {
	for i := range s.couriers {
		if c := &s.couriers[i]; int(c.run) == n {
			c.same = false
		}
	}
}

// edit cancels what waits for a retry or for its turn; what is in delivery goes on, and is not tried again.
func (s *overlaps) edit(w *overlapWorld) {
	s.edited = true
	for i := range w.runs {
		if r := &s.runs[i]; !w.byHand.has(i) && r.stage == runPending && (r.begun || r.far) {
			r.stage = runReplaced
			s.changed(i)
		}
	}
}

// faultsOf are the faults of a process.
func (w *overlapWorld) faultsOf(s *overlaps, i int) {
	c := &s.couriers[i]
	if c.stage != atRestNow && c.stage != crashed && s.left.crashes > 0 {
		w.emit(s, i, "crashes", false, func(t *overlaps) string {
			t.left.crashes--
			t.couriers[i] = courier{stage: crashed, run: c.run, mine: c.mine}
			return ""
		})
	}
	if c.stage == crashed && !c.mine {
		w.emit(s, i, "is started again", true, func(t *overlaps) string { t.couriers[i] = courier{}; return "" })
	}
	if c.stage != atRestNow && c.stage != crashed && !c.frozen && s.left.freezes > 0 {
		w.emit(s, i, "is frozen", false, func(t *overlaps) string { t.left.freezes--; t.couriers[i].frozen = true; return "" })
	}
	if c.frozen {
		w.emit(s, i, "goes on", false, func(t *overlaps) string { t.couriers[i].frozen = false; return "" })
	}
}

func (w *overlapWorld) settled(s *overlaps) bool {
	for i := range w.runs {
		if !s.runs[i].final() {
			return false
		}
	}
	return true
}

func (w *overlapWorld) stuck(*overlaps) string { return "WAITS for ever" }

func (w *overlapWorld) first(*overlaps) string { return w.name }

func (w *overlapWorld) line(mv *step[overlaps]) string {
	text := fmt.Sprintf("%-60s", named("process", mv.who)+mv.what)
	for i := range w.runs {
		text += " " + runStageNames[mv.to.runs[i].stage]
	}
	return text
}

// String names the play.
func (w *overlapWorld) String() string { return w.name }
