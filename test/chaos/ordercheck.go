package chaos

import (
	"fmt"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
)

// settleSlack is how long a relay may take between the ledger and the task, in one transaction.
const settleSlack = 2 * time.Second

// sales checks all orders.
func (v verdict) sales() {
	if v.unopened > 0 {
		v.report.add(lineTransactions, "orders left out", v.unopened)
	}
	for _, o := range v.orders {
		v.sale(o)
	}
	if v.left > 0 {
		v.report.breach(promiseEmpty, fmt.Sprintf("%d rows are left", v.left))
	}
}

// sale checks an order: its rows in the outbox, then each of its tasks.
func (v verdict) sale(o *order) {
	for _, op := range o.ops {
		v.report.count(lineTransactions, string(op.Word))
		if op.Word == acknowledged && !v.stored[opKey{o.BizID, op.Seq}] {
			v.broken(o, promiseDurable)
		}
	}
	committed := o.committed(v.stored)
	ours := map[tocsin.JobID]bool{}
	last := time.Time{}
	for i, op := range committed {
		v.report.count(lineCommitted, op.Kind)
		m, moved := v.moves[outboxKey{o.Shop, op.Outbox}]
		if !moved {
			v.broken(o, promiseMoved)
			continue
		}
		if m.At.Before(last) {
			v.broken(o, promiseInOrder)
		}
		last = m.At
		if op.Kind == opAdd {
			ours[m.Job] = true
			v.sold(o, op, m, committed[i+1:])
		}
		at := v.opts.placeOf(v.opts.Layout.TableOf(o.BizID))
		at.shop = o.Shop + 1
		v.bookOutbox(timeMoved, at, op.Sent, m.At, max(m.At.Sub(op.Commit), 0))
	}
	v.surplus(o, ours)
}

// bookOutbox books how long something of an outbox took, apart from what a fault, or a relay without the lock, was near.
func (v verdict) bookOutbox(line string, at place, from, until time.Time, took time.Duration) {
	twice := func(i incident) bool { return i.Fault == TwoRelays && i.touches(from, until, v.opts.recovery()) }
	switch {
	case v.delayed(at, from, until):
		line += besideFaults
	case slices.ContainsFunc(v.incidents, twice):
		line += besideTwice
	}
	v.report.book(line, took)
}

// surplus checks that an order has no other tasks than those of its committed adds.
func (v verdict) surplus(o *order, ours map[tocsin.JobID]bool) {
	for _, r := range v.rows[o.BizID] {
		if ours[r.JobID] {
			continue
		}
		promise := promiseOnce
		for _, op := range o.ops {
			if m, moved := v.moves[outboxKey{o.Shop, op.Outbox}]; moved && m.Job == r.JobID && !v.stored[opKey{o.BizID, op.Seq}] {
				promise = promiseRolledBack
			}
		}
		v.broken(o, promise)
	}
}

// sold checks the task of an add; behind are the operations that follow.
func (v verdict) sold(o *order, add *op, m move, behind []*op) {
	at := slices.IndexFunc(v.rows[o.BizID], func(r row) bool { return r.JobID == m.Job })
	if at < 0 {
		v.broken(o, promiseStored)
		return
	}
	t := task{about: o, typ: o.Type, attempts: attempts, shop: o.Shop + 1, asks: []*op{add}, row: v.rows[o.BizID][at], of: v.deliveries[m.Job]}
	if before, seen := v.finals[m.Job]; seen {
		t.seen = []row{before}
	}
	var cancel *op
	for _, op := range behind {
		if op.Kind == opReschedule {
			t.asks = append(t.asks, op)
		}
		if op.Kind == opCancel {
			cancel = op
			break
		}
	}
	v.fate(t)
	switch {
	case t.row.Status == tocsin.Cancelled && cancel == nil:
		v.breach(t, promiseUser)
	case t.row.Status == tocsin.Cancelled:
		v.notBegun(t, v.moves[outboxKey{o.Shop, cancel.Outbox}].At)
	case t.row.Status == tocsin.Done && cancel != nil:
		v.report.count(lineAfterDone, opCancel)
		if v.passed(o, t, cancel) {
			v.breach(t, promiseCancel)
		}
	}
	v.soldVersion(o, t)
	v.early(t)
	v.late(t)
}

// passed reports whether the task was done although an operation had been moved before: it was lost.
func (v verdict) passed(o *order, t task, op *op) bool {
	m, moved := v.moves[outboxKey{o.Shop, op.Outbox}]
	if !moved || !t.row.Action.After(m.At.Add(settleSlack)) {
		return false
	}
	return !slices.ContainsFunc(v.incidents, func(i incident) bool { // a relay that was frozen in its transaction
		return i.Fault == FreezeNode && i.touches(m.At, t.row.Action, settleSlack)
	})
}

// soldVersion checks that the reschedules that were in time took hold, each once and in their order.
func (v verdict) soldVersion(o *order, t task) {
	n := int(t.row.Version)
	if n >= len(t.asks) || !sameTime(t.asks[n], t.row.Due) {
		v.breach(t, promiseReschedule)
		return
	}
	for _, op := range t.asks[n+1:] {
		if t.row.Status != tocsin.Done {
			continue
		}
		v.report.count(lineAfterDone, opReschedule)
		if v.passed(o, t, op) {
			v.breach(t, promiseReschedule)
		}
	}
}

// sameTime reports whether a row's due_time is what an operation asked for. A delay ends at the earliest when it should.
func sameTime(o *op, due time.Time) bool {
	if !o.Due.IsZero() {
		return due.Equal(o.Due)
	}
	return !due.Before(o.due())
}

// broken notes a broken promise of an order, with its rows and moves.
func (v verdict) broken(o *order, promise string) {
	trace := o.String()
	for _, op := range o.ops {
		if m, moved := v.moves[outboxKey{o.Shop, op.Outbox}]; moved {
			trace += fmt.Sprintf("\n  row %d moved %s as job_id %s", op.Outbox, m.At.Format(clockForm), m.Job)
		}
	}
	for _, r := range v.rows[o.BizID] {
		trace += "\n  job_id " + r.JobID.String() + " " + r.String()
	}
	v.report.breach(promise, trace)
}
