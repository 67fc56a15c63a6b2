package chaos

import (
	"fmt"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
)

// settleSlack is how long a relay may take between the ledger and the task, in one transaction.
const settleSlack = 2 * time.Second

// The promises of outboxes.
const (
	promiseMoved      = "what is committed is moved"
	promiseInOrder    = "of one biz_id rows are moved in their order"
	promiseRolledBack = "nothing is moved of a transaction that was rolled back"
	promiseOnce       = "an add of an outbox is stored once"
	promiseCancel     = "a cancel is not lost"
	promiseReschedule = "reschedules take hold in their order"
	promiseEmpty      = "no row is left in an outbox"
	promiseDurable    = "a business server keeps what it acknowledged" // else the harness is wrong
)

// sold is what is known of the orders at the end of a run.
type sold struct {
	orders []*order
	stored map[opKey]bool     // what the business servers have
	moves  map[outboxKey]move // what stands in the ledgers
	rows   map[uint64][]row   // tasks, by biz_id
	failed int                // orders that were not begun
	left   int                // rows in the outboxes
}

// OrderFigures are those of the outboxes.
type OrderFigures struct {
	Dropped                        int // orders that the services did not begin
	Words                          map[string]int
	Rows                           map[string]int // of outboxes that were committed, by what they ask for
	Lag, Delivery                  Spans          // from the commit to the ledger, and to the delivery of tasks that are due at once
	CancelledLate, RescheduledLate int            // after the delivery: what they were about was done
}

// Spans are times of what no fault was near, of what only a relay without the lock was beside, and of the others.
type Spans struct{ Calm, Twice, Troubled Lateness }

func (s *Spans) finish() {
	slices.Sort(s.Calm)
	slices.Sort(s.Twice)
	slices.Sort(s.Troubled)
}

// lines are for the report.
func (f *OrderFigures) lines(line func(what, format string, args ...any)) {
	line("rows of transactions", "%s; %d orders left out", counted(f.Words), f.Dropped)
	line("committed rows", "%s", counted(f.Rows))
	line("after the delivery", "%d cancels, %d reschedules", f.CancelledLate, f.RescheduledLate)
	for i, spans := range []Spans{f.Lag, f.Delivery} {
		line([]string{"commit to ledger", "commit to delivery, at once"}[i], "%s", spans.Calm)
		line("  two relays", "%s", spans.Twice)
		line("  faults", "%s", spans.Troubled)
	}
}

// sales checks all orders.
func (v verdict) sales() {
	if v.sold == nil {
		return
	}
	v.report.Orders = &OrderFigures{Dropped: v.sold.failed, Words: map[string]int{}, Rows: map[string]int{}}
	for _, o := range v.sold.orders {
		v.sale(o)
	}
	if v.sold.left > 0 {
		v.report.breach(promiseEmpty, fmt.Sprintf("%d rows are left", v.sold.left))
	}
	v.report.Orders.Lag.finish()
	v.report.Orders.Delivery.finish()
}

// sale checks an order: its rows in the outbox, then each of its tasks.
func (v verdict) sale(o *order) {
	for _, op := range o.ops {
		v.report.Orders.Words[string(op.Word)]++
		if op.Word == acknowledged && !v.sold.stored[opKey{o.BizID, op.Seq}] {
			v.broken(o, promiseDurable)
		}
	}
	committed := o.committed(v.sold.stored)
	ours := map[tocsin.JobID]bool{}
	last := time.Time{}
	for i, op := range committed {
		v.report.Orders.Rows[op.Op]++
		m, moved := v.sold.moves[outboxKey{o.Shop, op.Outbox}]
		if !moved {
			v.broken(o, promiseMoved)
			continue
		}
		if m.at.Before(last) {
			v.broken(o, promiseInOrder)
		}
		last = m.at
		v.lag(o, op, m.at)
		if op.Op == opAdd {
			ours[m.job] = true
			v.sale1(o, op, m, committed[i+1:])
		}
	}
	v.surplus(o, ours)
}

