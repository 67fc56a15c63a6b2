package dispatcher

import (
	"time"

	"github.com/tocsinhq/tocsin/internal/duequeue"
)

// overrun is a task with deliveries that are over their time-out and have not
// returned. They are settled as failed. The task's next attempt in this process waits
// for them, so that a handler that ignores its context does not run twice at once. It
// waits for at most one more time-out, since a handler may never return. Then the
// attempt starts beside them, and is logged and counted.
type overrun struct {
	deliveries int
	since      int64          // when the first went over its time-out, by the server's clock
	waiting    duequeue.Entry // the next attempt, queued again for the end of its wait; zero: no attempt waits
}

// slowReturn is how long after the time-out a target may return without being logged.
const slowReturn = time.Second

// overran notes that the deliveries of tasks are over their time-out. It is called
// before their outcomes are settled, so that the next attempts find it.
func (s *server) overran(tasks []*task) {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range tasks {
		o := s.overruns[t.row.JobID]
		if o == nil {
			o = &overrun{since: now}
			s.overruns[t.row.JobID] = o
		}
		o.deliveries++
	}
}

// returned notes that targets have returned after the time-out without success.
func (s *server) returned(tasks []*task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range tasks {
		s.endOverrun(t)
	}
}

// endOverrun lets the next attempt start that waits for this delivery. Called under
// s.mu.
func (s *server) endOverrun(t *task) {
	o := s.overruns[t.row.JobID]
	if o == nil { // the end of the node cut the delivery off
		return
	}
	if o.deliveries--; o.deliveries > 0 {
		return
	}
	delete(s.overruns, t.row.JobID)
	if o.waiting.JobID != 0 && s.admitted(t.table()) {
		t.lane.bringForward(o.waiting)
		signal(s.wake)
	}
}

// until is when the next attempt, which is due at action, waits no more. A reschedule may have moved it before the overrun.
func (o *overrun) until(action int64, timeout time.Duration) int64 {
	return max(action, o.since) + ceilMilli(timeout)
}

// putOff queues the next attempt of a task again for the end of its wait, and reports
// whether it has to wait. In a sweep, the attempt is left to the next sweep. Called
// under s.mu.
func (s *server) putOff(l *lane, e duequeue.Entry, action, now int64) bool {
	o := s.overruns[e.JobID]
	if o == nil {
		return false
	}
	until := o.until(action, l.kind.rule.Load().timeout)
	if now >= until {
		return false
	}
	if o.waiting.Due != action { // false if peeks and bells offer the same attempt again
		s.d.metrics.waited.Inc()
	}
	o.waiting = duequeue.Entry{JobID: e.JobID, Type: e.Type, Due: action}
	if e.Due = until + holdLead.Milliseconds(); s.d.cfg.ClaimAll { // its load begins at the end of the wait
		l.queue.Done(e.JobID)
	} else {
		l.queue.Requeue(e)
	}
	return true
}

// tellBeside logs and counts tasks that start beside an earlier delivery of their
// own.
func (s *server) tellBeside(tasks []*task) {
	for _, t := range tasks {
		s.d.metrics.overlapped.Inc()
		s.d.metrics.second[secondOverlapped].Inc()
		t.lane.kind.limit.Of(s.d.cfg.Logger, "overlap").Warn("a task is delivered again though an earlier delivery has not returned: its handler ignores the context",
			"biz_type", t.row.BizType, "job_id", t.row.JobID.String())
	}
}

// tellOverruns logs the biz types with slots that are taken by deliveries over their
// time-out.
func (k *kind) tellOverruns(now time.Time) {
	n, longest := 0, time.Duration(0)
	k.mu.Lock()
	for w := range k.workers {
		w.mu.Lock()
		if over := now.Sub(w.attempt.deadline); w.attempt.state == expired && over > slowReturn {
			n++
			longest = max(longest, over)
		}
		w.mu.Unlock()
	}
	k.mu.Unlock()
	if n == 0 {
		return
	}
	r := k.rule.Load()
	k.limit.Of(k.d.cfg.Logger, "overrun").Warn("deliveries over their time-out have not returned: each holds a slot, and its task waits for one more time-out",
		"biz_type", r.policy.Name, "deliveries", n, "concurrency", r.policy.Concurrency, "longest", longest.Round(time.Millisecond).String())
}
