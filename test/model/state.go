package model

// Role says how an actor comes to its rows.
type Role uint8

// The roles.
const (
	None    Role = iota // no actor
	Node                // owns tables, gives them up, goes into claim mode
	Sweeper             // peeks what is overdue, claims it
	Claimer             // a node where nobody owns tables: loads what is due, claims it
)

// maxActors is how many processes a cast has at most.
const maxActors = 3

// Cast says who plays and how much may go wrong: the search covers every history within it.
type Cast struct {
	Name        string
	Roles       [maxActors]Role
	Strict      bool  // the biz type is
	Faults      uint8 // kill -9, SIGSTOP, lost acknowledgements, database away: so many in all
	HandOvers   uint8 // of the table by a node that lives
	Reschedules uint8
	Redrives    uint8 // with any, an operator plays: may bury at any time
	SameKey     bool  // redrives keep the version
	Breaks      bool  // the user, and an operator, change what is claimed too; of a strict biz type they try to in any cast
	InTx        bool  // handlers may complete in their own transaction
	Late        bool  // handlers may succeed after their time-out
	Coincide    bool  // two writes of one tick may set the same action_time, to the millisecond
}

// phase is where an actor is with its attempt.
type phase uint8

const (
	idle       phase = iota
	peeked           // a sweeper knows the id
	loaded           // waits to be claimed or started
	unsure           // has sent a claim and got no answer
	inClaim          // claimed, waits to start
	checked          // will be sent now
	delivering       // with the handler
	ended            // the outcome waits to be stored
)

// verb is an outcome.
type verb uint8

const (
	success verb = iota
	retry
	snooze
	giveUp
	giveBack // claimed, but never started
)

// actor is one process and its attempt at the row. All fields are the process's own knowledge, but for the last block.
type actor struct {
	phase    phase
	verb     verb
	version  uint8
	attempts uint8
	at       int8  // action_time as read; held: the deadline
	found    int8  // a sweeper's claim, not begun: 1 before the found action time, to be given back; 0: none
	timer    uint8 // ticks in this phase; loaded, unsure, inClaim: since the read or claim
	wants    bool  // must claim first
	held     bool  // has claimed the row
	foreign  bool  // could not claim what it has in delivery: somebody else changed it
	doubts   bool  // has sent a claim of the row in its delivery, and got no answer
	leaving  bool  // gives the table up
	frozen   bool
	away     bool // can't reach the database to store its outcome

	same    bool // the row's action_time is at
	stands  bool // doubts: the row's action_time is the deadline of that claim
	again   bool // ... or will be again if a sweeper gives back what it has claimed
	fresh   bool // nobody else has written the row since
	behind  bool // the row's turn ended since
	started bool
	slow    bool // was frozen or cut off since it read the row
	cause   bool // ... when it had checked already: a second delivery is excused
	gap     bool // ... between its check and its send
	counted bool // has cost the row an attempt
}

// rest forgets the attempt.
func (a *actor) rest() {
	*a = actor{leaving: a.leaving}
}

// state is one moment.
type state struct {
	row    row
	actors [maxActors]actor
	owner  uint8 // index+1 of the node with the lease; 0: none
	fence  uint8 // index+1 of the node in the owner row
	late   uint8 // version+1 of a handler that outlived its time-out; 0: none
	left   budget
}

// budget is what may still happen.
type budget struct{ faults, handOvers, reschedules, redrives uint8 }

// start is the first moment: a task due in a tick, the first node its owner.
func (m *machine) start() state {
	c := m.cast
	s := state{left: budget{c.Faults, c.HandOvers, c.Reschedules, c.Redrives}}
	s.row = row{action: 1, due: 1}
	if c.Roles[0] == Node {
		s.owner, s.fence = 1, 1
	}
	return s
}

// sort lets actors of one role change places, as nothing tells one from the other.
func (m *machine) sort(s *state) {
	for range maxActors - 1 {
		for i := range maxActors - 1 {
			if role := m.cast.Roles[i]; role != None && role == m.cast.Roles[i+1] && s.number(i) > s.number(i+1) {
				s.swap(i)
			}
		}
	}
}

// swap lets an actor and the next one change places.
func (s *state) swap(i int) {
	s.actors[i], s.actors[i+1] = s.actors[i+1], s.actors[i]
	for _, of := range [...]*uint8{&s.owner, &s.fence, &s.row.claimant} {
		switch int(*of) {
		case i + 1:
			*of = uint8(i + 2)
		case i + 2:
			*of = uint8(i + 1)
		}
	}
}

// number orders actors, by all that they know and have.
func (s *state) number(i int) (n uint64) {
	a := &s.actors[i]
	for _, part := range [...]uint8{uint8(a.phase), uint8(a.verb), a.version, a.attempts, uint8(a.at), uint8(a.found), a.timer} {
		n = n<<4 | uint64(part&15)
	}
	return n<<20 | bits(
		s.owns(i), int(s.fence) == i+1, int(s.row.claimant) == i+1, a.wants, a.held, a.foreign, a.doubts, a.leaving, a.frozen, a.away,
		a.same, a.stands, a.again, a.fresh, a.behind, a.started, a.slow, a.cause, a.gap, a.counted)
}

// bits makes a number of what holds.
func bits(all ...bool) (n uint64) {
	for _, is := range all {
		n <<= 1
		if is {
			n |= 1
		}
	}
	return n
}

// owns reports whether an actor has the lease.
func (s *state) owns(i int) bool { return int(s.owner) == i+1 }

// unsettled reports whether an actor must not release its table yet.
func (a *actor) unsettled() bool {
	switch a.phase {
	case checked, delivering:
		return !a.held && !a.foreign
	case ended:
		return !a.foreign
	}
	return false
}
