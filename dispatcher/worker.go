package dispatcher

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
)

// worker makes the deliveries of one slot of a kind, one after another, and
// keeps what it needs for them.
type worker struct {
	kind    *kind
	tasks   []*task       // in hand
	infos   []tocsin.Info // of the tasks, as the target sees them
	replies []reply
	results []result
	rows    int  // in delivery; guarded by kind.mu
	waited  bool // the tasks in hand may have waited for a slot, for the rate, or for their target
	probe   bool // the delivery in hand is a probe; guarded by kind.mu

	mu      sync.Mutex
	attempt attempt
	through chan struct{} // of an attempt that expired: closed when that is settled
}

// attempt is one delivery. Either its target's return or its expiry settles it.
type attempt struct {
	state    attemptState
	rule     *rule
	tasks    []*task
	began    time.Time
	deadline time.Time
	outputs  *client.Outputs // nil: no history is kept
	ctx      *attemptContext
}

type attemptState uint8

const (
	atRest attemptState = iota
	delivering
	expired
)

func (a *attempt) server() *server { return a.tasks[0].lane.server }

// work delivers as long as there is something to deliver. It is joined through
// Dispatcher.workers.
func (w *worker) work() {
	k := w.kind
	defer k.d.workers.add(-1)
	defer k.wakeServers() // a slot is free
	idle := false
	defer func() {
		if !idle { // a target has ended the goroutine
			k.mu.Lock()
			k.dismiss(w, true)
			k.mu.Unlock()
			k.pump()
		}
	}()
	for {
		batch, r := k.next(w)
		if len(batch) == 0 {
			idle = true
			return
		}
		now, allowed := time.Now(), len(batch)
		batch = batch[0].lane.server.start(batch, r, now)
		if len(batch) < allowed {
			k.notStarted(allowed - len(batch))
		}
		if len(batch) > 0 {
			if !w.waited {
				k.d.yields.began(r.class, batch[0].late, now)
			}
			w.deliver(batch, r)
		} else {
			k.unprobed(w)
		}
	}
}

// deliver hands the tasks of one lane to their target and reports how it
// ended. At the time-out they are settled as failed whether or not the target
// has returned, apart from those that stay claimed until it has: see exclusive. deliver itself, and with it the slot, waits for it.
func (w *worker) deliver(tasks []*task, r *rule) {
	outputs := w.kind.outputs(r, tasks)
	w.infos = w.infos[:0]
	for _, t := range tasks {
		w.infos = append(w.infos, t.row.Info)
	}
	ctx := &attemptContext{parent: w.kind.d.work, resent: w.kind.d.metrics.second[secondResent], tasks: w.infos, output: outputs}
	a := attempt{state: delivering, rule: r, tasks: tasks, outputs: outputs, ctx: ctx}
	if !w.begin(&a) { // from here on it may end, which releases the payloads
		a.server().notBegun(tasks, 0)
		w.kind.unprobed(w)
		w.forget()
		return
	}
	var replies []reply
	defer func() { // deferred for a target that ends the goroutine
		ctx.end()
		if replies == nil {
			replies = same(replyOf(errExited), len(tasks))
		}
		w.finish(a, replies)
	}()
	replies = w.call(ctx, r.sink)
}

// begin makes the attempt known to kind.expire, and its time-out begins: the next thing that this goroutine does is to call the target.
// It returns false if there must be no attempt: the node has ended all deliveries, or the process stood still since the tasks were booked, so that a
// claim may run out under the delivery, or a row may have changed.
func (w *worker) begin(a *attempt) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if w.kind.d.work.Err() != nil || slices.ContainsFunc(a.tasks, func(t *task) bool { return t.tooOld(now, a.rule.timeout) }) {
		return false
	}
	a.began, a.deadline = now, now.Add(a.rule.timeout)
	a.ctx.deadline = a.deadline
	w.attempt = *a
	for _, t := range a.tasks {
		w.kind.metrics.lateness.Observe(t.late.Seconds())
		if t.turn != nil && !t.turn.Alone {
			w.kind.d.cfg.Runs.Count(t.turn, t.row, "")
		}
	}
	return true
}

// finish settles what the target returned: in time, or after its tasks were
// settled as failed.
func (w *worker) finish(a attempt, replies []reply) {
	defer w.forget()
	defer w.kind.d.dropPayloads(a.tasks...)
	w.mu.Lock()
	late := w.attempt.state == expired
	w.attempt = attempt{}
	w.mu.Unlock()
	if late {
		<-w.through
		w.late(a, replies)
	} else {
		if w.kind.d.work.Err() != nil {
			pardon(replies)
		}
		a.excuse(replies)
		w.kind.judge(w, a.began, replies)
		a, replies = w.kind.handOver(a, replies)
		if a, replies = w.kind.release(a, replies); len(replies) > 0 {
			w.results = w.kind.end(a, replies, w.results[:0], false)
		}
	}
}

// forget lets go of what was in hand: a spare worker must keep no task alive.
func (w *worker) forget() {
	clear(w.tasks)
	clear(w.infos)
	clear(w.replies)
	clear(w.results)
}

