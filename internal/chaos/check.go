package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
)

// How long after its cancel a task that is not strict may still be started: the
// dispatcher's bounds, and a little.
const (
	loadedBefore  = 3 * time.Second // having been loaded before it
	claimedBefore = 6 * time.Second // having been claimed before it
)

// How long after its node was frozen a delivery may still have been begun by it before that.
const thawedBefore = time.Second

// callbackBefore takes the place of loadedBefore and thawedBefore for callbacks: the receiver sees them later than nodes begin them.
const callbackBefore = 5 * time.Second

// before is how long before it was seen a delivery may have been decided on: so long, or more if it is a callback.
func (d delivery) before(usual time.Duration) time.Duration {
	if d.Callback {
		return max(usual, callbackBefore)
	}
	return usual
}

// crashesMost is after how many crashes a task is buried.
const crashesMost = 5

// The promises whose breach means a lost task.
const (
	promiseStored    = "an acknowledged add is stored"
	promiseEnds      = "a task ends"
	promiseDelivered = "what is done was delivered"
)

// evidence is all that is known at the end of a run.
type evidence struct {
	opts       Options
	entries    map[uint64]*entry
	rows       map[uint64]row
	doubles    []row // of a biz_id that had one already
	deliveries map[tocsin.JobID][]delivery
	incidents  []incident
	finals     map[tocsin.JobID]row // final states seen during the run
	intrusions []intrusion
	place      func(table int) place
	sold       *sold      // nil: there are no outboxes
	table      *timetable // nil: there are no schedules
}

// Breach is a promise that was broken, with all that is known of the task.
type Breach struct {
	Promise string
	Trace   string
}

// verdict collects what the checks find.
type verdict struct {
	*evidence
	report *Report
}

// check holds every promise against the evidence.
func (e *evidence) check() *Report {
	v := verdict{e, &Report{Words: map[string]int{}, Again: map[string]int{}, States: map[string]int{}}}
	for _, d := range e.doubles {
		v.report.breach("one row a task", d.String())
	}
	for _, task := range e.entries {
		v.task(task)
	}
	v.sales()
	v.timetables()
	v.strangers()
	v.closed()
	v.report.finish()
	return v.report
}

// strangers are deliveries of tasks that no table has.
func (v verdict) strangers() {
	known := map[tocsin.JobID]bool{}
	for _, r := range v.rows {
		known[r.JobID] = true
	}
	if v.sold != nil {
		for _, rows := range v.sold.rows {
			for _, r := range rows {
				known[r.JobID] = true
			}
		}
	}
	for id, all := range v.deliveries {
		if !known[id] && !v.table.has(id) {
			v.report.breach("what is delivered was stored", fmt.Sprintf("job_id %s: %v", id, all))
		}
		v.report.Deliveries += len(all)
	}
}

// closed checks the writes to databases while they were wrong. Writes of a node that was frozen, or could not reach the
// server, with a statement on its way, are allowed.
func (v verdict) closed() {
	for _, i := range v.incidents {
		if i.Fault == WrongCluster || i.Fault == NoLayout {
			v.report.Closed++
		}
	}
	for _, w := range v.intrusions {
		held := func(i incident) bool {
			return (i.Fault == FreezeNode || i.Fault == CutNode && i.Server == w.Server) && i.touches(w.from, w.to, 0)
		}
		if slices.ContainsFunc(v.incidents, held) {
			v.report.HeldBack++
			continue
		}
		v.report.breach("a wrong database takes no write", w.String())
	}
}

// task checks one task.
func (v verdict) task(e *entry) {
	r, stored := v.rows[e.BizID]
	v.report.Words[string(e.Word)]++
	if !stored {
		if e.Word == acknowledged {
			v.breach(e, nil, nil, promiseStored)
		}
		return
	}
	of := v.deliveries[r.JobID]
	v.report.States[r.Status.String()]++
	switch {
	case e.Word == refusedWord || e.Word == rolledBack:
		v.breach(e, &r, of, "a refused add is not stored")
	case e.JobID != 0 && e.JobID != r.JobID:
		v.breach(e, &r, of, "an add is stored once, under the id it was given")
	}
	v.state(e, r, of)
	v.change(e, r, of)
	v.times(e, r, of)
	v.twice(e, r, of)
	if before, seen := v.finals[r.JobID]; seen && !sameEnd(before, r) {
		v.breach(e, &r, of, "a final state stays: was "+before.String())
	}
}

// sameEnd allows the one change of a final state that the writes allow: a success
// that comes late completes a dead task.
func sameEnd(before, now row) bool {
	return before.Status == now.Status && before.Action.Equal(now.Action) || before.Status == tocsin.Dead && now.Status == tocsin.Done
}

// state checks how the task ended.
func (v verdict) state(e *entry, r row, of []delivery) {
	switch r.Status {
	case tocsin.Done:
		v.done(e, r, of)
	case tocsin.Cancelled:
		if e.Change == nil || !e.Change.Cancel || !e.Change.maybe() {
			v.breach(e, &r, of, "nobody cancels but the user")
		}
	case tocsin.Dead:
		if r.Attempts < attempts && r.Crashes < crashesMost && e.Do != doGone {
			v.breach(e, &r, of, "a task is buried after its last attempt or fifth crash only")
		}
	default:
		v.breach(e, &r, of, promiseEnds)
	}
}

// done checks that a delivery stands behind it, and that no crash cost an attempt.
func (v verdict) done(e *entry, r row, of []delivery) {
	well := func(d delivery) bool { return d.OK && d.Version == r.Version }
	if !slices.ContainsFunc(of, well) {
		v.breach(e, &r, of, promiseDelivered)
	}
	if r.Attempts > v.failed(r, of)+unseen(e, r, of) || r.Attempts < e.Fail {
		v.breach(e, &r, of, promiseAttempts)
	}
}

