package dispatcher

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/tocsinhq/tocsin/biztype"
)

// rule is what a kind goes by at the moment. It never changes; a new policy is
// a new rule.
type rule struct {
	policy     biztype.Policy // with defaults
	sink       Sink
	batch      int
	timeout    time.Duration
	claimAfter time.Duration
	sweptAfter time.Duration
	paused     bool
}

func newRule(p biztype.Policy, t Target, grace time.Duration) *rule {
	timeout := p.Timeout.D()
	return &rule{
		policy:     p,
		sink:       t.Sink,
		batch:      max(t.Batch, 1),
		timeout:    timeout,
		claimAfter: claimAfter(grace, timeout),
		sweptAfter: sweptAfter(grace, timeout),
		paused:     p.Paused,
	}
}

// kind is one biz type: the slots and the rate that its lanes on all servers
// share, and the rows that are ready to start.
type kind struct {
	d       *Dispatcher
	number  uint64
	rule    atomic.Pointer[rule]
	metrics *kindMetrics

	mu      sync.Mutex
	running int           // slots taken, each by one worker
	waiting int           // rows ready over all lanes
	lanes   []*lane       // by server
	turn    int           // lane that is served next
	limiter *rate.Limiter // nil: no limit
	timer   *time.Timer   // pumps when the rate allows the next delivery; nil: none pending
}

func (k *kind) set(r *rule) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rule.Store(r)
	k.limiter = nil
	k.stopTimer() // the old rate's
	if r.policy.Rate > 0 {
		k.limiter = rate.NewLimiter(k.share(r), max(r.batch, 1))
	}
}

// share is this node's part of the cluster-wide rate.
func (k *kind) share(r *rule) rate.Limit {
	return rate.Limit(r.policy.Rate / float64(max(k.d.cfg.Peers(), 1)))
}

func (k *kind) pause() {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := *k.rule.Load()
	r.paused = true
	k.rule.Store(&r)
}

// stop ends starts for good: who saw the running phase under the lock before
// is counted as a worker by now.
func (k *kind) stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stopTimer()
}

// stopTimer is called under k.mu.
func (k *kind) stopTimer() {
	if k.timer != nil {
		k.timer.Stop()
		k.timer = nil
	}
}

// free is how many rows could start at once, or within a second where the rate
// is limited: rows that wait longer would have to be loaded again.
func (k *kind) free() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.rule.Load()
	n := max(r.policy.Concurrency-k.running, 0) * r.batch
	if k.limiter != nil {
		n = min(n, int(k.limiter.Limit())+1)
	}
	return n
}

// put makes rows ready and starts what can start.
func (k *kind) put(l *lane, tasks []*task) {
	if len(tasks) == 0 {
		return
	}
	k.mu.Lock()
	l.ready.push(tasks)
	k.waiting += len(tasks)
	k.mu.Unlock()
	k.pump()
}

// pump starts workers while there are rows ready and slots free.
func (k *kind) pump() {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.rule.Load()
	if k.d.phase.Load() != running || r.paused {
		return
	}
	wanted := (k.waiting + r.batch - 1) / r.batch
	for ; wanted > 0 && k.running < r.policy.Concurrency && k.timer == nil; wanted-- {
		k.running++
		k.d.workers.add(1)
		go k.work()
	}
}

// work delivers as long as there is something to deliver. It is joined through
// Dispatcher.workers.
func (k *kind) work() {
	defer k.d.workers.add(-1)
	defer k.wakeServers() // a slot is free
	idle := false
	defer func() {
		if !idle { // a target has ended the goroutine
			k.abandonSlot()
		}
	}()
	for {
		batch, r := k.next()
		if len(batch) == 0 {
			idle = true
			return
		}
		if batch = batch[0].lane.server.start(batch, r); len(batch) > 0 {
			k.deliver(batch, r)
		}
	}
}

func (k *kind) abandonSlot() {
	k.mu.Lock()
	k.running--
	k.mu.Unlock()
	k.pump()
}

// next takes the rows of one delivery, all of one lane, in turn over the
// lanes. It gives the worker's slot back where it returns none.
func (k *kind) next() ([]*task, *rule) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.rule.Load()
	stop := k.d.phase.Load() != running || r.paused || k.running > r.policy.Concurrency
	if stop || k.waiting == 0 || !k.allow(r) {
		k.running--
		return nil, r
	}
	for k.lanes[k.turn%len(k.lanes)].ready.len() == 0 {
		k.turn++
	}
	batch := k.lanes[k.turn%len(k.lanes)].ready.pop(r.batch)
	k.turn++
	k.waiting -= len(batch)
	k.charge(len(batch))
	return batch, r
}

// allow asks the rate for one more row. Where it refuses, a timer pumps again
// when there is a token. Called under k.mu.
func (k *kind) allow(r *rule) bool {
	if k.limiter == nil {
		return true
	}
	if k.timer != nil {
		return false
	}
	if share := k.share(r); share != k.limiter.Limit() {
		k.limiter.SetLimit(share)
	}
	res := k.limiter.ReserveN(time.Now(), 1)
	delay := res.Delay()
	if delay <= 0 {
		return true
	}
	res.Cancel()
	k.timer = time.AfterFunc(min(delay, recheck), k.rateAllows) // the peers may become fewer
	return false
}

// charge books the rows of a batch beyond the first, which allow has booked:
// they may run ahead of the rate, and the next batch waits the longer.
func (k *kind) charge(rows int) {
	if k.limiter != nil && rows > 1 {
		k.limiter.ReserveN(time.Now(), rows-1)
	}
}

func (k *kind) rateAllows() {
	k.mu.Lock()
	k.timer = nil
	k.mu.Unlock()
	k.pump()
}

// wakeServers tells the loaders of all servers that there is room.
func (k *kind) wakeServers() {
	k.mu.Lock()
	lanes := k.lanes
	k.mu.Unlock()
	for _, l := range lanes {
		l.wake()
	}
}

// takeReady removes the ready rows that match.
func (k *kind) takeReady(match func(*task) bool) []*task {
	k.mu.Lock()
	defer k.mu.Unlock()
	var taken []*task
	for _, l := range k.lanes {
		taken = l.ready.remove(match, taken)
	}
	k.waiting -= len(taken)
	return taken
}

// giveBack returns loaded rows that will not start: claimed ones to the
// database, the others to their queue.
func (k *kind) giveBack(tasks []*task) {
	for _, t := range tasks {
		t.lane.server.giveBack(t)
	}
}
