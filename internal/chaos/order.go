package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// The operations on an order, as an outbox has them.
const (
	opAdd        = "add"
	opCancel     = "cancel"
	opReschedule = "reschedule"
)

// firstOrder is the biz_id of the first order. Tasks that are added directly have lower ones.
const firstOrder = 1 << 32

// orderOp is one row of an outbox, in a transaction of its order.
type orderOp struct {
	Seq    int // number in the order, as the business server has it
	Op     string
	Outbox uint64        // id of its row; 0: it was not written
	Due    time.Time     // of an add or reschedule; zero: see Delay
	Delay  time.Duration // from the row's creation
	Sent   time.Time     // before the row was written
	Commit time.Time     // before the commit was sent
	Back   time.Time     // when its answer came
	Word   word
}

// due is when the operation wants the task, at the earliest.
func (o *orderOp) due() time.Time {
	if o.Due.IsZero() {
		return o.Sent.Add(o.Delay)
	}
	return o.Due
}

// String is for a breach's trace.
func (o *orderOp) String() string {
	return fmt.Sprintf("%d %s, outbox row %d, for %s, sent %s, %s %s", o.Seq, o.Op, o.Outbox, o.due().UTC().Format(clockForm),
		o.Sent.UTC().Format(clockForm), o.Word, o.Back.UTC().Format(clockForm))
}

// order is a biz_id whose tasks go through the outbox of one business server.
type order struct {
	BizID uint64
	Shop  int
	Type  string

	mu  sync.Mutex // transactions of an order may run at once
	ops []*orderOp
}

// open notes an operation that is about to be written.
func (o *order) open(op string) *orderOp {
	o.mu.Lock()
	defer o.mu.Unlock()
	done := &orderOp{Seq: len(o.ops), Op: op, Word: refusedWord}
	o.ops = append(o.ops, done)
	return done
}

// broken reports whether a transaction neither committed nor was rolled back as it should be.
func (o *order) broken() bool {
	return slices.ContainsFunc(o.ops, func(op *orderOp) bool { return op.Word == refusedWord || op.Word == unknownWord })
}

// String is for a breach's trace.
func (o *order) String() string {
	text := []string{fmt.Sprintf("biz_id %d, %s, business server %d", o.BizID, o.Type, o.Shop)}
	for _, op := range o.ops {
		text = append(text, op.String())
	}
	return strings.Join(text, "\n  ")
}

// committed are the operations that the business server has, in the order of their outbox rows.
func (o *order) committed(stored map[opKey]bool) (all []*orderOp) {
	for _, op := range o.ops {
		if stored[opKey{o.BizID, op.Seq}] {
			all = append(all, op)
		}
	}
	slices.SortFunc(all, func(a, b *orderOp) int { return cmp.Compare(a.Outbox, b.Outbox) })
	return all
}

// orders remembers every order. Safe for concurrent use; the operations belong to the load until it has ended.
type orders struct {
	mu      sync.Mutex
	all     map[uint64]*order
	dropped int // that were not begun, since too many were under way
}

func (l *orders) open(shop int, typ string) *order {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := &order{BizID: firstOrder + uint64(len(l.all)), Shop: shop, Type: typ}
	l.all[o.BizID] = o
	return o
}

func (l *orders) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropped++
}
