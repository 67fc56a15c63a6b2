package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/tocsinhq/tocsin"
)

// start books the rows of a batch as in delivery and returns those that may
// start; the others go back to where they came from. Nothing of a table that
// was dropped starts after Drop returned.
func (s *server) start(batch []*task, r *rule) []*task {
	now := time.Now()
	clock := s.now()
	started := batch[:0]
	var back []*task
	s.mu.Lock()
	for _, t := range batch {
		if t.tooOld(now, r.timeout) || !s.admitted(t.table()) || !t.claimed && s.wantsClaim(t, r) {
			back = append(back, t)
			continue
		}
		if !t.claimed {
			t.late = time.Duration(clock-t.row.Action) * time.Millisecond
		}
		t.lane.leave(now.Sub(t.loaded))
		t.row.BizType, t.timeout = r.policy.Name, r.timeout
		s.open[t] = struct{}{}
		started = append(started, t)
	}
	room := batch[0].lane.budget() > 0
	s.mu.Unlock()
	for _, t := range back {
		s.giveBack(t)
	}
	if room {
		batch[0].lane.wake()
	}
	return started
}

// wantsClaim reports that a row which was loaded to start without a claim must
// not, as things are now: the lease can't be proven, which is asked under s.mu
// (see Loosen); the biz type has become strict; or the table was somebody
// else's since. Called under s.mu.
func (s *server) wantsClaim(t *task, r *rule) bool {
	return s.fence(t.table()) != "" || r.policy.Strict || t.asked.Before(s.known(t.table()).since)
}

// tooOld reports that a row waited so long that it must not start any more: a
// claimed one since the claim would run out under the delivery, another since
// it may have been cancelled meanwhile.
func (t *task) tooOld(now time.Time, timeout time.Duration) bool {
	if t.claimed {
		return !now.Add(timeout).Before(t.until)
	}
	return now.Sub(t.loaded) > staleAfter
}

// giveBack lets go of a held row that will not start: a claimed one becomes
// pending again, another returns to its queue, or is forgotten with its table.
func (s *server) giveBack(t *task) {
	s.mu.Lock()
	t.lane.leave(time.Since(t.loaded))
	switch {
	case t.claimed:
		s.open[t] = struct{}{}
	case s.admitted(t.table()):
		t.lane.queue.Requeue(t.entry(t.row.Action))
	default:
		t.lane.queue.Done(t.row.JobID)
	}
	s.mu.Unlock()
	s.d.metrics.givenBack.Inc()
	if t.claimed {
		s.report([]result{{task: t, ending: ending{verb: tocsin.Defer, next: s.now()}}})
	}
	t.lane.wake()
}

// deliver hands the tasks of one lane to their target and reports how it
// ended. At the time-out they are settled as failed whether or not the target
// has returned; deliver itself, and with it the slot, waits until it has.
func (k *kind) deliver(tasks []*task, r *rule) {
	ctx, cancel := context.WithTimeout(k.d.work, r.timeout)
	defer cancel()
	a := &attempt{kind: k, rule: r, tasks: tasks, began: time.Now(), expired: make(chan struct{})}
	infos := make([]tocsin.Info, len(tasks))
	for i, t := range tasks {
		infos[i] = t.row.Info
		k.metrics.lateness.Observe(t.late.Seconds())
	}
	stop := context.AfterFunc(ctx, func() { a.expire(ctx) })
	errs := same(errExited, len(tasks))
	defer func() { // deferred for a target that ends the goroutine
		if stop() {
			a.finish(pardon(ctx, errs))
			return
		}
		<-a.expired
		a.afterwards(errs)
	}()
	errs = k.call(ctx, r.sink, infos)
}

