package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/store"
)

// MinPayloadBytes is the lower bound of Config.PayloadBytes: less would hold up types
// with large payloads.
const MinPayloadBytes = 1 << 20

// Defaults of a Config.
const (
	DefaultQueueCap     = 1_000_000
	DefaultPayloadBytes = 128 << 20
	DefaultDrainTimeout = 30 * time.Second
)

const (
	chunk         = 500                    // rows of one load, one claim, one settle
	loaders       = 4                      // goroutines a server that load
	settlers      = 4                      // goroutines a server that settle: some write while others wait for the disk
	linger        = 2 * time.Millisecond   // how long the first outcome of a batch waits for others
	settleBound   = 10_000                 // outcomes of a server that may wait before its lanes stop loading
	requeueWithin = 10 * time.Second       // the least look-ahead: what is due again within this stays queued in any case
	staleAfter    = 2 * time.Second        // a loaded row that waited longer is loaded again before it starts
	slowWait      = 100 * time.Millisecond // a loaded row that waited longer shows that too much was loaded ahead
	maxAhead      = 4000                   // rows a lane may load beyond its free slots
	guestDelay    = 250 * time.Millisecond // how long rows of a guest's tables are left to the node that looks at them first
	claimMargin   = 5 * time.Second        // a claim lasts the delivery time-out and this
	runsAtOnce    = 3                      // runs of schedules that may begin at once on a server, as many that may end, and as many loads of runs: each keeps a connection while it waits for a lock
	keepEvery     = time.Second            // claims of runs whose handlers are over their time-out are prolonged this often ...
	keepHold      = 15 * time.Second       // ... until so long after
	claimWithin   = 30 * time.Second       // a claim that takes longer has failed
	claimsAtOnce  = 4                      // claims of a lane: some wait for the disk while others are read
	waryFor       = 10 * time.Second       // after a claim met a lock, the lane's claims don't wait for locks; then one tries again whether it has gone
	handOverAfter = 500 * time.Millisecond // Drain claims what is still in delivery after this
	avoidFor      = time.Second            // a locked table is left alone for this long
	probeLook     = 100 * time.Millisecond // other rows of a locked table look this often for the end of its probe
	uncleanFor    = time.Minute            // after an unclean end overdue rows of a table are claimed first for this long
	holdWithin    = 9 * time.Millisecond   // rows that are due within this are loaded ahead of their time, and held until then
	holdLead      = 5 * time.Millisecond   // how long before a row is due its load begins: a round trip, and Go's timers
	unsureFor     = time.Second            // how long no row is held after the estimate of a server's clock was found to be ahead
	recheck       = time.Second            // longest sleep of a loader, so that a moved clock estimate shows
	spareWorkers  = 64                     // of a kind, kept for the next deliveries
	suspectFrom   = 2                      // claims of a row that ran out, from which on it is delivered alone among its like
	makeUp        = 50 * time.Millisecond  // a rate makes up for what it missed within this
	yieldLate     = 3 * time.Millisecond   // a row that begins later makes lower priorities load less ...
	yieldWindow   = 100 * time.Millisecond // ... which is judged this often
	yieldLook     = 10 * time.Millisecond  // those who give way look so often whether they may load
	yieldAfter    = time.Second            // once no row of a priority has begun for so long, the others stop giving way to it
	yieldFirst    = 1000                   // rows a second that those who give way load at first,
	yieldLeast    = 100                    // at least
	yieldMost     = 1e6                    // and at most
	yieldLess     = 0.6                    // times what it was, after a row was late
	yieldMore     = 1.1                    // and after none was
	firstLook     = 50 * time.Millisecond  // until a key is looked at again whose turn did not come; doubles ...
	lastLook      = 2 * time.Second        // ... up to this ...
	vainLooks     = 10                     // ... and ends, as peeks find its rows too
	suspectWait   = 250 * time.Millisecond // until another such row is tried
	clockRecheck  = 100 * time.Millisecond
	hardStop      = 5 * time.Second           // for settling after the drain time-out
	maxPutOff     = 10 * 365 * 24 * time.Hour // until the next attempt, whatever the handler says
	lockedAtOnce  = 2                         // locks met one by one in one try of a table's outcomes
	maxProbes     = loaders / 2               // rows of locked tables that are tried at once
)