// lag books how long a row has waited for its relay.
func (v verdict) lag(o *order, op *orderOp, moved time.Time) {
	v.book(&v.report.Orders.Lag, o, op.Sent, moved, max(moved.Sub(op.Commit), 0))
}

// book adds a time to those of its kind.
func (v verdict) book(to *Spans, o *order, from, until time.Time, took time.Duration) {
	twice := func(i incident) bool { return i.Fault == TwoRelays && i.touches(from, until, v.opts.recovery()) }
	switch {
	case v.heldUp(o, from, until):
		to.Troubled = append(to.Troubled, took)
	case slices.ContainsFunc(v.incidents, twice):
		to.Twice = append(to.Twice, took)
	default:
		to.Calm = append(to.Calm, took)
	}
}

// heldUp reports whether a fault may have delayed something of an order in a span.
func (v verdict) heldUp(o *order, from, to time.Time) bool {
	at := v.place(v.opts.Layout.TableOf(o.BizID))
	return slices.ContainsFunc(v.incidents, func(i incident) bool {
		delays := i.delays(at)
		if i.Fault == KillShop {
			delays = i.Shop == o.Shop
		}
		return delays && i.touches(from, to, v.opts.recovery())
	})
}

// surplus checks that an order has no other tasks than those of its committed adds.
func (v verdict) surplus(o *order, ours map[tocsin.JobID]bool) {
	for _, r := range v.sold.rows[o.BizID] {
		if ours[r.JobID] {
			continue
		}
		promise := promiseOnce
		for _, op := range o.ops {
			if m, moved := v.sold.moves[outboxKey{o.Shop, op.Outbox}]; moved && m.job == r.JobID && !v.sold.stored[opKey{o.BizID, op.Seq}] {
				promise = promiseRolledBack
			}
		}
		v.broken(o, promise)
	}
}

// task is one task of an order: the row that an add has made.
type task struct {
	*order
	add         *orderOp
	reschedules []*orderOp // before the cancel
	cancel      *orderOp   // nil: none
	row         row
	of          []delivery
	entry       *entry // for the checks that all tasks have
}

// sale1 checks the task of an add; behind are the operations that follow.
func (v verdict) sale1(o *order, add *orderOp, m move, behind []*orderOp) {
	at := slices.IndexFunc(v.sold.rows[o.BizID], func(r row) bool { return r.JobID == m.job })
	if at < 0 {
		v.broken(o, promiseStored)
		return
	}
	t := task{order: o, add: add, row: v.sold.rows[o.BizID][at], of: v.deliveries[m.job]}
	t.entry = &entry{BizID: o.BizID, JobID: m.job, Type: o.Type, Due: add.due(), Sent: add.Sent, Back: add.Back, Word: add.Word, order: o}
	for _, op := range behind {
		if op.Op == opReschedule {
			t.reschedules = append(t.reschedules, op)
		}
		if op.Op == opCancel {
			t.cancel = op
			break
		}
	}
	v.report.States[t.row.Status.String()]++
	v.soldState(t)
	v.soldVersion(t)
	v.soldTimes(t)
	v.twice(t.entry, t.row, t.of)
	if before, seen := v.finals[m.job]; seen && !sameEnd(before, t.row) {
		v.breach(t.entry, &t.row, t.of, "a final state stays: was "+before.String())
	}
}

// soldState checks how the task ended.
func (v verdict) soldState(t task) {
	switch {
	case t.row.Status == tocsin.Done && !slices.ContainsFunc(t.of, func(d delivery) bool { return d.OK && d.Version == t.row.Version }):
		v.breach(t.entry, &t.row, t.of, promiseDelivered)
	case t.row.Status == tocsin.Done && t.cancel != nil:
		v.report.Orders.CancelledLate++
		if v.passed(t, t.cancel) {
			v.breach(t.entry, &t.row, t.of, promiseCancel)
		}
	case t.row.Status == tocsin.Cancelled && t.cancel == nil:
		v.breach(t.entry, &t.row, t.of, "nobody cancels but the user")
	case t.row.Status == tocsin.Cancelled:
		t.entry.Change = &op{Cancel: true, Back: v.movedAt(t, t.cancel)}
		v.cancelled(t.entry, t.row, t.of)
	case t.row.Status == tocsin.Dead && t.row.Attempts < attempts && t.row.Crashes < crashesMost:
		v.breach(t.entry, &t.row, t.of, "a task is buried after its last attempt or fifth crash only")
	case !t.row.Status.Final():
		v.breach(t.entry, &t.row, t.of, promiseEnds)
	}
}

