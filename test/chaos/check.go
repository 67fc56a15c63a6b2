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

// verdict asks for each promise, and collects the answers.
type verdict struct {
	*evidence
	report *Report
}

// check holds every promise against the evidence.
func (e *evidence) check() *Report {
	v := verdict{e, &Report{Counts: map[string]Count{}, Times: map[string]Lateness{}}}
	e.sent = e.sentEnds()
	v.tasks()
	v.sales()
	v.timetables()
	v.strangers()
	v.closed()
	v.measured()
	for _, i := range v.incidents {
		v.report.count(lineFaults, string(i.Fault))
	}
	for _, times := range v.report.Times {
		slices.Sort(times)
	}
	return v.report
}

// strangers are deliveries of tasks that no table has.
func (v verdict) strangers() {
	known := map[tocsin.JobID]bool{}
	for _, rows := range v.rows {
		for _, r := range rows {
			known[r.JobID] = true
		}
	}
	for id, all := range v.deliveries {
		if !known[id] && v.runs[id] == nil {
			v.report.breach(promiseKnown, fmt.Sprintf("job_id %s: %v", id, all))
		}
		v.report.Deliveries += len(all)
	}
}

// closed checks the writes to databases while they were wrong. Writes of a node that was frozen, or could not reach the
// server, with a statement on its way, are allowed.
func (v verdict) closed() {
	for _, i := range v.incidents {
		if i.Fault == WrongCluster || i.Fault == NoLayout {
			v.report.count(lineClosed, "in all")
		}
	}
	for _, w := range v.intrusions {
		held := func(i incident) bool {
			return (i.Fault == FreezeNode || i.Fault == CutNode && i.Server == w.Server) && i.touches(w.from, w.to, 0)
		}
		if slices.ContainsFunc(v.incidents, held) {
			v.report.count(lineClosed, "written to by a node that was frozen or cut off")
			continue
		}
		v.report.breach(promiseClosed, w.intrusion())
	}
}

// task is one task as the checks see it, whoever asked for it.
type task struct {
	about    fmt.Stringer // what was asked
	typ      string
	attempts int   // after how many it is dead
	asks     []*op // the add, and the reschedules that may have taken hold
	shop     int   // the business server that asked for it, counted from one; 0: none
	seen     []row // final states before the last
	row      row
	of       []delivery
}

// asked is the operation that a version of the task is of.
func (t task) asked(version uint32) *op { return t.asks[min(int(version), len(t.asks)-1)] }

// at is where the task is kept, and came from.
func (v verdict) at(t task) place {
	at := v.opts.placeOf(t.row.JobID.Table())
	at.shop, at.broker = t.shop, v.opts.Broker != "" && t.typ == hook.Name()
	return at
}

// fate checks how a task ended, and its deliveries; not why it was cancelled.
func (v verdict) fate(t task) {
	v.report.count(lineFinal, t.row.Status.String())
	v.report.add(lineAttempts, t.typ, t.row.Attempts)
	well := func(d delivery) bool { return d.OK && d.Version == t.row.Version }
	switch {
	case !t.row.Status.Final():
		v.breach(t, promiseEnds)
	case t.row.Status == tocsin.Done && !slices.ContainsFunc(t.of, well):
		v.breach(t, promiseDelivered)
	case t.row.Status == tocsin.Dead && t.row.Attempts < t.attempts && t.row.Crashes < crashesMost:
		v.breach(t, promiseLastTry)
	}
	if t.row.Status == tocsin.Done && v.overcounted(t) {
		v.breach(t, promiseAttempts)
	}
	if slices.ContainsFunc(t.of, func(d delivery) bool { return d.Version > t.row.Version }) {
		v.breach(t, promiseOwnID)
	}
	now := t.row
	for _, before := range slices.Backward(t.seen) {
		if !sameEnd(before, now) {
			v.breach(t, promiseOneEnd)
		}
		now = before
	}
	if t.typ == pulled.Name() {
		v.pulled(t)
		return
	}
	v.twice(t)
}

