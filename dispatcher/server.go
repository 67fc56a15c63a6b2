package dispatcher

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// table is what is known of one table.
type table struct {
	admitted     bool
	access       duequeue.Access // the last one
	since        time.Time       // it was admitted then
	uncleanUntil time.Time       // overdue rows are claimed first until then
	avoidUntil   time.Time       // it was locked: leave it alone until then, and try one row; zero: it was not
	probed       bool            // that row is being tried
}

// server is one database server: its lanes, the tables admitted, and what is in
// delivery. Its settler has the outcomes.
type server struct {
	d      *Dispatcher
	index  int
	limit  loop.LogLimit // on log lines about the server
	turn   chan struct{} // token: its holder takes the next batch, the other loaders wait
	wake   chan struct{} // one slot: something became due or found room
	looks  chan struct{} // one slot: a key is to be looked at
	sooner chan struct{} // one slot: a row is held that is due before all others
	reads  chan struct{} // a slot for each load whose runs have their schedules read
	begins chan struct{} // a slot for each run of a schedule that begins
	ends   chan struct{} // a slot for each that ends: it must not wait for all those that want to begin

	settler *settler
	wary    atomic.Int64 // Unix ns: until then claims under sessions don't wait for locks

	mu          sync.Mutex
	lanes       map[uint64]*lane // by biz type number
	order       []*lane
	next        int // lane to look at first
	probes      int // entries of locked tables that are being loaded
	tables      map[int]*table
	owner       string               // the last one that tables were admitted under
	unsureUntil time.Time            // no row is held until then, as the estimate of the server's clock was ahead
	lastClock   int64                // the server's, in ms, when a loader last looked for rows while it was known
	lastAt      time.Time            // then, by this process's
	early       []*task              // rows held until they are due, the one that is due first in front
	open        tasks                // in delivery or waiting to be settled
	turns       map[uint64]time.Time // schedules of which a run is about to begin: zero; or that were locked: left alone until then
	keys        map[key]*keyState    // with rows in hand, or a look to come
	lookups     map[key]time.Time    // when to look at a key
	overruns    map[tocsin.JobID]*overrun
	lost        []*lostClaim // not more than mostLost
	waiters     map[*waiter]struct{}
}

func newServer(d *Dispatcher, index int) *server {
	s := &server{
		d:       d,
		index:   index,
		turn:    make(chan struct{}, 1),
		wake:    make(chan struct{}, 1),
		looks:   make(chan struct{}, 1),
		sooner:  make(chan struct{}, 1),
		reads:   make(chan struct{}, runsAtOnce),
		begins:  make(chan struct{}, runsAtOnce),
		ends:    make(chan struct{}, runsAtOnce),
		turns:   make(map[uint64]time.Time),
		lanes:   make(map[uint64]*lane),
		tables:  make(map[int]*table),
		waiters: make(map[*waiter]struct{}),

		keys:     make(map[key]*keyState),
		lookups:  make(map[key]time.Time),
		overruns: make(map[tocsin.JobID]*overrun),
	}
	s.settler = &settler{server: s, flush: make(chan struct{}, 1), shut: make(map[int]*part)}
	return s
}

// now is a lower bound of the server's clock in Unix milliseconds; 0: unknown.
func (s *server) now() int64 { return s.nowMicro() / 1000 }

// nowMicro returns the server's time in microseconds.
func (s *server) nowMicro() int64 { return s.d.cfg.Store.NowMicro(s.index) }