// Sink delivers tasks to their target.
type Sink interface {
	// Deliver acts on the tasks and returns one error for each, nil for
	// complete. tocsin.Bury, RetryIn and Snooze are understood. It must return
	// soon after ctx ends and be safe for concurrent use. The slice, not what it
	// holds, is the dispatcher's again once Deliver has returned.
	Deliver(ctx context.Context, tasks []tocsin.Info) []error
}

// Target is where the tasks of a biz type go.
type Target struct {
	Sink    Sink
	Batch   int        // tasks in one Deliver at most; 0: one
	Rows    int        // in delivery at once, and as many loaded: should the target go away, these are put back; at least Batch; 0: no such bound
	Demand  func() int // of a type with Policy.Pull: how many tasks workers wait for now; it must not block
	Version int        // the newest version of their payload that Sink reads: rows with a newer one are left alone; 0: all
}

// Store is what the dispatcher needs of the database.
type Store interface {
	NowMicro(server int) int64 // a lower bound of a server's clock in Unix microseconds; 0 while it is unknown: then nothing is due
	Jumped() time.Time         // when this process last learnt that it had stood still unnoticed; zero: never

	Load(ctx context.Context, server int, ids []tocsin.JobID) (store.Loaded, error)
	Claim(ctx context.Context, c store.Claim) ([]store.Row, error)
	ReadBack(ctx context.Context, d *store.InDoubt) ([]store.Row, error)
	Recheck(ctx context.Context, server int, seen map[tocsin.JobID]store.Seen) (map[tocsin.JobID]store.Fate, error)
	Prolong(ctx context.Context, server int, claims []store.Prolonged) error
	Turns(ctx context.Context, q store.TurnQuery) (map[store.Key]store.Turn, error)
	ClaimRows(ctx context.Context, c store.RowsClaim) (store.ClaimedRows, error)
	OwnClaims(ctx context.Context, server int, tables []int, sessions map[int]string) (map[tocsin.JobID]string, error)
	ReleaseDoubtful(ctx context.Context, server int, by map[tocsin.JobID]string) (int, error)
	EndConnection(ctx context.Context, server int, c store.Connection) (gone bool, err error)
	Settle(ctx context.Context, server int, outcomes []store.Outcome) ([]store.Fate, error) // one fate for each outcome
	Locked(ctx context.Context, server int, ids []tocsin.JobID) (store.Locks, error)
}

// Delivery describes an attempt that ended, for Config.Observe.
type Delivery struct {
	Task     tocsin.Info
	Lateness time.Duration // start minus action time, by the server's clock
	Took     time.Duration
	Verb     tocsin.Verb
	Reason   string    // of a failure
	Next     time.Time // Retried, Snoozed: the next action time
	TimedOut bool      // its target had not returned at its time-out, or at the end of the dispatcher
}

// Settlement describes a stored outcome, for Config.Settled.
type Settlement struct {
	JobID  tocsin.JobID
	Type   uint64 // number of the biz type
	Fate   store.Fate
	Verb   tocsin.Verb
	Undone bool // given back: its delivery never began, or was cut off by the end of the dispatcher
	Missed bool // given back, as its target could not be reached
}

