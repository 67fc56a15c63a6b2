package model

import "fmt"

// This model has one row, the sessions of one database, and two processes that claim the row, judge each other's
// beats and recover each other's claims.
//
//	process: beat, open, leave ------------------+--> session rows --+
//	process: read beats, end what stands still --+                   | "the session exists"
//	process: claim --> check, update, commit, read ------------------+--> the row
//	process: outcome, release, recover --------------------------------->
//
// Its promises: no delivery begins early, nor by a process that could know that its session or its claim is gone; a second
// delivery and a crash have a cause; no session of a process that lives and beats is ended; a row has one final
// state; from every state the row reaches one, without the user and without further faults.
//
// A tick is somewhat more than a second: a process that is well beats in each. Trust lasts for the tick of the beat and the next one; a
// session may be ended after its beat stood still for two. A claim is a packet: it checks the session and locks the row, then
// commits, and the process reads the row. Its connection may do so long after the process gave up waiting for an
// answer, and after the session's end. Sessions, tokens and beats are numbers that a canonical order renames, so the graph is finite.

// Bounds of a search, in ticks and counts.
const (
	claimers    = 2
	trusted     = 1 // age of a beat until which rows may be started
	untrusted   = 2
	standstill  = 2 // ticks in which a beat was seen to stand still, before its session may be ended
	mostSession = 4
)

// sessionRow is a row of the session table.
type sessionRow struct {
	id, beat uint8
	owner    uint8 // process + 1; 0: of one that was killed. Known to the checks alone
}

// claimRow is the task's row.
type claimRow struct {
	status                     status
	action                     int8 // -1: overdue, 0: due, 1: due in the next tick
	version, attempts, crashes uint8
	token, session             uint8 // of claimed_by; 0: ''
	started, excused           bool  // a delivery of this turn has begun; something failed that may repeat it. Known to the checks alone
}

// tables are what a server holds.
type tables struct {
	row      claimRow
	sessions [mostSession]sessionRow
}

// claimPhase is how far a process is with the row.
type claimPhase uint8

const (
	emptyHanded claimPhase = iota
	rowAsked               // a claim is sent
	rowUnsure              // ... and its answer is not awaited any more
	rowHeld                // claimed, and waits for its time
	rowChecked             // trust and time are checked, and the handler is called next
	rowRunning             // the handler runs
	rowEnded               // the outcome is to be stored
	rowGiving              // the row is to be released
)

var claimPhaseNames = [...]string{"idle", "asked", "unsure", "held", "checked", "running", "ended", "giving"}

// errand is what a connection is doing at the server.
type errand uint8

const (
	noErrand  errand = iota
	claiming1        // the packet of a claim is under way
	claiming2        // it has found the session, and locked and changed the row
	claimed1         // it has committed, and the answer is under way
	refused1         // likewise, without the row
	settling1        // an outcome that was sent again meanwhile
	giving1          // a release that was sent again meanwhile
	opening1         // an INSERT of a session that was sent again meanwhile
)

// connection is one connection with what it was asked for.
type connection struct {
	errand                  errand
	fails                   bool // the outcome
	hurt                    bool // its process was stopped or cut off meanwhile. Known to the checks alone
	token, session, version uint8
}

// beating is a beat whose answer takes long.
type beating uint8

const (
	noBeat beating = iota
	sent
	hit
	missed
)

// beatNote is what a process has noted of a session's beat.
type beatNote struct{ id, beat, age uint8 }

// claimer is a process: a node, or a sweep.
type claimer struct {
	session            uint8 // its own; 0: none
	trust              uint8 // ticks since its last successful beat began
	gapped             bool  // a beat of its own was late, in this tick
	beaten, read       bool  // in this tick
	beat               beating
	beatAge            uint8
	frozen, paused     bool // paused: its clocks stood still, too
	blind              bool // paused, and nothing heard since
	away, gone         bool // cut off; a sweep that has ended
	leaving            bool
	former             bool // another server answers, and this process does not know it yet
	phase              claimPhase
	fails              bool  // the outcome
	token, of, version uint8 // of the claim: its token, its session, the row's version
	action             int8  // as read
	conn               connection
	looks              bool  // own look: compares the claimed rows of its session with what it holds
	owes               uint8 // a session that it has ended, and whose claims nobody else would recover
	notes              [mostSession]beatNote

	// Known to the checks alone.
	hurt    bool // something kept it from beating since its last beat
	gap     bool // it stood still between check and call
	moved   bool // another server answered since its claim
	excused bool // it stood still or was cut off with this attempt in hand
	again   bool // the row was redriven with the same key meanwhile
}

// claimFaults are what may still happen.
type claimFaults struct{ faults, failovers, stalls, user, seats, leaves uint8 }

// claims is one state of the world.
type claims struct {
	tables
	replica   tables
	behind    bool // the replica is behind, and may become the primary
	behindAge uint8
	stalled   bool // the server takes no writes
	first     uint8
	p         [claimers]claimer
	left      claimFaults
	renamed   uint8 // highest number in use
}

// ClaimGuard is a rule of the protocol. Each can be switched off to show what it prevents.
type ClaimGuard uint8

