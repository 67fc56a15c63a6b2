package devcluster

import (
	"slices"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/quantile"
)

// Delivery is one that a handler or the receiver saw.
type Delivery struct {
	Info tocsin.Info
	Node string        // that delivered it
	Late time.Duration // from the time the user asked for to the delivery; negative: early
}

// Recorder keeps what handler and receiver saw. Safe for concurrent use.
type Recorder struct {
	onDelivery func(Delivery) // called outside the lock; nil: nobody looks

	mu     sync.Mutex
	seen   map[tocsin.JobID]int
	late   []time.Duration
	early  int
	byNode map[string]int
}

func newRecorder(onDelivery func(Delivery)) *Recorder {
	return &Recorder{onDelivery: onDelivery, seen: map[tocsin.JobID]int{}, byNode: map[string]int{}}
}

// record notes a delivery that started now. Database, nodes and receiver share
// this machine's clock, so lateness is by the database's clock.
// Tasks of a demo are left out: it may go on for days.
func (r *Recorder) record(info tocsin.Info, node string) {
	if info.BizID >= demoBizIDs {
		return
	}
	d := Delivery{Info: info, Node: node, Late: time.Since(info.DueTime)}
	r.add(d)
	if r.onDelivery != nil {
		r.onDelivery(d)
	}
}

func (r *Recorder) add(d Delivery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen[d.Info.JobID]++
	r.byNode[d.Node]++
	r.late = append(r.late, d.Late)
	if d.Late < 0 {
		r.early++
	}
}

// Distinct is the number of tasks seen at least once.
func (r *Recorder) Distinct() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.seen)
}

// Observed is what a Recorder has seen so far.
type Observed struct {
	Distinct int            // tasks seen at least once
	Again    int            // tasks seen more than once
	Early    int            // deliveries before the time asked for
	ByNode   map[string]int // deliveries by node name
	P50      time.Duration  // lateness
	P99      time.Duration
	Max      time.Duration
}

// Observed sums up.
func (r *Recorder) Observed() Observed {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := Observed{Distinct: len(r.seen), Early: r.early, ByNode: map[string]int{}}
	for node, n := range r.byNode {
		o.ByNode[node] = n
	}
	for _, n := range r.seen {
		if n > 1 {
			o.Again++
		}
	}
	late := slices.Sorted(slices.Values(r.late))
	o.P50, o.P99, o.Max = quantile.Of(late, 0.5), quantile.Of(late, 0.99), quantile.Of(late, 1)
	return o
}