func (v verdict) movedAt(t task, op *orderOp) time.Time {
	return v.sold.moves[outboxKey{t.Shop, op.Outbox}].at
}

// passed reports whether the task was done although an operation had been moved before: it was lost.
func (v verdict) passed(t task, op *orderOp) bool {
	m, moved := v.sold.moves[outboxKey{t.Shop, op.Outbox}]
	if !moved || !t.row.Action.After(m.at.Add(settleSlack)) {
		return false
	}
	return !slices.ContainsFunc(v.incidents, func(i incident) bool { // a relay that was frozen in its transaction
		return (i.Fault == FreezeNode || i.Fault == FreezeRelay) && i.touches(m.at, t.row.Action, settleSlack)
	})
}

// soldVersion checks that the reschedules that were in time took hold, each once and in their order.
func (v verdict) soldVersion(t task) {
	n := int(t.row.Version)
	if n > len(t.reschedules) || n > 0 && !sameTime(t.reschedules[n-1], t.row.Due) || n == 0 && !sameTime(t.add, t.row.Due) {
		v.breach(t.entry, &t.row, t.of, promiseReschedule)
		return
	}
	for _, op := range t.reschedules[n:] {
		if t.row.Status != tocsin.Done {
			continue
		}
		v.report.Orders.RescheduledLate++
		if v.passed(t, op) {
			v.breach(t.entry, &t.row, t.of, promiseReschedule)
		}
	}
}

// sameTime reports whether a row's due_time is what an operation asked for. A delay ends at the earliest when it should.
func sameTime(op *orderOp, due time.Time) bool {
	if !op.Due.IsZero() {
		return due.Equal(op.Due)
	}
	return !due.Before(op.due())
}

// soldTimes checks that nothing was early, and measures how late it was.
func (v verdict) soldTimes(t task) {
	seen := map[uint32]bool{}
	for _, d := range t.of {
		asked := t.add
		if d.Version > 0 && int(d.Version) <= len(t.reschedules) {
			asked = t.reschedules[d.Version-1]
		}
		if d.At.Before(asked.due()) {
			v.report.Early++
			v.breach(t.entry, &t.row, t.of, "never early")
		}
		if d.Attempts == 0 && !seen[d.Version] {
			v.soldLate(t, asked, d)
		}
		seen[d.Version] = true
	}
}

// soldLate books a first delivery's lateness, and that of a task due at once since its commit.
func (v verdict) soldLate(t task, asked *orderOp, d delivery) {
	since := asked.due()
	if since.Before(asked.Commit) {
		since = asked.Commit
	}
	late := max(d.At.Sub(since), 0)
	if asked.due().Before(asked.Commit) {
		v.book(&v.report.Orders.Delivery, t.order, since, d.At, late)
	}
	if v.heldUp(t.order, since, d.At) {
		v.report.Troubled = append(v.report.Troubled, late)
	} else {
		v.report.Calm = append(v.report.Calm, late)
	}
}

// broken notes a broken promise of an order, with its rows and moves.
func (v verdict) broken(o *order, promise string) {
	trace := o.String()
	for _, op := range o.ops {
		if m, moved := v.sold.moves[outboxKey{o.Shop, op.Outbox}]; moved {
			trace += fmt.Sprintf("\n  row %d moved %s as job_id %s", op.Outbox, m.at.Format(clockForm), m.job)
		}
	}
	for _, r := range v.sold.rows[o.BizID] {
		trace += "\n  job_id " + r.JobID.String() + " " + r.String()
	}
	v.report.breach(promise, trace)
}
