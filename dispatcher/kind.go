package dispatcher

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/store"
)

// kind is one biz type: the slots and the rate that its lanes on all servers
// share, and the rows that are ready to start.
type kind struct {
	d       *Dispatcher
	number  uint64
	rule    atomic.Pointer[rule]
	inTx    atomic.Bool // its handlers complete tasks in their own transactions, judging by the last fate
	metrics *kindMetrics
	payload share
	limit   loop.LogLimit // on log lines about deliveries

	mu         sync.Mutex
	running    int           // slots taken, each by one worker; see occupy
	waiting    int           // rows ready over all lanes
	inDelivery int           // rows that workers have
	proven     int           // retried rows of a batch type that succeeded since a delivery of such rows last failed as a whole
	slot       int           // rows that the latest delivery had room for; 0: a whole batch
	lanes      []*lane       // by server
	turn       int           // lane that is served next
	limiter    *rate.Limiter // nil: no limit
	unused     int           // rows that the rate allowed, and that did not start
	timer      *time.Timer   // pumps when the rate allows the next delivery; nil: none pending

	breaker breaker // what it knows of its target

	newer Newer // the rows that were left alone since their payload is newer than the target reads

	fullSince time.Time // all slots have been taken since then; zero: some are free

	workers map[*worker]bool // that hold a slot
	spare   []*worker        // that wait to be hired again
	expiry  *time.Timer      // calls expire not later than the first delivery in hand is over its time-out; nil: nothing is
}

// set installs a new rule. Called under d.mu.
func (k *kind) set(r *rule) {
	k.mu.Lock()
	defer k.mu.Unlock()
	old := k.rule.Load()
	r.claimUntil = gained(old, k.d.informed)
	k.rule.Store(r)
	if r.moved(old) {
		k.breaker.throttle, k.breaker.moved = throttle{}, time.Now()
		k.metrics.throttle(0)
	}
	k.occupy(0, r)
	if k.breaker.timer != nil {
		k.breaker.timer.Reset(0) // its target may be another now, or was brought back by the operator who changes it
	}
	if k.expiry != nil {
		k.expiry.Reset(0) // the new time-out may be the shorter one
	}
	k.limiter, k.unused = nil, 0
	k.stopTimer() // the old rate's
	if r.policy.Rate > 0 {
		share := k.share(r)
		k.limiter = rate.NewLimiter(share, made(share, r))
	}
}

// share is this node's part of the cluster-wide rate.
func (k *kind) share(r *rule) rate.Limit {
	return rate.Limit(r.policy.Rate / float64(max(k.d.cfg.Peers(), 1)))
}

// made is how many deliveries a rate makes up for at once: those of the last moments, as timers fire late and slots are taken.
// Without them a rate of 100 a second is 95.
func made(share rate.Limit, r *rule) int {
	return max(r.batch, 1+int(float64(share)*makeUp.Seconds()))
}

// lack stops a biz type that this process can no longer deliver.
func (k *kind) lack() {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := *k.rule.Load()
	r.paused, r.lacked = true, true
	k.rule.Store(&r)
}

// stop ends starts for good: who saw the running phase under the lock before
// is counted as a worker by now.
func (k *kind) stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stopTimer()
	k.breaker.stop()
}

// stopTimer is called under k.mu.
func (k *kind) stopTimer() {
	if k.timer != nil {
		k.timer.Stop()
		k.timer = nil
	}
}

// free is how many rows of a lane could start at once, or within aheadOfRate if the rate
// is limited. Those that the lane loads ahead
// come besides, unless the next one is a probe. Where other lanes keep all slots, and these change hands, a lane has the rows of one
// delivery in the queue for them.
func (k *kind) free(l *lane) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.breaker.state == Away {
		return 1
	}
	r := k.rule.Load()
	one := k.breaker.throttle.most(min(cmp.Or(k.slot, r.batch), r.batch))
	if k.breaker.state != "" {
		return one
	}
	n := max(r.policy.Concurrency-k.running, 0) * one
	if r.rows > 0 {
		n = min(n, max(r.rows-k.inDelivery, 0))
	}
	if k.limiter != nil {
		soon := int(float64(k.limiter.Limit()) * k.d.aheadOfRate().Seconds())
		n = min(n, max(soon/len(k.lanes)+1, min(r.batch, soon+1)))
	}
	if rate := k.breaker.throttle.rate; rate > 0 {
		return min(n, (int(rate*k.d.aheadOfRate().Seconds())/len(k.lanes)+1)*one)
	}
	if r.pulled() {
		return min(n, k.wanted(r, l))
	}
	if n+l.ahead == 0 && k.waiting > 0 && l.turn != k.turn {
		return one
	}
	if r.rows > 0 {
		return min(n+l.ahead, max(r.rows/len(k.lanes), 1))
	}
	return n + l.ahead
}

