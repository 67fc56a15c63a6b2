package chaos

import (
	"fmt"
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
