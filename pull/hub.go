package pull

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/dispatcher"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/store"
)

// Bounds of a Request.
const (
	MaxTasks = 100
	MaxWait  = 25 * time.Second
)

const (
	mostWaiting   = 10_000                 // workers of one node
	leastWait     = 100 * time.Millisecond // a request waits at least so long, as tasks are looked for only now ...
	firstWait     = 5 * time.Second        // ... and so long if nobody has asked lately: the node has to begin to look
	parkFor       = 500 * time.Millisecond // how long claimed tasks wait for a worker
	releaseWithin = 10 * time.Second       // for tasks that did not reach their worker
	askedFor      = 10 * time.Second       // a biz type that nobody has asked for so long is left to other nodes
)

var (
	// ErrNotRunning says that the node has not started yet, or has ended.
	ErrNotRunning = errors.New("the node does not run yet, or has ended")
	// ErrFull says that as many workers wait as may.
	ErrFull = errors.New("as many workers wait at this node as may: ask another one")

	errClock     = errors.New("the server's clock is not known yet")
	errSchedule  = errors.New("the schedule of the run can't be read")
	errLastLease = errors.New("the lease of its last attempt ran out")
)

// Request asks for tasks.
type Request struct {
	BizTypes []string      // each once, at least one
	Max      int           // tasks, 1 to MaxTasks
	Wait     time.Duration // for the first of them, 0 to MaxWait; at least 100 ms, or 5 s if nobody has asked this node for 10 s
}

// check returns what is wrong with a request.
func (r Request) check() error {
	switch {
	case len(r.BizTypes) == 0:
		return client.Refuse(tocsin.ErrInvalid, "name a biz type at least")
	case r.Max < 1 || r.Max > MaxTasks:
		return client.Refuse(tocsin.ErrInvalid, "max %d: use 1 to %d", r.Max, MaxTasks)
	case r.Wait < 0 || r.Wait > MaxWait:
		return client.Refuse(tocsin.ErrInvalid, "wait %s: use 0s to %s", r.Wait, MaxWait)
	}
	return nil
}

// Task is a task that a worker has.
type Task struct {
	tocsin.Info
	Lease string        // settles and extends it
	Until time.Time     // the lease lasts until then at least, by the clock of the task's server
	For   time.Duration // so long it lasts from its begin
	from  *Backend
}

// Hub knows who waits, and what for. Make one with NewHub; it serves while a node has it open. Its methods are safe for concurrent use.
type Hub struct {
	metrics *metrics
	news    chan struct{} // 1 slot: a biz type that nobody had asked for is asked for

	mu      sync.Mutex
	backend *Backend         // nil: not open
	lines   map[string]*line // by biz type
	waiting int
	turn    uint64
}

// line is one biz type: the workers that wait, and the tasks that wait for a worker. Hub.mu guards all fields except wants.
type line struct {
	hub      *Hub
	name     string
	number   uint64
	lease    time.Duration
	attempts int
	wants    atomic.Int64 // tasks that those who wait have room for
	waiters  []*waiter    // first come first
	offers   []*offer
	asked    time.Time // last, by a worker; zero: never
	served   uint64    // the turn in which it last had a task for a worker
}

// waiter is a request that waits.
type waiter struct {
	backend *Backend // that was open as it came
	lines   []*line
	max     int
	wait    time.Duration
	tasks   []Task
	ready   chan struct{} // closed once it is answered; then it stands in no line
}

// offer is claimed tasks that wait for workers.
type offer struct {
	tasks []tocsin.Info
	errs  []error // of those that are handed over: ErrLeased
	left  []int   // the others
	taken chan struct{}
}

// NewHub makes a Hub that is not open.
func NewHub() *Hub {
	return &Hub{metrics: newMetrics(nil), news: make(chan struct{}, 1), lines: map[string]*line{}}
}

// News has a value when a biz type has become wanted: see Target.
func (h *Hub) News() <-chan struct{} { return h.news }