// put makes rows ready and starts what can start.
func (k *kind) put(l *lane, tasks []*task) {
	if len(tasks) == 0 {
		return
	}
	k.mu.Lock()
	r := k.rule.Load()
	l.ready.push(tasks, r.batch > 1 && !r.pulled())
	l.turn = k.turn
	k.waiting += len(tasks)
	k.mu.Unlock()
	k.pump()
	k.clear()
}

// pump starts workers while there are rows ready and slots free.
func (k *kind) pump() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.start(k.rule.Load())
}

// start is pump under k.mu.
func (k *kind) start(r *rule) {
	if k.d.phase.Load() != running || r.paused || k.breaker.rests.Load() || k.most(r) == 0 {
		return
	}
	wanted := k.deliveries(r)
	switch {
	case k.breaker.state != "":
		wanted = min(wanted, 1)
	case k.breaker.throttle.rate > 0:
		wanted = min(wanted, 2) // as with the limiter: the second one sets the timer
	case k.limiter != nil:
		wanted = min(wanted, k.unused+max(0, int(k.limiter.Tokens()))+1) // one more, which is refused and sets the timer
	}
	for ; wanted > 0 && k.running < r.policy.Concurrency && k.timer == nil; wanted-- {
		k.occupy(1, r)
		k.d.workers.add(1)
		w := k.hire(r)
		go w.work()
	}
}

// hire gives a worker its slot. Called under k.mu.
func (k *kind) hire(r *rule) *worker {
	w := &worker{kind: k}
	if n := len(k.spare); n > 0 {
		w, k.spare = k.spare[n-1], k.spare[:n-1]
	}
	k.workers[w] = true
	if k.expiry == nil {
		k.expiry = time.AfterFunc(r.timeout, k.expire)
	}
	return w
}

// dismiss takes a worker's slot back. One that the target has ended is not hired
// again. Called under k.mu.
func (k *kind) dismiss(w *worker, ended bool) {
	k.occupy(-1, k.rule.Load())
	k.setRows(w, 0)
	delete(k.workers, w)
	if !ended && len(k.spare) < spareWorkers {
		w.forget()
		k.spare = append(k.spare, w)
	}
}

// next takes the rows of one delivery, all of one lane, in turn over the
// lanes. Where there are none it dismisses the worker.
func (k *kind) next(w *worker) ([]*task, *rule) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.setRows(w, 0)
	r := k.rule.Load()
	stop := k.d.phase.Load() != running || r.paused || k.breaker.rests.Load() || k.running > r.policy.Concurrency
	if stop || k.waiting == 0 || k.most(r) == 0 || !k.allow(r) {
		k.dismiss(w, false)
		return nil, r
	}
	for k.lanes[k.turn%len(k.lanes)].ready.len() == 0 {
		k.turn++
	}
	ready := &k.lanes[k.turn%len(k.lanes)].ready
	if k.breaker.state != "" {
		r = k.probes(w, r)
		w.tasks, _ = ready.pop(r, k.most(r), k.together(r), w.tasks[:0])
	} else {
		w.tasks, k.slot = ready.pop(r, k.most(r), k.together(r), w.tasks[:0])
	}
	k.turn++
	k.waiting -= len(w.tasks)
	k.setRows(w, len(w.tasks))
	k.charge(len(w.tasks))
	w.waited = k.limiter != nil || k.breaker.throttle.rate > 0 || k.breaker.state != "" || k.running >= r.policy.Concurrency || k.most(r) == 0
	if r.rows > 0 && k.waiting > 0 {
		k.start(r) // it has found no room before
	}
	return w.tasks, r
}

