package chaos

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin"
)

// evidence is the one log of a run: what was asked of the cluster, what was done to it, and what was seen of it. The promises are
// questions to it. What is asked and done may be noted at any time from any goroutine; entries, orders and timers belong to
// their loads until these have ended.
type evidence struct {
	opts Options

	mu         sync.Mutex
	lastID     uint64            // the biz_id that was given out last
	entries    map[uint64]*entry // by biz_id
	orders     map[uint64]*order // by biz_id
	unopened   int               // orders that were not begun, since too many were under way
	timers     []*timer
	incidents  []incident
	intrusions []incident

	finals     map[tocsin.JobID]row        // final states seen during the run
	rows       map[uint64][]row            // tasks at the end, by biz_id; without the runs of schedules
	deliveries map[tocsin.JobID][]delivery // from the journals
	stored     map[opKey]bool              // what the business servers have
	moves      map[outboxKey]move          // what stood in the ledgers
	left       int                         // rows in the outboxes
	revisions  map[tocsin.JobID][]revised  // of schedules, in their order
	runs       map[tocsin.JobID]*firing    // of schedules
	measures   []cost

	leases map[tocsin.JobID][]leaseNote // of tasks that workers ask for
	asked  []request                    // by workers
	sent   map[tocsin.JobID][]settled   // the same, by task
}

func newEvidence(o Options) *evidence {
	return &evidence{
		opts: o, entries: map[uint64]*entry{}, orders: map[uint64]*order{}, finals: map[tocsin.JobID]row{}, rows: map[uint64][]row{},
		deliveries: map[tocsin.JobID][]delivery{}, stored: map[opKey]bool{}, moves: map[outboxKey]move{},
		revisions: map[tocsin.JobID][]revised{}, runs: map[tocsin.JobID]*firing{},
	}
}

// open makes an entry with a new biz_id.
func (e *evidence) open(typ string, due time.Time) *entry {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lastID++
	task := &entry{BizID: e.lastID, Type: typ, op: op{Kind: opAdd, Due: due}}
	e.entries[task.BizID] = task
	return task
}

// drop forgets tasks that were never sent.
func (e *evidence) drop(drafts []draft) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, d := range drafts {
		delete(e.entries, d.entry.BizID)
	}
}

// openOrder makes an order with a new biz_id.
func (e *evidence) openOrder(shop int, typ string) *order {
	e.mu.Lock()
	defer e.mu.Unlock()
	o := &order{BizID: firstOrder + uint64(len(e.orders)), Shop: shop, Type: typ}
	e.orders[o.BizID] = o
	return o
}

// dropOrder counts an order that was not begun.
func (e *evidence) dropOrder() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unopened++
}

// incident is a fault as it happened.
type incident struct {
	Step
	from, to time.Time // to is zero while it lasts
	tables   []string  // of an intrusion: those that changed
}

// touches reports whether it may have had effect at some time of a span: it goes
// on for a while after its end, until leases, claims and connections are new.
func (i incident) touches(from, to time.Time, after time.Duration) bool {
	return !to.Before(i.from) && (i.to.IsZero() || !from.After(i.to.Add(after)))
}

// begin notes a fault and gives what ends it.
func (e *evidence) begin(s Step) (end func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := len(e.incidents)
	e.incidents = append(e.incidents, incident{Step: s, from: time.Now()})
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.incidents[n].to = time.Now()
	}
}

// intrude notes a write to a database that was known to be wrong.
func (e *evidence) intrude(i incident) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.intrusions = append(e.intrusions, i)
}

// intrusion describes one in a breach's trace.
func (i incident) intrusion() string {
	return fmt.Sprintf("%s: %s changed between %s and %s", i.Fault, strings.Join(i.tables, ", "),
		i.from.UTC().Format(clockForm), i.to.UTC().Format(clockForm))
}

// word is what the cluster said of an operation.
type word string

// The words. Unknown is the client's own ErrUnknownOutcome, or a transaction whose
// commit broke.
const (
	acknowledged word = "acknowledged"
	refusedWord  word = "refused"
	unknownWord  word = "unknown"
	rolledBack   word = "rolled back"
)

