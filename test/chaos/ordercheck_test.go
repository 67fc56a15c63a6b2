package chaos

import (
	"slices"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
)

// soldEvidence is an order whose task was added, and done at its time.
func soldEvidence() (*evidence, *order) {
	e := newEvidence(Options{}.withDefaults())
	o := e.openOrder(0, plain.Name())
	e.sell(o, opAdd, 1000, 5, 70)
	e.store(o, row{JobID: 70, Status: tocsin.Done, Due: at(1000), Action: at(1020)})
	d := begun("n1-1", 1001, 0)
	d.JobID, d.End, d.OK = 70, at(1010), true
	e.deliveries[70] = []delivery{d}
	return e, o
}

// sell commits an operation that was moved.
func (e *evidence) sell(o *order, kind string, due, moved int, job tocsin.JobID) *op {
	op := o.open(kind)
	op.Outbox, op.Due, op.Word = uint64(len(o.ops)), at(due), acknowledged
	op.Sent, op.Commit, op.Back = at(moved-3), at(moved-2), at(moved-1)
	e.stored[opKey{o.BizID, op.Seq}] = true
	e.moves[outboxKey{o.Shop, op.Outbox}] = move{Job: job, At: at(moved)}
	return op
}

func (e *evidence) store(o *order, r row) {
	r.BizID = o.BizID
	e.rows[o.BizID] = append(e.rows[o.BizID], r)
}

// of is the first task of the order.
func (e *evidence) of(o *order) *row { return &e.rows[o.BizID][0] }

var soldForgeries = map[string]struct {
	forge  func(*evidence, *order)
	broken string // "": nothing
}{
	"as it should be": {func(*evidence, *order) {}, ""},
	"not moved":       {func(e *evidence, _ *order) { clear(e.moves); clear(e.rows); clear(e.deliveries) }, promiseMoved},
	"moved, and not stored": {func(e *evidence, o *order) {
		delete(e.rows, o.BizID)
		clear(e.deliveries)
	}, promiseStored},
	"left in the outbox": {func(e *evidence, _ *order) { e.left = 1 }, promiseEmpty},
	"not done":           {func(e *evidence, o *order) { e.of(o).Status = tocsin.Pending }, promiseEnds},
	"forgotten": {func(e *evidence, _ *order) {
		clear(e.stored)
		clear(e.moves)
		clear(e.rows)
		clear(e.deliveries)
	}, promiseDurable},
	"stored twice": {func(e *evidence, o *order) {
		r := *e.of(o)
		r.JobID = 71
		e.store(o, r)
	}, promiseOnce},
	"of a rolled back transaction": {func(e *evidence, o *order) {
		op := e.sell(o, opAdd, 1000, 6, 71)
		op.Word = rolledBack
		delete(e.stored, opKey{o.BizID, op.Seq})
		e.store(o, row{JobID: 71, Status: tocsin.Done, Due: at(1000)})
	}, promiseRolledBack},
	"of a transaction whose commit is unknown": {func(_ *evidence, o *order) { o.ops[0].Word = unknownWord }, ""},
	"out of order": {func(e *evidence, o *order) {
		e.sell(o, opReschedule, 3000, 4, 0)
		e.of(o).Version, e.of(o).Due = 1, at(3000)
		e.deliveries[70][0].Version, e.deliveries[70][0].At = 1, at(3001)
	}, promiseInOrder},
	"done long after its cancel was moved": {func(e *evidence, o *order) {
		e.sell(o, opCancel, 0, 10, 0)
		e.of(o).Action = at(3000)
	}, promiseCancel},
	"done before its cancel was moved": {func(e *evidence, o *order) { e.sell(o, opCancel, 0, 1500, 0) }, ""},
	"cancelled, and never added again": {func(e *evidence, o *order) { e.of(o).Status = tocsin.Cancelled }, "nobody cancels but the user"},
	"delivered long after it was cancelled": {func(e *evidence, o *order) {
		e.sell(o, opCancel, 0, 10, 0)
		e.of(o).Status = tocsin.Cancelled
		e.deliveries[70][0].At = at(3100)
	}, "a cancelled task is not delivered"},
	"a cancel that hit the next add too": {func(e *evidence, o *order) {
		e.sell(o, opCancel, 0, 10, 0)
		e.sell(o, opAdd, 1000, 12, 71)
		e.of(o).Status, e.deliveries[70] = tocsin.Cancelled, nil
		e.store(o, row{JobID: 71, Status: tocsin.Cancelled, Due: at(1000)})
	}, "nobody cancels but the user"},
	"the former of two reschedules": {func(e *evidence, o *order) {
		e.sell(o, opReschedule, 1000, 10, 0)
		e.sell(o, opReschedule, 900, 12, 0)
		e.of(o).Version, e.deliveries[70][0].Version = 2, 2
	}, promiseReschedule},
	"a reschedule played twice": {func(e *evidence, o *order) {
		e.sell(o, opReschedule, 1000, 10, 0)
		e.of(o).Version, e.deliveries[70][0].Version = 2, 2
	}, promiseReschedule},
	"a lost reschedule": {func(e *evidence, o *order) {
		e.sell(o, opReschedule, 900, 10, 0)
		e.of(o).Action = at(3000)
	}, promiseReschedule},
	"early":                             {func(e *evidence, _ *order) { e.deliveries[70][0].At = at(999) }, "never early"},
	"at the end of its delay":           {func(_ *evidence, o *order) { o.ops[0].Due, o.ops[0].Delay = time.Time{}, 998*time.Millisecond }, ""},
	"due before the end of its delay":   {func(_ *evidence, o *order) { o.ops[0].Due, o.ops[0].Delay = time.Time{}, 2*time.Second }, promiseReschedule},
	"delivered twice for no reason":     {func(e *evidence, _ *order) { e.deliveries[70] = append(e.deliveries[70], begun("n2-1", 1500, 0)) }, "a second delivery has a cause"},
	"delivered, and nothing is stored":  {func(e *evidence, _ *order) { e.deliveries[9] = e.deliveries[70] }, "what is delivered was stored"},
	"done, and nobody has delivered it": {func(e *evidence, _ *order) { e.deliveries[70] = nil }, promiseDelivered},
}

// TestOrderChecker: each broken promise of outboxes is found, and what is allowed is not called one.
func TestOrderChecker(t *testing.T) {
	t.Parallel()
	for name, c := range soldForgeries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, o := soldEvidence()
			c.forge(e, o)
			r := e.check()
			if c.broken == promiseReschedule { // what is too early may also have been delivered too early
				r.Breaches = slices.DeleteFunc(r.Breaches, func(b Breach) bool { return b.Promise == promiseEarly })
			}
			r.breaks(t, c.broken)
		})
	}
}

// TestRecipesMakeAHundred: else some orders are never drawn.
func TestRecipesMakeAHundred(t *testing.T) {
	t.Parallel()
	sum := 0
	for _, way := range recipes {
		sum += way.share
	}
	if sum != 100 {
		t.Errorf("the shares make %d", sum)
	}
}