// setRows notes how many rows the worker's next delivery has. Called under k.mu.
func (k *kind) setRows(w *worker, rows int) { k.inDelivery, w.rows = k.inDelivery-w.rows+rows, rows }

// most returns how many rows the next delivery may have: one after a delivery that did not reach the target. 0: none until others end, as a
// delivery of few rows costs as much as one of many. Called under k.mu.
func (k *kind) most(r *rule) int {
	most := k.breaker.throttle.most(r.batch)
	if k.breaker.failed > 0 {
		most = 1
	}
	if r.rows == 0 {
		return most
	}
	room := r.rows - k.inDelivery
	if room < max(min(most, k.waiting)/2, 1) {
		return 0
	}
	return min(most, room)
}

// expire settles the deliveries that are over their time-out, and has itself
// called again when the next one can be. A worker that is about to begin has all
// of the time-out before it.
func (k *kind) expire() {
	now := time.Now()
	var over []*worker
	k.mu.Lock()
	wait := k.rule.Load().timeout
	for w := range k.workers {
		w.mu.Lock()
		left, delivering := w.attempt.deadline.Sub(now), w.attempt.state == delivering && !w.attempt.rule.pulled()
		w.mu.Unlock()
		switch {
		case delivering && left <= 0:
			over = append(over, w)
		case delivering:
			wait = min(wait, left)
		}
	}
	if len(k.workers) > 0 {
		k.expiry.Reset(wait)
	} else {
		k.expiry = nil
	}
	k.mu.Unlock()
	for _, w := range over {
		w.expire(now)
	}
}

// noteFate notes how a completed row was found, to predict the next outcomes.
func (k *kind) noteFate(verb tocsin.Verb, fate store.Fate) {
	if inTx := fate == store.InTx; verb == tocsin.Completed && (inTx || fate == store.Stored) && k.inTx.Load() != inTx {
		k.inTx.Store(inTx)
	}
}

// allow asks the throttle and the rate for one more row. Where one refuses, a timer pumps again
// when there is a token. Called under k.mu.
func (k *kind) allow(r *rule) bool {
	if k.timer != nil {
		return false
	}
	now := time.Now()
	wait := k.breaker.throttle.wait(now, k.waiting >= k.most(r))
	if wait <= 0 {
		wait = k.token(r, now)
	}
	if wait <= 0 {
		k.breaker.throttle.begin(now)
		return true
	}
	k.timer = time.AfterFunc(min(wait, recheck), func() { // the peers may become fewer
		k.mu.Lock()
		k.timer = nil
		k.mu.Unlock()
		k.pump()
	})
	return false
}

// token takes one of the rate's tokens, or returns how long there will be none. Called under k.mu.
func (k *kind) token(r *rule, now time.Time) time.Duration {
	switch {
	case k.limiter == nil:
		return 0
	case k.unused > 0:
		k.unused--
		return 0
	}
	if share := k.share(r); share != k.limiter.Limit() {
		k.limiter.SetLimit(share)
		k.limiter.SetBurst(made(share, r))
	}
	res := k.limiter.ReserveN(now, 1)
	delay := res.DelayFrom(now)
	if delay > 0 {
		res.Cancel()
	}
	return delay
}

// charge books the rows of a batch beyond the first, which allow has booked:
// they may run ahead of the rate, and the next batch waits the longer.
func (k *kind) charge(rows int) {
	if k.limiter == nil || rows < 2 {
		return
	}
	unused := min(k.unused, rows-1)
	k.unused -= unused
	k.limiter.ReserveN(time.Now(), rows-1-unused)
}

// notStarted returns the rate's allowance for rows that did not start.
func (k *kind) notStarted(rows int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.limiter != nil {
		k.unused += rows
	}
	k.breaker.throttle.next = time.Time{}
}

// wakeServers tells the loaders of all servers that there is room.
func (k *kind) wakeServers() {
	k.mu.Lock()
	lanes := k.lanes
	k.mu.Unlock()
	for _, l := range lanes {
		signal(l.server.wake)
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