// wordOf reads the error of an operation.
func wordOf(err error) word {
	switch {
	case err == nil:
		return acknowledged
	case errors.Is(err, tocsin.ErrUnknownOutcome):
		return unknownWord
	}
	return refusedWord
}

// asked is when something was asked of the cluster, and its answer.
type asked struct {
	Sent time.Time
	Back time.Time // when the answer came
	Word word
}

// answered notes the answer.
func (a *asked) answered(err error) { a.Back, a.Word = time.Now(), wordOf(err) }

// String is for a breach's trace.
func (a *asked) String() string {
	return fmt.Sprintf("sent %s, %s %s", a.Sent.UTC().Format(clockForm), a.Word, a.Back.UTC().Format(clockForm))
}

// The operations on a task.
const (
	opAdd        = "add"
	opCancel     = "cancel"
	opReschedule = "reschedule"
)

// op is an operation on a task: asked for directly, or a row of an outbox.
type op struct {
	Kind string
	asked
	Due    time.Time     // of an add or reschedule; zero: see Delay
	Delay  time.Duration // from the creation of the row of the outbox
	Answer tocsin.Change // of a direct cancel or reschedule

	Seq    int       // number in the order, as the business server has it
	Outbox uint64    // id of its row; 0: it was not written
	Commit time.Time // before the commit was sent
}

// done reports whether the operation took hold for certain.
func (o *op) done() bool { return o != nil && o.Word == acknowledged && o.Answer.Changed == 1 }

// due is when the operation wants the task, at the earliest.
func (o *op) due() time.Time {
	if o.Due.IsZero() {
		return o.Sent.Add(o.Delay)
	}
	return o.Due
}

// awaited is from when on a delivery is late: when it was asked for, or when its transaction was committed or its insert answered,
// if that was later.
func (o *op) awaited() time.Time { return laterOf(o.due(), cmp.Or(o.Commit, o.Back)) }

// laterOf is the later one of two times.
func laterOf(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// String is for a breach's trace.
func (o *op) String() string {
	text := o.Kind
	if o.Outbox > 0 {
		text = fmt.Sprintf("%d %s, outbox row %d,", o.Seq, o.Kind, o.Outbox)
	}
	if o.Kind != opCancel {
		text += " for " + o.due().UTC().Format(clockForm)
	}
	return fmt.Sprintf("%s %s, changed %d", text, &o.asked, o.Answer.Changed)
}

// entry is one task that was added directly. Each has a biz_id of its own.
type entry struct {
	BizID  uint64
	JobID  tocsin.JobID // 0: not told
	Type   string
	Fail   int // attempts that are to fail before one succeeds
	Do     string
	op         // the add
	Change *op // at most one
}

// String is for a breach's trace.
func (e *entry) String() string {
	text := fmt.Sprintf("biz_id %d, job_id %s, %s, fails %d %s\n  %s", e.BizID, e.JobID, e.Type, e.Fail, e.Do, &e.op)
	if e.Change != nil {
		text += "\n  " + e.Change.String()
	}
	return text
}

// firstOrder is the biz_id of the first order. Tasks that are added directly have lower ones.
const firstOrder = 1 << 32

// order is a biz_id whose tasks go through the outbox of one business server.
type order struct {
	BizID uint64
	Shop  int
	Type  string

	mu  sync.Mutex // transactions of an order may run at once
	ops []*op
}

// open notes an operation that is about to be written.
func (o *order) open(kind string) *op {
	o.mu.Lock()
	defer o.mu.Unlock()
	done := &op{Seq: len(o.ops), Kind: kind, asked: asked{Word: refusedWord}}
	o.ops = append(o.ops, done)
	return done
}

// broken reports whether an operation was refused, or its outcome is unknown.
func (o *order) broken() bool {
	return slices.ContainsFunc(o.ops, func(op *op) bool { return op.Word == refusedWord || op.Word == unknownWord })
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
func (o *order) committed(stored map[opKey]bool) (all []*op) {
	for _, op := range o.ops {
		if stored[opKey{o.BizID, op.Seq}] {
			all = append(all, op)
		}
	}
	slices.SortFunc(all, func(a, b *op) int { return cmp.Compare(a.Outbox, b.Outbox) })
	return all
}
