package dispatcher

import (
	"cmp"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/schedule"
)

// task is one loaded row on its way to its outcome.
type task struct {
	lane      *lane
	row       *store.Row     // Action is guarded by server.mu once the task is open
	turn      *schedule.Turn // nil: it is no run of a schedule
	asked     time.Time      // when its load was sent, monotonic
	loaded    time.Time      // when it had come, and was claimed if it had to be
	until     time.Time      // claimed: the claim ends after this; zero: no claim
	by        string         // claimed: the claimer; "": this node
	session   bool           // claimed: under a session, and by is the token; action_time is its own
	lookAgain int64          // it is given back, and looked at again then; 0: at once
	late      time.Duration
	began     time.Time     // its delivery; guarded by server.mu
	timeout   time.Duration // of the delivery, once it has started
	size      int64         // bytes of its payload, while they count

	// Guarded by server.mu.
	place      int       // in server.open
	reportedAt time.Time // reported: since then
	doubt      int64     // deadline of a claim by Drain that may be valid; 0: none
	parked     *ending   // came while claiming
	claimed    bool      // guarded only once the task is open
	keyed      bool      // it counts among the rows of its key that are in hand
	suspect    bool      // it counts among the rows in hand that may have ended processes
	reported   bool      // waits to be settled
	claiming   bool      // Drain is claiming it
	foreign    bool      // Drain could not claim it: somebody else changed it
	overtime   bool      // its handler is over its time-out, and its claim is prolonged
}

// tasks is a set of tasks, each of which knows its place in it.
type tasks []*task

func (all *tasks) add(t *task) {
	t.place = len(*all)
	*all = append(*all, t)
}

// remove does nothing where the task is not in the set.
func (all *tasks) remove(t *task) {
	in := *all
	if t.place >= len(in) || in[t.place] != t {
		return
	}
	last := len(in) - 1
	in[t.place] = in[last]
	in[t.place].place = t.place
	in[last] = nil
	*all = in[:last]
}

func (t *task) table() int { return t.row.JobID.Table() }

// entry gives the queue's view of the row.
func (t *task) entry(due int64) duequeue.Entry {
	return duequeue.Entry{JobID: t.row.JobID, Type: t.row.Type, Due: due}
}

// ending says how an attempt ended, or that it never started.
type ending struct {
	verb      tocsin.Verb
	undone    bool  // not an attempt: it never started, or the end of the dispatcher cut it off
	next      int64 // Retried, Snoozed: the next action time
	notBefore int64 // of an undone one: its target could not be reached, and is not called before then; 0: it may be
	reason    string
	took      time.Duration
	run       *store.Run // for the history; nil: none is kept of it
}

// result is an ending on its way to the database.
type result struct {
	*task
	ending
	after bool // success after the attempt had been settled as failed: the task is no longer open
}

// outcome is built as late as this since Drain may have claimed the row meanwhile.
func (r result) outcome() store.Outcome {
	return store.Outcome{
		JobID:     r.row.JobID,
		Verb:      r.verb,
		Version:   r.row.Version,
		Attempts:  r.row.Attempts,
		Claimed:   r.claimed,
		By:        cmp.Or(r.by, r.lane.kind.d.cfg.Node),
		Action:    r.row.Action,
		Prolonged: r.overtime,
		Token:     r.claimed && r.lane.kind.d.claims(),
		Back:      r.undone && r.lane.kind.d.claims(),
		Next:      r.next,
		Reason:    r.reason,
		InTx:      r.verb == tocsin.Completed && r.lane.kind.inTx.Load(),
	}
}