// The guards.
const (
	ClaimAsks             ClaimGuard = iota // a claim asks whether its session exists
	TokenCounts                             // a token has a counter of the claim
	TokenNeedsClaimed                       // "this token" includes status 1, and writes that leave it empty the column
	OutcomeByToken                          // a failed attempt is stored under its token
	CompleteByVersion                       // a success is stored for the version that was delivered
	CompleteOpen                            // a success is stored for what is pending, claimed or dead
	RescheduleCounts                        // a reschedule raises the version
	StartsWhenDue                           // a held row waits for its time
	TrustEnds                               // nothing starts past the trust in the session
	StartsUnderItsSession                   // ... and trust in a later session says nothing
	TrustFromBegin                          // trust counts from when the beat began
	EndsSameBeat                            // a session is ended only with the beat that stood still
	EndsAfterWait                           // ... after it stood still for long
	EndsWithoutGaps                         // ... seen in reads without gaps
	EndsWhileBeating                        // ... by who has beaten in each tick meanwhile
	SessionNeverReused                      // who was ended opens a session with a new id
	InsertNeverReused                       // each try of an INSERT has a new id
	RecoverAsks                             // a claim is recovered only where its session does not exist
	RecoverAgain                            // recovery is looked for again and again, not once by who ended the session
	OwnByID                                 // who got no answer to a claim reads the row by its id, and releases what it does not hold
	OwnUntilGone                            // ... until the connection of the claim is gone
	OwnAfterMove                            // after a move the claims of the own session are compared with what is held
	EndedGivesBack                          // who finds its session ended releases what it holds
	PauseSeen                               // who hears from a server whose clock went on ends its trust
	MoveEndsTrust                           // another server ends trust, and what was held is released
	MoveRestartsNotes                       // another server restarts the judgement of beats
	LeaveWaits                              // who leaves waits for its claims, deliveries and releases, and deletes its session last
	SilentPassedOver                        // a silent first member is passed over
	SweepWatches                            // a sweep that meets a claim watches its session
	claimGuards
)

var claimGuardNames = [claimGuards]string{
	"a claim asks for its session", "a token has a counter", "a token counts with status 1 alone", "a failed attempt is stored by its token",
	"a success is stored by its version", "a success changes no cancelled row", "a reschedule raises the version", "a held row waits for its time",
	"trust ends", "trust is that of the token's session", "trust counts from the begin of the beat", "a session is ended with its beat", "a session is ended after a standstill of two ticks",
	"a judgement has no gaps", "a judge has beaten itself", "an ended session's id is not used again", "each INSERT has an id of its own",
	"recovery asks for the session", "recovery looks again", "a claim without an answer is read by its id", "... until its connection is gone",
	"the own look after a move", "who was ended gives back what it holds", "a pause is noticed", "another server ends trust",
	"another server restarts judgement", "who leaves waits", "a silent member is passed over", "a sweep watches the claims that it meets",
}

// claimWorld makes the steps of a play.
type claimWorld struct {
	name                                    string
	left                                    claimFaults
	one, atOnce, apart                      bool // a single process; a claim is one step; a beat and a read of the sessions are two
	sweep                                   bool // the second process is a sweep
	freezes, kills, cuts, losses, late      bool // the faults that it has
	slowBeats, pauses, doubles, fails, keys bool // keys: redrives with the same key
	off                                     [claimGuards]bool
	steps[claims]
}

func (w *claimWorld) start() claims {
	s := claims{left: w.left}
	s.row.action = 1
	for i := range s.p {
		p := &s.p[i]
		if p.trust, p.gone = untrusted, i == 1 && (w.one || w.sweep); !p.gone {
			p.session, p.trust, p.beaten = s.fresh(), 0, true
			s.insert(sessionRow{id: p.session, beat: s.fresh(), owner: uint8(i + 1)})
		}
	}
	return s
}

// settled reports whether the row is final.
func (w *claimWorld) settled(s *claims) bool { return s.row.status.final() }

func (w *claimWorld) stuck(s *claims) string {
	return fmt.Sprintf("LOST: the row stays %s for ever", s.row.status)
}

func (w *claimWorld) first(s *claims) string { return "the task: " + s.text() }

func (w *claimWorld) line(mv *step[claims]) string {
	return fmt.Sprintf("%-74s %s", named("process", mv.who)+mv.what, mv.to.text())
}

// String names the play.
func (w *claimWorld) String() string { return w.name }

func (s *claims) text() string {
	t := fmt.Sprintf("%s at %+d, version %d, attempts %d, crashes %d", s.row.status, s.row.action, s.row.version, s.row.attempts, s.row.crashes)
	if s.row.token != 0 {
		t += fmt.Sprintf(", by S%d.%d", s.row.session, s.row.token)
	}
	t += "; sessions"
	for _, x := range s.sessions {
		if x.id != 0 {
			t += fmt.Sprintf(" S%d", x.id)
		}
	}
	for i := range s.p {
		if p := &s.p[i]; p.phase != emptyHanded || p.session != 0 {
			t += fmt.Sprintf("; %d: %s, S%d, trust %d", i+1, claimPhaseNames[p.phase], p.session, p.trust)
		}
	}
	return t
}
