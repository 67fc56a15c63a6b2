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
	Counts     map[string]Count    // by line
	Times      map[string]Lateness // by line, in order after the check
	Deliveries int
	Early      int           // deliveries before their time
	MostAgain  int           // second deliveries of one task at most
	Drained    time.Duration // from the end of load and faults until every task was final
	Breaches   []Breach
	costs      []cost
}

// Count is how often each thing of a line happened.
type Count map[string]int

// Breach is a promise that was broken, with all that is known of the task.
type Breach struct {
	Promise string
	Trace   string
}

// The lines that count, in their order. What a run has nothing of is left out.
const (
	lineAdds         = "adds" // by what the client said
	lineTransactions = "rows of transactions"
	lineCommitted    = "committed rows" // by what they ask for
	lineSchedules    = "schedules"      // by how often they fire
	linePolicies     = "policies"
	lineChanges      = "changes" // of schedules
	lineFires        = "fire times"
	lineFirst        = "  first minute of a change"
	lineRuns         = "runs"
	lineFinal        = "final states"
	lineCancelled    = "  cancelled" // runs, by why
	linePaused       = "  paused"
	lineAttempts     = "attempts used"
	lineLeases       = "leases" // by how they ended
	lineRanOut       = "leases that ran out, by cause"
	lineWaited       = "handed over later than 6 s"
	lineAgain        = "second deliveries, by cause"
	lineAfterCancel  = "started after a cancel"
	lineAfterDone    = "changed after the delivery" // the operation came too late, and not its fault
	lineAtOnce       = "two runs at once"           // that are to be alone, by why
	lineOutlasted    = "begun 5 s after its claim"
	lineClosed       = "wrong databases"
	lineFaults       = "faults"
)

var countLines = []string{
	lineAdds, lineTransactions, lineCommitted, lineSchedules, linePolicies, lineChanges, lineFires, lineFirst, lineRuns, lineFinal, lineCancelled,
	linePaused, lineAttempts, lineLeases, lineRanOut, lineWaited, lineAgain, lineAfterCancel, lineAfterDone, lineAtOnce, lineOutlasted, lineClosed, lineFaults,
}

// The lines of times, in their order: outside and inside faults, and what only a relay without the lock was beside.
const (
	timeCalm     = "lateness outside faults"
	timeTroubled = "lateness inside faults"
	timeMoved    = "commit to ledger"
	timeAtOnce   = "commit to delivery, at once"
	timeAgain    = "lost lease to the next one" // from the begin, or the last extension, of the one that ran out
	timeWaits    = "runs began after others"    // from the end of these, or their time, to their begin

	besideTwice  = ", two relays"
	besideFaults = ", faults"
)

var timeLines = []string{
	timeCalm, timeTroubled, timeMoved, timeMoved + besideTwice, timeMoved + besideFaults, timeAtOnce, timeAtOnce + besideTwice, timeAtOnce + besideFaults, timeAgain, timeAgain + besideFaults, timeWaits,
}

// count adds one to a line.
func (r *Report) count(line, what string) { r.add(line, what, 1) }

func (r *Report) add(line, what string, n int) {
	if r.Counts[line] == nil {
		r.Counts[line] = Count{}
	}
	r.Counts[line][what] += n
}

// book adds a time to a line.
func (r *Report) book(line string, took time.Duration) { r.Times[line] = append(r.Times[line], took) }

func (r *Report) breach(promise, trace string) {
	r.Breaches = append(r.Breaches, Breach{promise, trace})
}

// Lost counts the tasks that were acknowledged and are not as they should be.
func (r *Report) Lost() (n int) {
	for _, b := range r.Breaches {
		if slices.Contains([]string{promiseStored, promiseEnds, promiseDelivered, promiseMoved}, b.Promise) {
			n++
		}
	}
	return n
}

// Seconds is the number of second deliveries.
func (r *Report) Seconds() (n int) {
	for _, c := range r.Counts[lineAgain] {
		n += c
	}
	return n
}

// Lateness is delivery start minus due time, of first attempts, in order after the
// check.
type Lateness []time.Duration

// Quantile gives the smallest value that at least the share q lies at or below; 0
// of nothing.
func (l Lateness) Quantile(q float64) time.Duration {
	return quantile.Of(l, q)
}

// String gives the usual quantiles.
func (l Lateness) String() string {
	ms := func(q float64) string { return l.Quantile(q).Round(time.Millisecond).String() }
	return fmt.Sprintf("p50 %s, p99 %s, max %s of %d", ms(0.5), ms(0.99), ms(1), len(l))
}

// tracesShown bounds the traces of one broken promise.
const tracesShown = 3

// String is the table that a run prints at its end.
func (r *Report) String() string {
	var b strings.Builder
	line := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "%-36s %s\n", what, fmt.Sprintf(format, args...))
	}
	for _, name := range countLines {
		if of := r.Counts[name]; len(of) > 0 {
			line(name, "%s", of)
		}
	}
	line("deliveries", "%d, %d of them second ones, at most %d of one task", r.Deliveries, r.Seconds(), r.MostAgain)
	line("lost, early", "%d, %d", r.Lost(), r.Early)
	for _, name := range timeLines {
		if of := r.Times[name]; len(of) > 0 {
			line(name, "%s", of)
		}
	}
	for _, c := range r.costs {
		line("cost, "+c.name, "%s", c)
	}
	line("drained", "%s after the last fault", r.Drained.Round(time.Millisecond))
	line("promises broken", "%d", len(r.Breaches))
	b.WriteString(r.traces())
	return b.String()
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

// String is "12 done, 3 dead".
func (c Count) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(c)) {
		parts = append(parts, fmt.Sprintf("%d %s", c[name], name))
	}
	return strings.Join(parts, ", ")
}
