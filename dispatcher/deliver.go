package dispatcher

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/tocsinhq/tocsin"
)

// start books the rows of a batch as in delivery and returns those that may
// start; the others go back to where they came from. Nothing of a table that
// was dropped starts after Set returned.
func (s *server) start(batch []*task, r *rule, now time.Time) []*task {
	clock := s.nowMicro()
	started := batch[:0]
	var back []*task
	var beside []*task // their earlier delivery has not returned
	s.mu.Lock()
	for _, t := range batch {
		if !s.mayStart(t, r, now) || t.unripe(clock) || t.turn != nil && t.turn.Late(t.row, clock/1000) {
			back = append(back, t)
			continue
		}
		if clock > 0 { // else the server has just moved, and nobody knows
			t.late = time.Duration(clock-t.row.ActionTime.UnixMicro()) * time.Microsecond
		}
		t.lane.leave(t.loaded, now)
		t.row.BizType, t.timeout, t.began = r.policy.Name, r.timeout, now
		s.open.add(t)
		if t.suspect && s.d.claims() {
			s.d.suspects.begin(t, now)
		}
		if t.row.Crashes > 0 {
			s.d.metrics.second[secondCrashed].Inc()
		}
		if s.overruns[t.row.JobID] != nil {
			beside = append(beside, t)
		}
		started = append(started, t)
	}
	room := batch[0].lane.budget() > 0
	s.mu.Unlock()
	s.tellBeside(beside)
	giveBack(back)
	if room {
		signal(s.wake)
	}
	return started
}

// mayStart reports whether a row that was loaded is still this process's to start, or to end. Called under s.mu.
func (s *server) mayStart(t *task, r *rule, now time.Time) bool {
	return !t.tooOld(now, r.timeout) && s.admitted(t.table()) && (t.claimed || !s.wantsClaim(t, r))
}

// wantsClaim reports that a row which was loaded to start without a claim must
// not, as things are now: the lease can't be proven, which is asked under s.mu
// (see Loosen); the biz type has become strict; or the table was somebody
// else's since. Called under s.mu.
func (s *server) wantsClaim(t *task, r *rule) bool {
	return s.fence(t.table()) != "" || r.claims() || t.asked.Before(s.known(t.table()).since)
}

// tooOld reports that a row waited so long that it must not start any more: a
// claimed one since the claim would run out under the delivery, by this process's
// monotonic clock or by its wall clock, another since it may have been cancelled
// meanwhile. If the process has stood still unnoticed, nobody knows how long that was.
func (t *task) tooOld(now time.Time, timeout time.Duration) bool {
	switch {
	case t.loaded.Before(t.lane.kind.d.cfg.Store.Jumped()), !t.trusts():
		return true
	case !t.until.IsZero():
		end := now.Add(timeout)
		return !end.Before(t.until) || !end.Round(0).Before(t.until.Round(0))
	}
	return now.Sub(t.loaded) > staleAfter
}

// unripe reports whether the server's clock, in µs, was set back while the row
// waited, so that it is no longer due.
func (t *task) unripe(clock int64) bool {
	return (!t.claimed || t.session) && t.row.Action*1000 > clock
}

// giveBack lets go of loaded rows that will not start. A claimed row becomes pending
// again; another one returns to its queue, or is forgotten with its table. A sweep
// leaves the action time as it was, so that the next sweep finds the row at once. A
// node sets it to now, since its next scan begins shortly before that.
func giveBack(tasks []*task) {
	for _, t := range tasks {
		s := t.lane.server
		s.mu.Lock()
		t.lane.leave(t.loaded, time.Now())
		switch {
		case t.claimed:
			s.open.add(t)
		case s.admitted(t.table()):
			t.lane.queue.Requeue(t.entry(t.row.Action))
		default:
			t.lane.queue.Done(t.row.JobID)
		}
		s.mu.Unlock()
		s.d.dropPayloads(t)
		s.d.metrics.givenBack.Inc()
		if t.claimed {
			s.report([]result{s.back(t)})
		}
		signal(s.wake)
	}
}

// back is the outcome of a task whose delivery did not begin. A run keeps its time, as it may be missed by the time it begins, and what no worker
// took its place before what is due later. So do all while the server's clock is not known.
func (s *server) back(t *task) result {
	next := s.now()
	if s.d.claims() || s.d.cfg.ClaimAll || t.turn != nil || t.keyed || t.lane.kind.rule.Load().pulled() || next == 0 {
		next = t.row.ActionTime.UnixMilli()
	}
	return result{task: t, ending: ending{verb: tocsin.Snoozed, next: next, undone: true, notBefore: t.lookAgain}}
}

// notBegun lets go of tasks that were booked as in delivery, and whose target was not called: the process stood still meanwhile, or ends, or
// the target could not be reached. No attempt is counted. They start again not before until, by the server's clock; 0: at once.
func (s *server) notBegun(tasks []*task, until int64) {
	var back []result
	s.mu.Lock()
	for _, t := range tasks {
		switch {
		case t.claimed || t.claiming || t.doubt != 0: // the outcome meets the claim, if it stands
			r := s.back(t)
			r.notBefore = until
			back = append(back, r)
			continue
		case s.admitted(t.table()):
			t.lane.queue.Requeue(t.entry(max(t.row.Action, until)))
		default:
			t.lane.queue.Done(t.row.JobID)
		}
		s.open.remove(t)
		t.acquit()
	}
	s.tellWaiters()
	s.mu.Unlock()
	s.d.dropPayloads(tasks...)
	s.d.metrics.givenBack.Add(float64(len(tasks)))
	s.report(back)
	signal(s.wake)
}

// call runs the target and reads its errors. A panic, or a wrong number of results, fails all tasks. The
// result is valid until the next call.
func (w *worker) call(ctx context.Context, sink Sink) (replies []reply) {
	k, n := w.kind, len(w.infos)
	defer func() {
		if p := recover(); p != nil {
			k.limit.Of(k.d.cfg.Logger, "panicked").Error("handler panicked",
				"biz_type", w.infos[0].BizType, "job_id", w.infos[0].JobID.String(), "panic", p, "stack", string(debug.Stack()))
			replies = same(replyOf(panicked{p}), n)
		}
	}()
	errs := sink.Deliver(ctx, w.infos)
	if len(errs) != n {
		return same(replyOf(fmt.Errorf("the handler returned %d results for %d tasks", len(errs), n)), n)
	}
	w.replies = w.replies[:0]
	for i, err := range errs {
		a := replyOf(err)
		a.told = w.infos[i].LastError != "" && toldOf(&w.infos[i]).times > 0
		w.replies = append(w.replies, a)
	}
	return w.replies
}
