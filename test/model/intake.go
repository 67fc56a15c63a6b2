package model

// The sixth model is one lane of the intake, the rows of one biz type in one group of
// tables. The node owns these tables, and starts rows without a claim. Package scanner keeps a span for each table, in place of one past
// mark and one horizon for all: it begins at what is unread first, due or not, and ends at what is unread last.
//
//	user, other programs --> rows in MySQL --bell, may be lost---------------> found --> ring --> hand --> outcome
//	                                      --peek: what is due soon, or is----> found
//	                                      --full look: what is due-----------> found
//	                                      --pull: whole rows from the past mark on, a page at a time --> hand
//
// What was found waits in the ring, whose size is bounded; or it is due, and not before the past mark; or it is due from the
// horizon on, and a later peek finds it again. Each read has a beginning, when the server reads, and an end, when the node hears of
// it; anything may happen in between. Time goes in ticks; a peek begins and ends within one.
//
// Its promises: what a peek has seen is read without a full look; what is due before the horizon is in the ring; no row is started
// while it is in hand, or after it has ended; no page is read in vain over and over; and every row is delivered, also one that was
// committed so late that no peek saw it.

const (
	intakeRows = 3
	lookBack   = 1 // ticks
	lastTick   = 5
)

var rowNames = [intakeRows]string{"row 0", "row 1", "row 2"}

// handStage is how far a row in hand is.
type handStage uint8

const (
	noHand  handStage = iota
	loading           // its id was in the ring; it is read now
	started           // its handler runs
	stored            // so is its outcome, and the node has not heard of it
)

// intakeRow is a task as it is stored.
type intakeRow struct {
	there, over bool
	late        bool  // it is committed too late for any peek
	known       bool  // a peek has seen it, or a put-back wrote it, since its due time was set
	due         uint8 // tick
}

// open reports whether a row is pending.
func (r intakeRow) open() bool { return r.there && !r.over }

// inHand is a row that takes a slot.
type inHand struct {
	stage  handStage
	due    uint8 // with loading: as it was found
	again  uint8 // found meanwhile, as due then, plus one; 0: not found
	fenced bool  // the user has changed it since it was started
	retry  bool  // with stored: it is to be delivered again
}

// place is one in the order of due times; rows of one time are in the order of their ids.
type place uint8

const nowhere place = 255

func placeOf(due uint8, row int) place { return place(due)*intakeRows + place(row) }

func (p place) due() uint8 { return uint8(p) / intakeRows }

// dues are due times of rows, plus one; 0: not this row.
type dues [intakeRows]uint8

// look is a peek, or a full look, on its way.
type look struct {
	on   bool
	rows dues
	lost uint8 // due time of the earliest entry that the ring has lost since it began, plus one
}

// pull is one on its way.
type pull struct {
	on     bool
	rows   dues
	room   uint8
	full   bool
	last   place // of the page
	lowest place // found since it began
	left   set   // rows that have left the hand since it began
}

// intake is one state of the world.
type intake struct {
	now     uint8
	rows    [intakeRows]intakeRow
	bells   dues
	ring    dues
	hand    [intakeRows]inHand
	horizon uint8
	past    place
	peek    look
	whole   look // full look
	pull    pull
	peeked  bool  // in this tick
	missed  uint8 // ticks without a peek before it
	seen    set   // rows that were there when this tick's peek began, and have not been changed since
	paused  bool
	left    intakeBudget
}

// intakeBudget is what may still happen.
type intakeBudget struct{ changes, retries, pauses, stalls, fails uint8 }

// IntakeGuard is a rule of the protocol. Each can be switched off to show what it prevents.
type IntakeGuard uint8

// The guards.
const (
	KnownIsSkipped    IntakeGuard = iota // what is in the ring or in hand is not taken from a page
	LeftIsSkipped                        // nor what has left the hand since the page was read
	FoundLowersPast                      // what is due and finds no slot lowers the past mark
	PullKeepsLower                       // also during a pull
	PastHasIDs                           // the past mark knows rows of one due time apart
	EvictedLowersPast                    // an entry that is due and leaves a full ring lowers the past mark
	EvictedLowers                        // one that is not due lowers the horizon
	EvictedLowersNext                    // also that of the peek on its way
	EarlierIsTaken                       // what is found again takes the earlier of both times
	FoundInHand                          // what is found while it is in hand is remembered
	AgainInRing                          // what is put back before the horizon goes into the ring
	AgainDuringPeek                      // also before that of the peek on its way
	FailedIsFound                        // what could not be loaded is found anew
	LoadedIsChecked                      // a loaded row is started only if it is pending and due
	ResumedReadsAll                      // a type that is resumed is read from the beginning
	MissedIsPeeked                       // a peek looks back to the one before it
	FullLook                             // there are full looks
	intakeGuards
)