// Target returns where the tasks of a biz type go. False: no worker has asked this node for them for 10 s.
func (h *Hub) Target(p biztype.Policy) (dispatcher.Target, bool) {
	full := p.WithDefaults()
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.line(p.Name)
	l.number, l.lease, l.attempts = p.Number, full.Pull.Lease.D(), full.Attempts
	h.metrics.waiters.WithLabelValues(p.Name).Set(float64(len(l.waiters))) // 0 tells that nobody waits
	wanted := len(l.waiters) > 0 || !l.asked.IsZero() && time.Since(l.asked) < askedFor
	return dispatcher.Target{Sink: l, Batch: MaxTasks, Demand: func() int { return int(l.wants.Load()) }}, wanted
}

// Keep forgets the biz types that are not pulled here any more, except those that workers still wait for.
func (h *Hub) Keep(pulled map[string]bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, l := range h.lines {
		if !pulled[name] && len(l.waiters)+len(l.offers) == 0 {
			delete(h.lines, name)
			h.metrics.waiters.DeleteLabelValues(name)
		}
	}
}

// Asked returns when workers last asked for the tasks of each biz type, and how many wait for each now.
func (h *Hub) Asked() map[string]Asked {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := map[string]Asked{}
	for name, l := range h.lines {
		all[name] = Asked{Waiting: len(l.waiters), Last: l.asked}
	}
	return all
}

// Asked is what is known of the workers of a biz type at one node.
type Asked struct {
	Waiting int       `json:"waiting"`       // workers, now
	Last    time.Time `json:"last,omitzero"` // when one asked last, by this host's clock; zero: none has
}

// line finds or makes a line. Called under mu.
func (h *Hub) line(name string) *line {
	l := h.lines[name]
	if l == nil {
		l = &line{hub: h, name: name}
		h.lines[name] = l
	}
	return l
}

// Deliver offers claimed tasks to workers: ErrLeased for each that one has, ErrUntaken for the others.
func (l *line) Deliver(ctx context.Context, tasks []tocsin.Info) []error {
	o := &offer{tasks: tasks, errs: make([]error, len(tasks)), taken: make(chan struct{})}
	l.hub.mu.Lock()
	for i, t := range tasks {
		_, _, leased := store.LeaseBegan(t.ClaimedBy)
		switch o.errs[i] = dispatcher.ErrUntaken; {
		case !leased: // it was claimed for a target that the policy had before
		case t.Attempts >= l.attempts:
			o.errs[i] = tocsin.Bury(errLastLease)
		default:
			o.left = append(o.left, i)
		}
	}
	if l.hub.backend != nil {
		l.serve(o)
	}
	parked := len(o.left) > 0 && l.hub.backend != nil
	if parked {
		l.offers = append(l.offers, o)
	}
	l.hub.mu.Unlock()
	if !parked {
		return o.errs
	}
	late := time.NewTimer(parkFor)
	defer late.Stop()
	select {
	case <-o.taken:
	case <-late.C:
	case <-ctx.Done():
	}
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	l.offers = slices.DeleteFunc(l.offers, func(other *offer) bool { return other == o })
	return o.errs
}

// serve hands the tasks of an offer to the workers that wait, to each at most its share. Called under Hub.mu.
func (l *line) serve(o *offer) {
	for len(l.waiters) > 0 && len(o.left) > 0 {
		share := (len(o.left) + len(l.waiters) - 1) / len(l.waiters)
		l.give(o, l.waiters[0], share)
	}
}

// give answers a waiter with tasks of an offer, at most most of them. Called under Hub.mu.
func (l *line) give(o *offer, w *waiter, most int) {
	n := min(w.max, most, len(o.left))
	for _, i := range o.left[:n] {
		w.tasks = append(w.tasks, l.leased(o.tasks[i], w.backend))
		o.errs[i] = dispatcher.ErrLeased
	}
	if o.left = o.left[n:]; len(o.left) == 0 {
		close(o.taken)
	}
	l.hub.turn++
	l.served = l.hub.turn
	l.hub.metrics.reserved.WithLabelValues(l.name).Add(float64(n))
	l.hub.leave(w)
}

func (l *line) leased(info tocsin.Info, from *Backend) Task {
	text, began, _ := store.LeaseBegan(info.ClaimedBy)
	return Task{Info: info, Lease: info.Key() + "." + text, Until: time.UnixMilli(began).Add(l.lease).UTC(), For: l.lease, from: from}
}