// Config says what to deliver from where to where.
type Config struct {
	Store        Store
	Servers      int                                 // servers, numbered from 0; at least 1
	ServerOf     func(table int) int                 // the server that holds a table
	Sessions     Sessions                            // under which rows are claimed; nil: rows start as the owners of their tables have them
	DatabaseOf   func(table int) int                 // required with Sessions
	Node         string                              // id for claimed_by, at most 64 bytes; required
	QueueCap     int                                 // ids queued over all lanes; 0: 1,000,000
	PayloadBytes int64                               // of rows loaded and not yet delivered, over all lanes; one biz type uses at most half of it; at least 1 MiB; 0: 128 MiB
	SweepGrace   time.Duration                       // the sweepers' grace time; 0: 60 s
	LookAhead    time.Duration                       // the scanner's: a row that is due again within it stays queued or is Refused, a later one is left to the scanner; 0 to 10 s: 10 s
	DrainTimeout time.Duration                       // for deliveries in hand when Run's context ends; 0: 30 s
	Runs         Runs                                // decides about runs of schedules; nil: they are tasks like others
	Target       func(biztype.Policy) (Target, bool) // false: this process can't deliver the type
	Group        string                              // of the node: with the owner of a table it is the fence of claim mode
	LeaseOK      func(owner string) bool             // false: rows of the tables admitted under that owner are claimed first; nil: always true
	Peers        func() int                          // nodes that share a biz type's rate; nil: one
	Woken        func(server int)                    // a lane that had no room for entries, or no demand for whole rows, has; nil: nobody asks
	Refused      func(int, []duequeue.Entry)         // of a server: they are due again within LookAhead, and find no room until then; nil: nobody asks
	Exact        bool                                // held rows start within a fraction of a millisecond, which synctest can't play; false: by Go's timers
	ClaimAll     bool                                // claim every row before it starts, as a sweep must
	MayClaim     func(server int) error              // why nothing may be claimed on a server just now; nil: it always may
	Settled      func(Settlement)                    // called when an outcome is stored, concurrently, must be quick; nil: not called
	Record       func(server int, runs []*store.Run) // called with the runs of a server's stored outcomes, concurrently, must be quick; it may keep the slice; nil: no history is kept
	Observe      func(Delivery)                      // called after each attempt, concurrently, must be quick; nil: not called
	Logger       *slog.Logger                        // nil: warnings and errors go to slog.Default()
	Registerer   prometheus.Registerer               // nil: unregistered

	// Leased is called when workers have tasks of the tables: the first of these claims can be recovered at runOut. nil: not called.
	Leased func(server int, tables []int, runOut time.Time)
}

// Validate reports the first thing that is wrong.
func (c Config) Validate() error {
	switch {
	case c.Store == nil || c.ServerOf == nil || c.Target == nil:
		return errors.New("dispatcher: Store, ServerOf and Target are required")
	case c.Servers < 1:
		return errors.New("dispatcher: needs at least one server")
	case c.Node == "" || len(c.Node) > 64:
		return errors.New("dispatcher: the node id must have 1 to 64 bytes")
	case c.PayloadBytes != 0 && c.PayloadBytes < MinPayloadBytes:
		return fmt.Errorf("dispatcher: PayloadBytes %d must be at least %d", c.PayloadBytes, MinPayloadBytes)
	case c.QueueCap < 0 || c.SweepGrace < 0 || c.DrainTimeout < 0:
		return errors.New("dispatcher: QueueCap, SweepGrace and DrainTimeout must not be negative")
	}
	return nil
}

func (c Config) withDefaults() Config {
	c.Logger = loop.Logger(c.Logger)
	c.QueueCap = cmp.Or(c.QueueCap, DefaultQueueCap)
	c.PayloadBytes = cmp.Or(c.PayloadBytes, DefaultPayloadBytes)
	c.SweepGrace = cmp.Or(c.SweepGrace, biztype.DefaultSweepGrace)
	c.LookAhead = max(c.LookAhead, requeueWithin)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, DefaultDrainTimeout)
	if c.LeaseOK == nil {
		c.LeaseOK = func(string) bool { return true }
	}
	if c.MayClaim == nil {
		c.MayClaim = func(int) error { return nil }
	}
	if c.Peers == nil {
		c.Peers = func() int { return 1 }
	}
	if c.Settled == nil {
		c.Settled = func(Settlement) {}
	}
	if c.Leased == nil {
		c.Leased = func(int, []int, time.Time) {}
	}
	if c.Woken == nil {
		c.Woken = func(int) {}
	}
	if c.Refused == nil {
		c.Refused = func(int, []duequeue.Entry) {}
	}
	return c
}