// sameEnd allows the one change of a final state that the writes allow: a success
// that comes late completes a dead task.
func sameEnd(before, now row) bool {
	return before.Status == now.Status && before.Action.Equal(now.Action) || before.Status == tocsin.Dead && now.Status == tocsin.Done
}

// overcounted reports whether a task has more failed attempts than deliveries that may have failed.
func (v verdict) overcounted(t task) bool {
	if t.typ == pulled.Name() {
		return false // see ended
	}
	failed := map[int]bool{}
	for _, d := range t.of {
		if d.Version == t.row.Version && v.costs(d) {
			failed[d.Attempts] = true
		}
	}
	return t.row.Attempts > len(failed)+t.unseen()
}

// unseen returns how many attempts at a callback may have failed without the receiver's knowledge, on a busy machine: the last one
// that timed out may have done so before the receiver had taken the request, and each earlier one that was answered well and made
// again, before the node had read the answer.
func (t task) unseen() int {
	late := strings.HasPrefix(t.row.LastError, "delivery timed out") || t.row.LastError == "callback: no answer in time"
	message := func(d delivery) bool { return d.Offset != "" } // a broker that does not answer costs no attempt
	if !late || t.typ != hook.Name() && t.typ != hookRun.Name() || slices.ContainsFunc(t.of, message) {
		return 0
	}
	answered := map[int]bool{}
	for _, d := range t.of {
		again := slices.ContainsFunc(t.of, func(later delivery) bool { return later.Version == d.Version && later.Attempts > d.Attempts })
		if d.OK && d.Version == t.row.Version && d.Attempts < t.row.Attempts-1 && again {
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

// begunAfter checks that no delivery began after the task was cancelled, but by a process that had it in hand then or was frozen in
// between.
func (v verdict) begunAfter(t task, cancelled time.Time, promise string, inHand func(delivery) bool) {
	for _, d := range t.of {
		switch {
		case !d.At.After(cancelled):
		case inHand(d):
			v.report.count(lineAfterCancel, "loaded or claimed before it")
		case v.frozen(d):
			v.report.count(lineAfterCancel, "by a node that was frozen")
		case v.kept(d, cancelled):
			v.report.count(lineAfterCancel, "sent before, and read when the broker was back")
		default:
			v.report.count(lineAfterCancel, "others")
			v.breach(t, promise)
		}
	}
}

// frozen reports whether the delivery's node was frozen shortly before it started.
func (v verdict) frozen(d delivery) bool {
	return slices.ContainsFunc(v.incidents, func(i incident) bool {
		return i.hits(d.Node, FreezeNode, FreezeWorker) && i.touches(d.At, d.At, d.before(thawedBefore))
	})
}

// kept reports whether a message may have been sent before a cancel, and then have lain in a broker that was killed or frozen until it was read.
func (v verdict) kept(d delivery, cancelled time.Time) bool {
	return d.Offset != "" && slices.ContainsFunc(v.incidents, func(i incident) bool {
		return i.Fault.target() == ofBroker && !i.from.After(cancelled.Add(loadedBefore)) && i.touches(d.At, d.At, callbackBefore)
	})
}

// notBegun checks that no delivery of a task began after its cancel.
func (v verdict) notBegun(t task, cancelled time.Time) {
	v.begunAfter(t, cancelled, promiseNotBegun, func(d delivery) bool {
		grace := d.before(loadedBefore)
		switch {
		case t.typ == strict.Name():
			return false
		case t.typ == pulled.Name(): // whatever came later was leased before
			return slices.ContainsFunc(v.leases[t.row.JobID], func(n leaseNote) bool { return n.ClaimedBy == d.Lease && !n.At.After(cancelled) })
		case t.row.ClaimedBy != "":
			grace = claimedBefore
		}
		return d.At.Sub(cancelled) <= grace
	})
}

// early checks that nothing began before its time.
func (v verdict) early(t task) {
	for _, d := range t.of {
		if d.At.Before(t.asked(d.Version).due()) {
			v.report.Early++
			v.breach(t, promiseEarly)
		}
	}
}

// late books the lateness of the first delivery of each version, and that of a task of an outbox that was due at once.
func (v verdict) late(t task) {
	seen := map[uint32]bool{}
	for _, d := range t.of {
		if d.Attempts > 0 || seen[d.Version] {
			continue
		}
		seen[d.Version] = true
		o := t.asked(d.Version)
		late := max(d.At.Sub(o.awaited()), 0)
		if v.delayed(v.at(t), o.due(), d.At) || v.frozen(d) {
			v.report.book(timeTroubled, late)
		} else {
			v.report.book(timeCalm, late)
		}
		if o.due().Before(o.Commit) {
			v.bookOutbox(timeAtOnce, v.at(t), o.Commit, d.At, late)
		}
	}
}

// delayed reports whether a fault may have delayed something of a place in a span.
func (v verdict) delayed(at place, from, to time.Time) bool {
	return slices.ContainsFunc(v.incidents, func(i incident) bool { return i.delays(at) && i.touches(from, to, v.opts.recovery()) })
}

// twice books second deliveries by cause.
func (v verdict) twice(t task) {
	again := seconds(t.of)
	for _, s := range again {
		s.ranOut = t.row.Crashes > 0
		cause := causeOf(s, v.at(t), v.incidents, v.opts.aftermath())
		v.report.count(lineAgain, cause)
		if cause == causeNone {
			v.breach(t, promiseCause)
		}
		if t.typ == strict.Name() && !mayRepeatStrict(cause) {
			v.breach(t, promiseStrict)
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
func (v verdict) breach(t task, promise string) {
	trace := []string{t.about.String()}
	for _, before := range t.seen {
		trace = append(trace, "seen before: "+before.String())
	}
	trace = append(trace, t.row.String())
	for _, d := range t.of {
		trace = append(trace, d.String())
	}
	v.report.breach(promise, strings.Join(trace, "\n  "))
}

// tasks checks the tasks that were added directly.
func (v verdict) tasks() {
	for bizID, rows := range v.rows {
		if v.orders[bizID] == nil {
			for _, r := range rows[1:] {
				v.report.breach(promiseOneRow, r.String())
			}
		}
	}
	for _, e := range v.entries {
		v.report.count(lineAdds, string(e.Word))
		if rows := v.rows[e.BizID]; len(rows) > 0 {
			v.entry(e, rows[0])
		} else if e.Word == acknowledged {
			v.report.breach(promiseStored, e.String()+"\n  no row")
		}
	}
}

// entry checks a task that has a row.
func (v verdict) entry(e *entry, r row) {
	t := task{about: e, typ: e.Type, attempts: attempts, asks: []*op{&e.op}, row: r, of: v.deliveries[r.JobID]}
	if e.Type == pulled.Name() {
		t.attempts = pullAttempts
	}
	if e.Do == doGone || e.Do == doBury {
		t.attempts = 0 // its receiver or worker says at once that nobody will take it
	}
	o := e.Change
	if o != nil && o.Kind == opReschedule {
		t.asks = append(t.asks, o)
	}
	if before, seen := v.finals[r.JobID]; seen {
		t.seen = []row{before}
	}
	switch {
	case e.Word == refusedWord || e.Word == rolledBack:
		v.breach(t, promiseRefused)
	case e.JobID != 0 && e.JobID != r.JobID:
		v.breach(t, promiseSameID)
	}
	v.fate(t)
	if r.Status == tocsin.Done && r.Attempts < e.Fail {
		v.breach(t, promiseAttempts)
	}
	cancelling := o != nil && o.Kind == opCancel
	switch {
	case r.Status == tocsin.Cancelled && !(cancelling && (o.done() || o.Word == unknownWord)):
		v.breach(t, promiseUser)
	case !o.done():
	case cancelling && r.Status != tocsin.Cancelled:
		v.breach(t, promiseCancelled)
	case cancelling:
		v.notBegun(t, o.Back)
	case r.Version == 0:
		v.breach(t, promiseVersion)
	}
	v.early(t)
	v.late(t)
}
