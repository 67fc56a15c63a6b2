package dispatcher

import (
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/tocsinhq/tocsin"
)

const (
	breakAfter   = 20               // deliveries in a row that can't reach the target open its breaker
	firstProbe   = time.Second      // from then until the first probe
	longestProbe = 30 * time.Second // between two probes, and of a rest that a target asks for
)

// breaker is what a kind knows of its target. While the target is away, or says "later" to all, the kind has no demand: its tasks wait in
// MySQL and cost no statement.
//
//	closed -----> open       deliveries in a row could not reach the target, or one that is known to be away; or it says later and takes nothing
//	open -------> half-open  the wait is over: one delivery may start, the probe; of one row, if the target was away
//	half-open --> closed     the probe reached the target, whatever became of its task. After a "later", deliveries begin at the throttle's rate
//	half-open --> open       it did not, or the target said later
//
// It has no words for the target's answers: a failed attempt shows that the target is there. The zero value is closed;
// kind.mu guards all but rests, heeds and tally.
type breaker struct {
	rests  atomic.Bool // no row is loaded or started; changed under kind.mu
	heeds  atomic.Bool // not closed, throttled, or the last delivery did not reach the target; changed under kind.mu
	tally  takenTally  // of deliveries that were taken
	state  State       // Away or Busy; "": closed
	why    string
	since  time.Time   // it is not closed
	next   time.Time   // open: its end
	timer  *time.Timer // open: ends it; nil: closed or half-open
	opened int         // waits so far
	failed int         // deliveries in a row that did not reach the target
	waits  *backoff.ExponentialBackOff

	throttle throttle
	moved    time.Time // the target is another since then: the former one may still answer
}

// notReached is an error of a sink whose delivery sent nothing to its target, since that could not be reached.
type notReached interface{ NotReached() bool }

// away is a notReached whose sink knows that its target is away: the next delivery need not find out.
type away interface{ Away() bool }

// unsent is an error of a sink that refuses a task by itself: its target was not asked.
type unsent interface{ Unsent() bool }

// resting is an error of a sink whose target has said "later": for how long it wants to be left alone, at least. Zero: it has not.
type resting interface{ RestFor() time.Duration }

// finding is what a delivery tells of its target.
type finding struct {
	missed bool          // no task of it reached the target, of those that were sent
	silent bool          // none was sent
	away   bool          // missed, and the sink knows that the target is away
	rest   time.Duration // the target said later, to most tasks at least, and wants to rest for so long; 0: it did not
	taken  int           // tasks that the target took: it is through with them
	part   bool          // these are the first ones, and to all others it said later
	told   bool          // all tasks were told later before
	why    string
}

// find sums up the replies of a delivery.
func find(replies []reply) (f finding) {
	n, unsent, laters, turns := 0, 0, 0, 0
	var rest time.Duration
	f.told = true
	for i, a := range replies {
		switch {
		case a.unsent:
			unsent++
			continue
		case a.missed:
			n++
			f.away = f.away || a.away
		case a.rest > 0:
			laters++
			rest, f.told = max(rest, a.rest), f.told && a.told
		case a.took():
			f.taken++
			f.told = f.told && a.told
			if i > 0 && replies[i-1].rest > 0 {
				turns++
			}
			continue
		default:
			continue
		}
		f.why = a.reason
	}
	f.part = f.taken > 0 && laters > 0 && turns == 0
	if laters > f.taken && !f.part {
		f.rest = rest
	}
	f.missed, f.silent = n > 0 && n+unsent == len(replies), unsent == len(replies)
	return f
}

// took reports whether the target is through with the task. One that failed or ran out of time shows nothing of what the target can take.
func (a *reply) took() bool { return a.verb != tocsin.Retried && !a.undone && !a.leased }

// judge takes in how the delivery of a worker ended, which began at a time.
func (k *kind) judge(w *worker, began time.Time, replies []reply) {
	b, f, at := &k.breaker, find(replies), time.Now()
	if f.taken > 0 && f.rest == 0 {
		b.tally.add(at)
	}
	if !f.missed && f.rest == 0 && !f.part && !b.heeds.Load() {
		return
	}
	k.mu.Lock()
	if f.silent || !began.After(b.moved) {
		k.mu.Unlock()
		k.unprobed(w)
		return
	}
	probe, before := w.probe, b.state
	w.probe = false
	switch {
	case f.missed:
		if b.failed++; probe || b.state == "" && (f.away || b.failed >= breakAfter) {
			k.open(Away, f.why, b.wait())
		}
	case f.rest > 0:
		k.toldLater(f, probe, began, at)
	case probe:
		k.close()
		fallthrough
	default:
		if b.failed = 0; f.taken > 0 {
			b.throttle.took(began, at, f.taken, f.part, f.told)
		}
	}
	k.metrics.throttle(b.throttle.rate)
	b.heeds.Store(b.state != "" || b.failed > 0 || b.throttle.heeds())
	now, since, rest := b.state, b.since, time.Until(b.next)
	k.mu.Unlock()
	k.turned(before, now, since, rest, f.why)
}