// failed counts the attempts of a row that may have failed.
func (v verdict) failed(r row, of []delivery) int {
	failed := map[int]bool{}
	for _, d := range of {
		if d.Version == r.Version && v.costs(d) {
			failed[d.Attempts] = true
		}
	}
	return len(failed)
}

// unseen returns how many attempts at a callback may have failed without the receiver's knowledge, on a busy machine: the last one
// that timed out may have done so before the receiver had taken the request, and each earlier one that was answered well and made
// again, before the node had read the answer.
func unseen(e *entry, r row, of []delivery) int {
	late := strings.HasPrefix(r.LastError, "delivery timed out") || r.LastError == "callback: no answer in time"
	if !late || e.Type != hook.Name() && e.Type != hookRun.Name() {
		return 0
	}
	answered := map[int]bool{}
	for _, d := range of {
		again := slices.ContainsFunc(of, func(later delivery) bool { return later.Version == d.Version && later.Attempts > d.Attempts })
		if d.OK && d.Version == r.Version && d.Attempts < r.Attempts-1 && again {
			answered[d.Attempts] = true
		}
	}
	return 1 + len(answered)
}

// costs reports whether the delivery may have been a failed attempt: it failed, it
// took too long, or its node was frozen and woke after the time-out.
func (v verdict) costs(d delivery) bool {
	if !d.End.IsZero() && (!d.OK || d.End.Sub(d.At) > v.opts.timeout(d.Callback)-time.Second/2) {
		return true
	}
	return slices.ContainsFunc(v.incidents, func(i incident) bool {
		return i.hits(d.Node, FreezeNode) && i.touches(d.At, d.At.Add(deliveryTimeout), time.Second)
	})
}

// change checks what became of a cancel or reschedule.
func (v verdict) change(e *entry, r row, of []delivery) {
	o := e.Change
	switch {
	case !o.done():
	case o.Cancel && r.Status != tocsin.Cancelled:
		v.breach(e, &r, of, "a cancelled task stays cancelled")
	case o.Cancel:
		v.cancelled(e, r, of)
	case r.Version == 0:
		v.breach(e, &r, of, "a rescheduled task has a new version")
	}
}

// cancelled checks that no delivery started after the cancel succeeded.
func (v verdict) cancelled(e *entry, r row, of []delivery) {
	for _, d := range of {
		grace := d.before(loadedBefore)
		switch {
		case e.Type == strict.Name():
			grace = 0
		case r.ClaimedBy != "":
			grace = claimedBefore
		}
		switch after := d.At.Sub(e.Change.Back); {
		case after <= 0:
		case after <= grace:
			v.report.LoadedBefore++
		case v.frozen(d):
			v.report.FrozenBefore++
		default:
			v.breach(e, &r, of, "a cancelled task is not delivered")
		}
	}
}

// frozen reports whether the delivery's node was frozen shortly before it started.
func (v verdict) frozen(d delivery) bool {
	return slices.ContainsFunc(v.incidents, func(i incident) bool {
		return i.hits(d.Node, FreezeNode) && i.touches(d.At, d.At, d.before(thawedBefore))
	})
}

// times checks that nothing was early, and measures how late it was.
func (v verdict) times(e *entry, r row, of []delivery) {
	seen := map[uint32]bool{}
	for _, d := range of {
		due := e.due(d.Version)
		if d.At.Before(due) {
			v.report.Early++
			v.breach(e, &r, of, "never early")
		}
		if d.Attempts > 0 || seen[d.Version] {
			continue
		}
		seen[d.Version] = true
		v.late(e, d, due, v.place(r.JobID.Table()))
	}
}

// late books a first delivery's lateness.
func (v verdict) late(e *entry, d delivery, due time.Time, at place) {
	late := max(d.At.Sub(e.awaited(d.Version)), 0)
	troubled := slices.ContainsFunc(v.incidents, func(i incident) bool {
		return i.delays(at) && i.touches(due, d.At, v.opts.recovery())
	})
	if troubled {
		v.report.Troubled = append(v.report.Troubled, late)
	} else {
		v.report.Calm = append(v.report.Calm, late)
	}
}

// twice books second deliveries by cause.
func (v verdict) twice(e *entry, r row, of []delivery) {
	again := seconds(of)
	for _, s := range again {
		s.ranOut = r.Crashes > 0
		cause := causeOf(s, v.place(r.JobID.Table()), v.incidents, v.opts.aftermath())
		v.report.Again[cause]++
		if cause == causeNone {
			v.breach(e, &r, of, "a second delivery has a cause")
		}
		if e.Type == strict.Name() && !mayRepeatStrict(cause) {
			v.breach(e, &r, of, "a strict task is delivered by nobody else while its claim lasts")
		}
	}
	v.report.MostAgain = max(v.report.MostAgain, len(again))
}

// mayRepeatStrict reports whether a fault can end or outlast the process that claimed
// a task, or keep its outcome from the server.
func mayRepeatStrict(cause string) bool {
	switch cause {
	case string(LowSweep), causeSweep, causeHandOver, string(StopEtcd), string(KillMember), string(CutEtcd):
		return false
	}
	return true
}

// breach notes a broken promise of a task.
func (v verdict) breach(e *entry, r *row, of []delivery, promise string) {
	trace := e.String()
	if r == nil {
		trace += "\n  no row"
	} else {
		trace += "\n  " + r.String()
	}
	for _, d := range of {
		trace += "\n  " + d.String()
	}
	v.report.breach(promise, trace)
}