// leave takes a waiter out of its lines. Called under Hub.mu.
func (h *Hub) leave(w *waiter) {
	for _, l := range w.lines {
		l.waiters = slices.DeleteFunc(l.waiters, func(other *waiter) bool { return other == w })
		l.asked = time.Now()
		l.wants.Add(int64(-w.max))
		h.metrics.waiters.WithLabelValues(l.name).Set(float64(len(l.waiters)))
	}
	w.lines = nil
	h.waiting--
	close(w.ready)
}

// join has a request served from what is offered, or wait.
func (h *Hub) join(r Request) (*waiter, error) {
	b, err := h.open()
	if err != nil {
		return nil, err
	}
	for _, name := range r.BizTypes {
		if err := b.pulls(name); err != nil { // without mu, as the node asks for a Target while it holds the lock of the policies
			return nil, err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.backend != b:
		return nil, ErrNotRunning
	case h.waiting >= mostWaiting:
		return nil, ErrFull
	}
	w := &waiter{backend: b, max: r.Max, wait: max(r.Wait, leastWait), ready: make(chan struct{})}
	var most *line
	for _, name := range r.BizTypes {
		l := h.line(name)
		if len(l.waiters) == 0 && time.Since(l.asked) >= askedFor {
			w.wait = max(r.Wait, firstWait)
			select {
			case h.news <- struct{}{}:
			default:
			}
		}
		w.lines, l.waiters = append(w.lines, l), append(l.waiters, w)
		l.wants.Add(int64(w.max))
		h.metrics.waiters.WithLabelValues(name).Set(float64(len(l.waiters)))
		if len(l.offers) > 0 && (most == nil || l.served < most.served) {
			most = l
		}
	}
	h.waiting++
	if most != nil { // what is parked has found nobody who waits
		most.takeFrom(w)
	}
	return w, nil
}

// takeFrom answers a waiter from what is offered. Called under Hub.mu.
func (l *line) takeFrom(w *waiter) {
	o := l.offers[0]
	if len(o.left) <= w.max {
		l.offers = l.offers[1:]
	}
	l.give(o, w, w.max)
}

// pulls returns why workers can't ask a node of this group for a biz type; nil if they can.
func (b *Backend) pulls(name string) error {
	for _, p := range b.Policies() {
		switch {
		case p.Name != name:
		case p.Pull == nil:
			return client.Refuse(tocsin.ErrInvalid, "biz type %q is not pulled: its policy has no pull", name)
		case !b.Mine(p):
			return client.Refuse(tocsin.ErrInvalid, "biz type %q belongs to group %s: ask the API of a node of that group", name, p.WithDefaults().Group)
		default:
			return nil
		}
	}
	return client.Refuse(tocsin.ErrUnknownBizType, "unknown biz type %q", name)
}

// Reserve waits for tasks and returns them. It returns none when Request.Wait is over, or when the node stops. Tasks that come when ctx
// has ended are given back.
func (h *Hub) Reserve(ctx context.Context, r Request) ([]Task, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	w, err := h.join(r)
	if err != nil {
		return nil, err
	}
	late := time.NewTimer(w.wait)
	defer late.Stop()
	h.ask(w)
	select {
	case <-w.ready:
	case <-late.C:
	case <-ctx.Done():
	}
	h.mu.Lock()
	if w.lines != nil {
		h.leave(w)
	}
	h.mu.Unlock()
	if ctx.Err() != nil {
		w.backend.release(ctx, w.tasks)
		return nil, ctx.Err()
	}
	return w.tasks, nil
}

// ask has the dispatcher look at the demand of a waiter's lines.
func (h *Hub) ask(w *waiter) {
	h.mu.Lock()
	b, numbers := h.backend, []uint64(nil)
	for _, l := range w.lines {
		numbers = append(numbers, l.number)
	}
	h.mu.Unlock()
	for i := 0; b != nil && i < len(numbers); i++ {
		b.Ask(numbers[i])
	}
}

// Open lets the Hub serve, until Close.
func (h *Hub) Open(b Backend) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b.metrics = newMetrics(b.Registerer)
	h.backend, h.metrics = &b, b.metrics
}

// Close answers all who wait, and refuses new requests. What is offered finds no worker.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.backend = nil
	for _, l := range h.lines {
		for len(l.waiters) > 0 {
			h.leave(l.waiters[0])
		}
		for _, o := range l.offers {
			close(o.taken)
		}
		l.offers = nil
	}
}