// toldLater slows down a target that said later. It rests if it takes nothing. Called under k.mu.
func (k *kind) toldLater(f finding, probe bool, began, at time.Time) {
	b := &k.breaker
	if b.failed = 0; b.state != "" && !probe {
		return
	}
	b.why = f.why
	if rest := b.throttle.later(began, at, b.tally.recent(at), f.rest, probe, f.told); rest > 0 {
		b.calm()
		k.open(Busy, f.why, rest)
	}
}

// turned acts on a change of state, and logs it.
func (k *kind) turned(before, now State, since time.Time, rest time.Duration, why string) {
	name, log := k.rule.Load().policy.Name, k.d.cfg.Logger
	switch {
	case now != "" && k.breaker.rests.Load():
		k.clear()
		if before == "" {
			k.limit.Of(log, string(now)).Warn("the target of a biz type is away or says later: its tasks wait, and use no attempt",
				"biz_type", name, "state", string(now), "next_try_in", rest.Round(time.Millisecond).String(), "error", why)
		}
	case now == "" && before != "":
		k.limit.Of(log, "back").Info("the target of a biz type answers again",
			"biz_type", name, "after", time.Since(since).Round(time.Millisecond).String())
		k.pump()
		k.wakeServers()
	}
}

// clear gives back what is ready while the target is left alone, such as rows whose load or claim was under way.
func (k *kind) clear() {
	if k.breaker.rests.Load() {
		giveBack(k.takeReady(func(*task) bool { return true }))
	}
}

// wait returns how long the target is left alone after a probe that has failed.
func (b *breaker) wait() time.Duration {
	if b.waits == nil {
		b.waits = &backoff.ExponentialBackOff{InitialInterval: firstProbe, Multiplier: 2, MaxInterval: longestProbe}
		b.waits.Reset()
	}
	return b.waits.NextBackOff()
}

// calm forgets the failures.
func (b *breaker) calm() { b.failed, b.waits = 0, nil }

// stop ends the wait. Called under kind.mu.
func (b *breaker) stop() {
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
}

// open leaves the target alone for a while. Called under k.mu.
func (k *kind) open(state State, why string, wait time.Duration) {
	b := &k.breaker
	if b.state == "" {
		b.since = time.Now()
		k.metrics.open(state)
	}
	b.stop()
	b.state, b.why, b.next = state, why, time.Now().Add(wait)
	b.rests.Store(true)
	b.opened++
	this := b.opened
	b.timer = time.AfterFunc(wait, func() { k.halfOpen(this) })
}

// close lets everything start again. Called under k.mu.
func (k *kind) close() {
	k.breaker.stop()
	k.breaker.calm()
	k.breaker.state = ""
	k.breaker.rests.Store(false)
}

// halfOpen lets a probe start at the end of a wait.
func (k *kind) halfOpen(wait int) {
	k.mu.Lock()
	if k.breaker.timer == nil || k.breaker.opened != wait { // it was closed, or another wait has begun
		k.mu.Unlock()
		return
	}
	k.breaker.stop()
	k.breaker.rests.Store(false)
	k.mu.Unlock()
	k.pump()
	k.wakeServers()
}

// probes makes the worker's next delivery the probe, and returns its rule: a target that was away gets one row. Called under k.mu
// while it is half-open.
func (k *kind) probes(w *worker, r *rule) *rule {
	k.breaker.rests.Store(true)
	w.probe = true
	if k.breaker.state == Busy {
		return r
	}
	one := *r
	one.batch = 1
	return &one
}

// unprobed takes back a probe whose target was not called.
func (k *kind) unprobed(w *worker) {
	k.mu.Lock()
	probe := w.probe
	if w.probe = false; probe {
		k.breaker.rests.Store(k.breaker.timer != nil)
	}
	k.mu.Unlock()
	if probe {
		k.pump()
		k.wakeServers()
	}
}

// release returns the tasks of an attempt whose target could not be reached to where they came from, for a second, and
// keeps the others. No attempt is counted for them.
func (k *kind) release(a attempt, replies []reply) (attempt, []reply) {
	var back, kept []*task
	var theirs []reply
	var why string
	for i, t := range a.tasks {
		if replies[i].missed {
			back, why = append(back, t), replies[i].reason
		} else {
			kept, theirs = append(kept, t), append(theirs, replies[i])
		}
	}
	if len(back) == 0 {
		return a, replies
	}
	k.metrics.missed(len(back))
	k.limit.Of(k.d.cfg.Logger, "not reached").Warn("a delivery could not reach its target: no attempt is counted",
		"biz_type", a.rule.policy.Name, "job_id", back[0].row.JobID.String(), "error", why)
	s := a.server()
	s.notBegun(back, s.now()+ceilMilli(avoidFor))
	a.tasks = kept
	return a, theirs
}
