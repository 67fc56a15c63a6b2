package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/internal/quantile"
)

// Report is what a run showed. Broken promises are in Breaches.
type Report struct {
	Words        map[string]int // tasks by what the client said of their add
	Deliveries   int
	States       map[string]int // tasks by final state
	Early        int            // deliveries before their time
	Again        map[string]int // second deliveries by cause
	MostAgain    int            // second deliveries of one task at most
	LoadedBefore int            // started after a cancel but loaded before it; not strict
	FrozenBefore int            // started after a cancel by a node that was frozen in between
	Closed       int            // times that a database was wrong and watched for writes
	HeldBack     int            // part of these: with a write by a node that was frozen or cut off, its statement on the way
	Calm         Lateness       // of tasks that no fault was near
	Troubled     Lateness       // of the others
	Orders       *OrderFigures  // nil: there are no outboxes
	Fires        *FireFigures   // nil: there are no schedules
	Drained      time.Duration  // from the end of load and faults until every task was final
	Breaches     []Breach
}

// Lateness is delivery start minus due time, of first attempts, in order after the
// check.
type Lateness []time.Duration

// Quantile gives the smallest value that at least the share q lies at or below; 0
// of nothing.
func (l Lateness) Quantile(q float64) time.Duration {
	return quantile.Of(l, q)
}

// Lost counts the tasks that were acknowledged and are not as they should be.
func (r *Report) Lost() (n int) {
	for _, b := range r.Breaches {
		if b.Promise == promiseStored || b.Promise == promiseEnds || b.Promise == promiseDelivered || b.Promise == promiseMoved {
			n++
		}
	}
	return n
}

// Seconds is the number of second deliveries.
func (r *Report) Seconds() (n int) {
	for _, c := range r.Again {
		n += c
	}
	return n
}

func (r *Report) breach(promise, trace string) {
	r.Breaches = append(r.Breaches, Breach{promise, trace})
}

func (r *Report) finish() {
	slices.Sort(r.Calm)
	slices.Sort(r.Troubled)
	if r.Fires != nil {
		slices.Sort(r.Fires.Waits)
	}
}

// tracesShown bounds the traces of one broken promise.
const tracesShown = 3

// String is the table that a run prints at its end.
func (r *Report) String() string {
	var b strings.Builder
	line := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "%-28s %s\n", what, fmt.Sprintf(format, args...))
	}
	if r.Fires != nil {
		r.fires(line)
	} else {
		r.tasks(line)
	}
	line("drained", "%s after the last fault", r.Drained.Round(time.Millisecond))
	line("promises broken", "%d", len(r.Breaches))
	b.WriteString(r.traces())
	return b.String()
}

// tasks are the lines of tasks that no schedule makes.
func (r *Report) tasks(line func(what, format string, args ...any)) {
	line("adds", "%s", counted(r.Words))
	line("tasks", "%s", counted(r.States))
	line("deliveries", "%d", r.Deliveries)
	line("lost", "%d", r.Lost())
	line("early", "%d", r.Early)
	line("second deliveries", "%d, of one task at most %d", r.Seconds(), r.MostAgain)
	r.again(line)
	line("started after a cancel", "%d loaded before it, %d by a node that was frozen", r.LoadedBefore, r.FrozenBefore)
	line("wrong databases", "%d, %d of them written to by a node that was frozen or cut off", r.Closed, r.HeldBack)
	line("lateness outside faults", "%s", r.Calm)
	line("lateness inside faults", "%s", r.Troubled)
	if r.Orders != nil {
		line("outboxes", "%s", r.outboxes())
		r.Orders.lines(line)
	}
}

// again are the causes of second deliveries.
func (r *Report) again(line func(what, format string, args ...any)) {
	for _, cause := range slices.Sorted(maps.Keys(r.Again)) {
		line("  "+cause, "%d", r.Again[cause])
	}
}

// outboxes counts what was promised of outboxes, and how often it was broken.
func (r *Report) outboxes() string {
	rows, tasks := 0, 0
	for _, n := range r.Orders.Rows {
		rows += n
	}
	for _, n := range r.States {
		tasks += n
	}
	of := func(promises ...string) (n int) {
		for _, b := range r.Breaches {
			if slices.Contains(promises, b.Promise) {
				n++
			}
		}
		return n
	}
	return fmt.Sprintf("%d rows, %d tasks, %d lost, %d of rolled-back transactions, %d twice in the tables, %d out of order, %d changes lost, %d early",
		rows, tasks, r.Lost(), of(promiseRolledBack), of(promiseOnce), of(promiseInOrder), of(promiseCancel, promiseReschedule), r.Early)
}

// String gives the usual quantiles.
func (l Lateness) String() string {
	ms := func(q float64) string { return l.Quantile(q).Round(time.Millisecond).String() }
	return fmt.Sprintf("p50 %s, p99 %s, max %s of %d", ms(0.5), ms(0.99), ms(1), len(l))
}

func (r *Report) traces() string {
	var b strings.Builder
	shown := map[string]int{}
	for _, breach := range r.Breaches {
		if shown[breach.Promise]++; shown[breach.Promise] <= tracesShown {
			fmt.Fprintf(&b, "\nBROKEN: %s\n%s\n", breach.Promise, breach.Trace)
		}
	}
	for _, promise := range slices.Sorted(maps.Keys(shown)) {
		fmt.Fprintf(&b, "%6d x %s\n", shown[promise], promise)
	}
	return b.String()
}

// counted is "12 done, 3 dead".
func counted(of map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, fmt.Sprintf("%d %s", of[name], name))
	}
	return strings.Join(parts, ", ")
}