// pardon puts off what failed after the node had ended the delivery: the target
// may have failed for that alone, and no attempt is counted for it.
func pardon(ctx context.Context, errs []error) []error {
	if !errors.Is(context.Cause(ctx), errStopping) {
		return errs
	}
	for i, err := range errs {
		if verb, _, _ := tocsin.AsOutcome(err); verb == tocsin.Retry {
			errs[i] = tocsin.Snooze(0)
		}
	}
	return errs
}

// errExited fails the tasks of a target that did not return: it called
// runtime.Goexit, as the FailNow of tests does.
var errExited = errors.New("the handler ended its goroutine instead of returning")

// call runs the target and turns a panic, or a wrong number of results, into
// errors.
func (k *kind) call(ctx context.Context, sink Sink, infos []tocsin.Info) (errs []error) {
	defer func() {
		if p := recover(); p != nil {
			k.d.cfg.Logger.Error().Str("biz_type", infos[0].BizType).Str("job_id", infos[0].JobID.String()).
				Interface("panic", p).Bytes("stack", debug.Stack()).Msg("handler panicked")
			errs = same(fmt.Errorf("panic: %v", p), len(infos))
		}
	}()
	errs = sink.Deliver(ctx, infos)
	if len(errs) != len(infos) {
		errs = same(fmt.Errorf("the handler returned %d results for %d tasks", len(errs), len(infos)), len(infos))
	}
	for i, err := range errs {
		errs[i] = readable(err)
	}
	return errs
}

// readable gives err, or another in place of one whose text can't be had: the
// Error of a nil pointer in an error may panic.
func readable(err error) (safe error) {
	defer func() {
		if p := recover(); p != nil {
			safe = fmt.Errorf("the handler returned a %T that can't be read: %v", err, p)
		}
	}()
	if err != nil {
		_ = err.Error()
	}
	return err
}

func same(err error, n int) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// attempt is one delivery. Either finish or expire settles it.
type attempt struct {
	kind    *kind
	rule    *rule
	tasks   []*task
	began   time.Time
	expired chan struct{} // closed when expire is through
}

func (a *attempt) server() *server { return a.tasks[0].lane.server }

// finish settles what the target returned in time.
func (a *attempt) finish(errs []error) {
	a.end(errs, false)
}

// expire settles the attempt before the target returned: as failed at the
// time-out; as never made when the node stops, which is not the task's fault.
func (a *attempt) expire(ctx context.Context) {
	defer close(a.expired)
	err := fmt.Errorf("delivery timed out after %s", a.rule.timeout)
	if errors.Is(context.Cause(ctx), errStopping) {
		err = tocsin.Snooze(0)
	}
	a.kind.metrics.timeouts.Inc()
	a.end(same(err, len(a.tasks)), true)
}

func (a *attempt) end(errs []error, timedOut bool) {
	now, took := a.server().now(), time.Since(a.began)
	results := make([]result, len(a.tasks))
	for i, t := range a.tasks {
		end := endingOf(a.rule.policy, &t.row, errs[i], now, rand.Float64)
		results[i] = result{task: t, ending: end}
		a.kind.metrics.ended[end.verb].Inc()
	}
	a.kind.metrics.took.Observe(took.Seconds())
	a.observe(results, took, timedOut)
	a.server().report(results)
}

func (a *attempt) observe(results []result, took time.Duration, timedOut bool) {
	if a.kind.d.cfg.Observe == nil {
		return
	}
	for _, r := range results {
		a.kind.d.cfg.Observe(Delivery{
			Task:     r.row.Info,
			Lateness: r.late,
			Took:     took,
			Verb:     r.verb,
			Reason:   r.reason,
			TimedOut: timedOut,
		})
	}
}

// afterwards settles the successes of a target that returned after the
// time-out: what is done is done. Its failures are settled already.
func (a *attempt) afterwards(errs []error) {
	var done []result
	for i, t := range a.tasks {
		if errs[i] == nil {
			done = append(done, result{task: t, ending: ending{verb: tocsin.Complete}, after: true})
		}
	}
	a.server().report(done)
}
