package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
)

// The phases of a Dispatcher. Deliveries start in running alone.
const (
	fresh int32 = iota
	running
	stopping
)

// errStopping is why a delivery's context ends before its time-out.
var errStopping = errors.New("the node is stopping")

// Dispatcher delivers the tasks of one node. Its methods are safe for
// concurrent use.
type Dispatcher struct {
	cfg      Config
	metrics  *metrics
	phase    atomic.Int32
	suspect  atomic.Bool // a row that has crashed processes before is in hand
	suspects suspects    // instead, where rows are claimed under sessions
	servers  []*server
	payloads payloads
	yields   yields
	workers  tally // goroutines that deliver
	takes    tally // Takes under way, which may yet make rows ready
	claimed  atomic.Int64
	claimNo  atomic.Uint64 // of the last claim

	work      context.Context // of deliveries; outlives Run's context
	stopWork  context.CancelCauseFunc
	intake    context.Context // ends with Run's context
	endIntake context.CancelFunc
	drainBy   atomic.Pointer[time.Time] // nil: the drain time-out after the end of Run's context

	mu       sync.Mutex
	kinds    map[uint64]*kind // by biz type number; never shrinks
	informed bool             // SetPolicies has been called
}

// New makes a Dispatcher. It knows no biz types before SetPolicies and starts
// nothing before Run.
func New(cfg Config) (*Dispatcher, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	d := &Dispatcher{cfg: cfg.withDefaults(), kinds: make(map[uint64]*kind)}
	d.suspects.inHand, d.suspects.waiting = make(map[*task]suspect), make(map[tocsin.JobID]waitingSuspect)
	d.payloads.limit = d.cfg.PayloadBytes
	d.work, d.stopWork = context.WithCancelCause(context.Background())
	d.intake, d.endIntake = context.WithCancel(context.Background())
	for i := range cfg.Servers {
		d.servers = append(d.servers, newServer(d, i))
	}
	d.metrics = newMetrics(cfg.Registerer, d.Stats)
	d.exportLanes(cfg.Registerer)
	return d, nil
}

// Run loads, delivers and settles until ctx ends. Then it starts nothing more, lets
// deliveries in hand run for the drain time-out (see DrainBy), and settles every
// outcome, which may take 5 s more. It returns nil, or an error with the number of
// outcomes that could not be settled. It may be called once.
func (d *Dispatcher) Run(ctx context.Context) error {
	if !d.phase.CompareAndSwap(fresh, running) {
		return errors.New("dispatcher: Run called twice")
	}
	defer d.stopWork(errStopping)
	defer context.AfterFunc(ctx, d.endIntake)()
	hard, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	watching, unwatch := context.WithCancel(hard)
	defer unwatch()
	var intake, outlet, watches sync.WaitGroup
	for _, s := range d.servers {
		intake.Go(func() { s.runStarter(ctx) })
		intake.Go(func() { s.runKeys(ctx) })
		for range loaders {
			intake.Go(func() { s.runLoader(ctx) })
		}
		watches.Go(func() { s.watch(watching) })
		if !d.claims() {
			watches.Go(func() { s.runKeeper(watching) })
		}
		for range settlers {
			outlet.Go(func() { s.settler.run(hard) })
		}
		outlet.Go(func() { s.runLost(hard, watching.Done()) })
	}
	watches.Go(func() { d.tidyLoop(watching) })
	for _, k := range d.allKinds() {
		k.pump()
		k.wakeServers()
	}
	intake.Wait()
	end := d.drainEnd()
	d.stopStarts(end)
	d.awaitWorkers(end)
	unwatch()
	watches.Wait()
	return d.closeSettlers(&outlet, end.Add(hardStop), abandon)
}

// DrainBy sets a time at which Run cuts off the deliveries in hand, if that is
// earlier than the drain time-out after the end of its context. It serves a caller
// that began to stop before it ended the context.
func (d *Dispatcher) DrainBy(at time.Time) { d.drainBy.Store(&at) }

// drainEnd returns when deliveries that are in hand now are cut off.
func (d *Dispatcher) drainEnd() time.Time {
	end := time.Now().Add(d.cfg.DrainTimeout)
	if by := d.drainBy.Load(); by != nil && by.Before(end) {
		return *by
	}
	return end
}

// tidyLoop gives back, once a second, ready rows that have waited too long. It also logs overruns, and wakes settlers for parts that were set aside.
func (d *Dispatcher) tidyLoop(ctx context.Context) {
	tick := time.NewTicker(time.Second) // fires with those of the servers: an idle process wakes once
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, k := range d.allKinds() {
			timeout := k.rule.Load().timeout
			giveBack(k.takeReady(func(t *task) bool { return t.tooOld(time.Now(), timeout) }))
			k.tellOverruns(time.Now())
		}
		for _, s := range d.servers {
			s.settler.wakeAside()
		}
	}
}

// stopStarts lets no further delivery start and gives back what is loaded, and
// what a Take that is under way claims yet.
func (d *Dispatcher) stopStarts(end time.Time) {
	d.phase.Store(stopping)
	_ = d.takes.endBy(end)
	for _, s := range d.servers {
		s.giveBackEarly(func(*task) bool { return true })
	}
	for _, k := range d.allKinds() {
		k.stop()
		giveBack(k.takeReady(func(*task) bool { return true }))
	}
}