// estimate is now; while the server's clock is not known, as after a move to another address, it is that at which a
// loader last looked for rows, counted on by this process's clock. What is put off then is put off in full.
func (s *server) estimate() int64 {
	if now := s.now(); now > 0 {
		return now
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastClock + time.Since(s.lastAt).Milliseconds()
}

// persist sends a statement to the server again and again, after 20 ms at first and then up to 1 s apart, as long as its error is one that
// passes and ctx lasts. Each error is counted, and one of the whole server is logged.
func persist[T any](ctx context.Context, s *server, statement string, passes func(mysql.Class) bool, send func() (T, error)) (T, error) {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 20*time.Millisecond, time.Second
	return backoff.Retry(ctx, func() (T, error) {
		got, err := send()
		if err == nil {
			return got, nil
		}
		s.d.metrics.failed(statement, err)
		class := mysql.ClassOf(err)
		if class.OfServer() {
			s.warn("away", "server "+mysql.Fault(err)+": its outcomes and due rows wait", err, "statement", statement)
		}
		if !passes(class) {
			err = backoff.Permanent(err)
		}
		return got, err
	}, backoff.WithBackOff(pause), backoff.WithMaxElapsedTime(0))
}

// setLane makes the kind's lane, or changes its share of the queue.
func (s *server) setLane(k *kind, capacity int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.lanes[k.number]; l != nil {
		l.queue.SetCap(capacity)
		return
	}
	l := &lane{kind: k, server: s, queue: duequeue.New(capacity), claims: make(chan struct{}, claimsAtOnce), asked: true}
	s.lanes[k.number] = l
	s.order = append(s.order, l)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lanes = append(k.lanes, l)
}

// Offer queues entries of a server and returns the refused ones: entries without a
// lane, entries whose lane is full of nearer ones, entries that gave way to nearer
// ones, and entries of tables that are not admitted.
func (d *Dispatcher) Offer(server int, entries []duequeue.Entry) (refused []duequeue.Entry) {
	s := d.servers[server]
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offer(entries, now)
}

// offer is Offer under s.mu.
func (s *server) offer(entries []duequeue.Entry, now int64) (refused []duequeue.Entry) {
	for _, e := range entries {
		if s.strange(e.JobID.Table(), e.Type) {
			continue
		}
		guest := s.guest(e.JobID.Table())
		if l := s.lanes[e.Type]; l != nil && !l.paused() && s.admitted(e.JobID.Table()) {
			if guest {
				e.Due = max(e.Due, now) + guestDelay.Milliseconds()
			}
			refused = l.offer(e, refused)
		} else if !guest {
			refused = append(refused, e)
		}
	}
	signal(s.wake)
	return refused
}

// types returns the biz types whose lanes are not paused; with roomy, only those whose queues have room.
func (s *server) types(roomy bool) []uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var types []uint64
	for _, l := range s.order {
		switch {
		case l.paused():
			l.asked = true
		case roomy && !l.roomy():
			l.refused = true
		default:
			types = append(types, l.kind.number)
		}
	}
	return types
}

// Lane returns how many entries of a biz type a server's lane holds, queued or not
// yet settled, and how many more it accepts. open is false if the type is paused or
// can't be delivered here, or its target is away: then none of its entries start.
func (d *Dispatcher) Lane(server int, bizType uint64) (held, room int, open bool) {
	s := d.servers[server]
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lanes[bizType]
	if l == nil {
		return 0, 0, false
	}
	held = l.queue.Known() + l.looksToCome()
	return held, l.queue.Room(), !l.rests()
}

// admitted reports whether rows of the table may start. Called under s.mu.
func (s *server) admitted(number int) bool {
	return s.known(number).admitted
}

// fence returns the owner whose claims count in the table, if its rows may not start
// on ownership: ownership can't be proven just now, or is another node's. Otherwise
// it returns "". Called under s.mu.
func (s *server) fence(number int) string {
	as := s.known(number).access
	if as.Types == nil && (as.Owner == "" || s.d.cfg.LeaseOK(as.Owner)) {
		return ""
	}
	return as.Owner
}

// guest reports whether another process looks at the table first: by the time at which its rows start here it has claimed
// them, if it can. Called under s.mu.
func (s *server) guest(number int) bool {
	return s.known(number).access.Guest
}

// strange reports whether this process must not start rows of the type, as it stands in for the table's owner with other
// types only. Called under s.mu.
func (s *server) strange(number int, bizType uint64) bool {
	return !s.known(number).access.Reads(bizType)
}

// known finds or makes a table. Called under s.mu.
func (s *server) known(number int) *table {
	t := s.tables[number]
	if t == nil {
		t = &table{}
		s.tables[number] = t
	}
	return t
}

// roomAgain finds the lanes that had no room, or no demand, and have. Called under
// s.mu; the caller calls Woken after unlocking if it returns true.
func (s *server) roomAgain() bool {
	woken := false
	for _, l := range s.order {
		if l.refused && l.roomy() || l.asked && !l.rests() && l.takesMore() {
			l.refused, l.asked, woken = false, false, true
		}
	}
	return woken
}