var intakeGuardNames = [intakeGuards]string{
	"what is known is not pulled", "what left the hand during a pull is not pulled", "what is due lowers the past mark", "it does so during a pull",
	"the past mark has ids", "what is due and evicted lowers the past mark", "what is evicted lowers the horizon",
	"it lowers that of the peek on its way", "the earlier time is taken", "what is found in hand is remembered", "what is put back goes into the ring",
	"it does so before the horizon of the peek on its way", "what could not be loaded is found anew", "what is loaded is checked",
	"what is resumed is read from the beginning", "a peek looks back to the last one", "there are full looks",
}

// intakeWorld makes the steps of a play.
type intakeWorld struct {
	name   string
	rows   [intakeRows]intakeRow // over: not in this play
	ring   int                   // capacity
	slots  uint8
	page   uint8
	ahead  uint8 // ticks that a peek looks ahead
	bells  bool
	budget intakeBudget
	off    [intakeGuards]bool
	steps[intake]
}

func (w *intakeWorld) start() intake {
	return intake{rows: w.rows, past: 0, left: w.budget} // a table that was taken is read from the beginning
}

// inUse is how many slots are taken.
func (s *intake) inUse() (n uint8) {
	for _, h := range s.hand {
		if h.stage != noHand {
			n++
		}
	}
	if s.pull.on {
		n += s.pull.room
	}
	return n
}

// demand is how many rows the lane takes.
func (w *intakeWorld) demand(s *intake) uint8 {
	if s.paused {
		return 0
	}
	return w.slots - s.inUse()
}

// find takes a row that is due then into the ring, or notes that it is unread.
func (w *intakeWorld) find(s *intake, n int, due uint8) {
	switch h := &s.hand[n]; {
	case h.stage != noHand:
		if !w.off[FoundInHand] && (h.again == 0 || due+1 < h.again) {
			h.again = due + 1
		}
	case s.ring[n] != 0:
		if due+1 < s.ring[n] && !w.off[EarlierIsTaken] {
			s.ring[n] = due + 1
		}
	case due <= s.now && w.demand(s) <= s.ripe():
		if !w.off[FoundLowersPast] {
			w.lower(s, n, due)
		}
	default:
		s.ring[n] = due + 1
		w.evict(s)
	}
}

// ripe counts the entries of the ring that are due.
func (s *intake) ripe() (n uint8) {
	for _, due := range s.ring {
		if due != 0 && due-1 <= s.now {
			n++
		}
	}
	return n
}

// lower notes that a row that is due is unread.
func (w *intakeWorld) lower(s *intake, n int, due uint8) {
	at := placeOf(due, n)
	s.past = min(s.past, at)
	if s.pull.on && !w.off[PullKeepsLower] {
		s.pull.lowest = min(s.pull.lowest, at)
	}
}

// evict takes the latest entry out of a ring that holds too many.
func (w *intakeWorld) evict(s *intake) {
	entries, latest := 0, 0
	for n, due := range s.ring {
		if due != 0 {
			entries++
		}
		if due >= s.ring[latest] {
			latest = n
		}
	}
	if entries <= w.ring {
		return
	}
	due := s.ring[latest] - 1
	s.ring[latest] = 0
	if due <= s.now {
		if !w.off[EvictedLowersPast] {
			w.lower(s, latest, due)
		}
		return
	}
	if !w.off[EvictedLowers] {
		s.horizon = min(s.horizon, due)
	}
	if s.peek.on && !w.off[EvictedLowersNext] && (s.peek.lost == 0 || due+1 < s.peek.lost) {
		s.peek.lost = due + 1
	}
}

// leave takes a row out of hand, and finds it again if it is to be.
func (w *intakeWorld) leave(s *intake, n int) {
	h := s.hand[n]
	s.hand[n] = inHand{}
	if s.pull.on && !w.off[LeftIsSkipped] {
		s.pull.left.put(n)
	}
	if h.again != 0 {
		w.find(s, n, h.again-1)
	}
}

// putBack is what follows a row that was stored as due then.
func (w *intakeWorld) putBack(s *intake, n int, due uint8) {
	horizon := s.horizon
	if s.peek.on && !w.off[AgainDuringPeek] {
		horizon = max(horizon, s.now+w.ahead+1)
	}
	if due <= s.now || due < horizon && !w.off[AgainInRing] {
		w.find(s, n, due)
	}
}

// settled reports whether every row is delivered.
func (w *intakeWorld) settled(s *intake) bool {
	for _, r := range s.rows {
		if !r.over {
			return false
		}
	}
	return true
}