// awaitWorkers waits for the deliveries in hand. After the drain time-out their
// contexts end, and they are settled as not attempted; a target that does not
// return even then is left behind.
func (d *Dispatcher) awaitWorkers(end time.Time) {
	if d.workers.endBy(end) {
		return
	}
	d.stopWork(errStopping)
	for _, k := range d.allKinds() { // what begins later finds out by itself that the node ends
		k.mu.Lock()
		all := slices.Collect(maps.Keys(k.workers))
		k.mu.Unlock()
		for _, w := range all {
			w.expire(time.Time{})
		}
	}
	if !d.workers.endBy(time.Now().Add(time.Second)) {
		d.cfg.Logger.Warn("targets that ignore their context are left behind", "deliveries", d.workers.count())
	}
}

// closeSettlers waits until every outcome is stored, at most until end.
func (d *Dispatcher) closeSettlers(outlet *sync.WaitGroup, end time.Time, abandon context.CancelFunc) error {
	for _, s := range d.servers {
		s.settler.close()
	}
	timer := time.AfterFunc(time.Until(end), abandon)
	outlet.Wait()
	timer.Stop()
	lost := 0
	for _, s := range d.servers {
		lost += int(s.settler.unsettled.Load())
	}
	if lost > 0 {
		return fmt.Errorf("dispatcher: %d outcomes could not be settled; these tasks will be delivered again", lost)
	}
	return nil
}

// SetPolicies brings the lanes up to date: types appear, change, pause. A type
// that is missing, paused or without a target stops: its queued rows wait and
// nothing of it is loaded, claimed or retried. Deliveries in hand end under the
// policy they started with.
func (d *Dispatcher) SetPolicies(policies []biztype.Policy) {
	d.mu.Lock()
	defer d.mu.Unlock()
	named, classes := make(map[uint64]bool, len(policies)), make(map[class]bool)
	for _, p := range policies {
		target, ok := d.cfg.Target(p)
		if !ok {
			continue
		}
		named[p.Number], classes[classOf(p.Priority)] = true, true
		d.kindOf(p).set(newRule(p.WithDefaults(), target, d.cfg.SweepGrace))
	}
	for number, k := range d.kinds {
		if !named[number] {
			k.lack()
		}
	}
	d.yields.mixed.Store(len(classes) > 1)
	d.informed = true
	if len(d.kinds) == 0 {
		return
	}
	capacity := max(d.cfg.QueueCap/(len(d.servers)*len(d.kinds)), 1) // of each lane
	for _, k := range d.kinds {
		for _, s := range d.servers {
			s.setLane(k, capacity)
		}
	}
	for _, k := range d.kinds {
		k.pump()
		k.wakeServers()
	}
}

// kindOf finds or makes a kind and its lanes. Called under d.mu.
func (d *Dispatcher) kindOf(p biztype.Policy) *kind {
	if k := d.kinds[p.Number]; k != nil {
		return k
	}
	k := &kind{d: d, payload: share{all: &d.payloads}, number: p.Number, metrics: d.metrics.of(p.Name), workers: make(map[*worker]bool)}
	d.kinds[p.Number] = k
	return k
}

func (d *Dispatcher) allKinds() []*kind {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Values(d.kinds))
}

// Wanted returns the numbers of the biz types that have room for entries in the
// server's lanes now. Config.Woken is called when another one has.
func (d *Dispatcher) Wanted(server int) []uint64 { return d.servers[server].types(true) }

// Heard returns the numbers of the biz types whose bells should be offered. It
// includes types with full lanes: there, an entry that is due now replaces one that
// is due later.
func (d *Dispatcher) Heard(server int) []uint64 { return d.servers[server].types(false) }

// Claimed returns how many rows were claimed before their delivery so far.
func (d *Dispatcher) Claimed() int { return int(d.claimed.Load()) }

// Stats is a snapshot of what is under way.
type Stats struct {
	Queued    int `json:"queued"`    // ids in the due queues
	Capacity  int `json:"capacity"`  // of the due queues
	Loaded    int `json:"loaded"`    // rows loading or ready
	Open      int `json:"open"`      // rows in delivery or waiting to be settled
	Unsettled int `json:"unsettled"` // outcomes waiting to be settled
	Aside     int `json:"aside"`     // of these, refused by the database and tried at long intervals
	Overrun   int `json:"overrun"`   // tasks with a delivery that is over its time-out and has not returned
	Workers   int `json:"workers"`   // goroutines that deliver

	PayloadBytes int64 `json:"payload_bytes"` // of rows that are being read, wait, or are in delivery
	PayloadLimit int64 `json:"payload_limit"` // the bound of PayloadBytes
}

// Stats adds up all servers.
func (d *Dispatcher) Stats() Stats {
	st := Stats{Workers: d.workers.count(), PayloadBytes: d.payloads.used.Load(), PayloadLimit: d.payloads.limit}
	for _, s := range d.servers {
		s.mu.Lock()
		for _, l := range s.order {
			st.Queued += l.queue.Len()
			st.Capacity += l.queue.Cap()
			st.Loaded += l.held + l.early
		}
		st.Open += len(s.open)
		st.Unsettled += int(s.settler.unsettled.Load())
		st.Aside += s.settler.count()
		st.Overrun += len(s.overruns)
		s.mu.Unlock()
	}
	return st
}