// expire settles the attempt in hand before its target returned, if it is over
// its time-out at now: as failed. The zero now is the end of the node, which is
// not the task's fault: then it was never made.
func (w *worker) expire(now time.Time) {
	w.mu.Lock()
	a := w.attempt
	if a.state != delivering || !now.IsZero() && (now.Before(a.deadline) || a.rule.pulled()) { // only its return tells which tasks workers have
		w.mu.Unlock()
		return
	}
	w.attempt.state = expired
	through := make(chan struct{})
	w.through = through
	w.mu.Unlock()
	defer close(through)
	var alone []*task
	alone, a.tasks = splitAlone(a.tasks)
	if len(alone) > 0 && !now.IsZero() { // their claims are prolonged until their outcomes are reported
		s := alone[0].lane.server
		s.mu.Lock()
		for _, t := range alone {
			t.overtime = true
		}
		s.mu.Unlock()
	}
	w.kind.metrics.timeOut()
	w.kind.judge(w, a.began, []reply{{verb: tocsin.Retried}}) // it was reached, or the sink would have said so in time
	if len(a.tasks) == 0 {
		return
	}
	if !now.IsZero() {
		a.server().overran(a.tasks)
	}
	replies := same(w.timedOut(a), len(a.tasks))
	a.excuse(replies)
	w.kind.end(a, replies, nil, true)
}

// timedOut stands for the replies of an attempt that was over its time-out, or that the end of the node cut off.
func (w *worker) timedOut(a attempt) reply {
	if w.kind.d.work.Err() != nil {
		return cutOff
	}
	return reply{verb: tocsin.Retried, in: -1, cause: byTimeout, reason: fmt.Sprintf("delivery timed out after %s", a.rule.timeout)}
}

// late settles what a target returned after the time-out: successes of all, because the work is done, and failures of runs
// that stayed claimed until now. Other failures are settled already.
func (w *worker) late(a attempt, replies []reply) {
	for i, t := range a.tasks {
		if t.exclusive() && replies[i].verb != tocsin.Completed {
			replies[i] = w.timedOut(a)
		}
	}
	a.excuse(replies)
	alone := a
	alone.tasks = nil
	var its []reply
	var done []result
	var failed []*task
	for i, t := range a.tasks {
		switch {
		case t.exclusive():
			alone.tasks, its = append(alone.tasks, t), append(its, replies[i])
		case replies[i].verb == tocsin.Completed:
			done = append(done, result{task: t, ending: ending{verb: tocsin.Completed}, after: true})
		default:
			failed = append(failed, t)
		}
	}
	w.kind.note(a, done, time.Since(a.began))
	a.server().report(done) // these count as returned once their outcomes are stored
	a.server().returned(failed)
	if len(alone.tasks) > 0 {
		w.results = w.kind.end(alone, its, w.results[:0], true)
	}
}

// pardon puts off what failed after the node had ended the delivery: the target
// may have failed for that alone, and no attempt is counted for it.
func pardon(replies []reply) {
	for i := range replies {
		if replies[i].verb == tocsin.Retried {
			replies[i] = cutOff
		}
	}
}

// cutOff ends a delivery when the dispatcher ends. Its task is due again at once.
var cutOff = reply{verb: tocsin.Snoozed, undone: true}

// end reports how the attempt ended. It builds the results in the given slice
// and returns it.
func (k *kind) end(a attempt, replies []reply, results []result, timedOut bool) []result {
	took, now := time.Since(a.began), a.server().estimate()
	k.learn(a, replies)
	for i, t := range a.tasks {
		end := endingOf(a.rule.policy, t.row, replies[i], now, rand.Float64)
		if end.verb == tocsin.Snoozed && replies[i].rest > 0 {
			k.metrics.later()
		}
		k.countFailure(end, replies[i].cause)
		end.took = took
		results = append(results, result{task: t, ending: end})
		k.metrics.end(end.verb)
	}
	k.metrics.took.Observe(took.Seconds())
	k.tell(results, timedOut || took >= a.rule.timeout)
	k.observe(results, took, timedOut)
	k.note(a, results, took)
	for _, t := range a.tasks {
		t.row.Payload, t.row.Headers = "", "" // the target has its own copy, and outcomes may wait for long
	}
	a.server().report(results)
	return results
}

// countFailure counts an attempt that did not succeed.
func (k *kind) countFailure(end ending, why cause) {
	switch {
	case end.undone:
		k.d.metrics.second[secondCutOff].Inc()
	case end.verb == tocsin.Retried || end.verb == tocsin.Buried:
		k.metrics.fail(why)
	}
}

func (k *kind) observe(results []result, took time.Duration, timedOut bool) {
	if k.d.cfg.Observe == nil {
		return
	}
	for _, r := range results {
		d := Delivery{Task: r.row.Info, Lateness: r.late, Took: took, Verb: r.verb, Reason: r.reason, TimedOut: timedOut}
		if r.verb == tocsin.Retried || r.verb == tocsin.Snoozed {
			d.Next = time.UnixMilli(r.next).UTC()
		}
		k.d.cfg.Observe(d)
	}
}

// errExited fails the tasks of a target that did not return: it called
// runtime.Goexit, as the FailNow of tests does.
var errExited = errors.New("the handler ended its goroutine instead of returning")

func same[T any](one T, n int) []T { return slices.Repeat([]T{one}, n) }
