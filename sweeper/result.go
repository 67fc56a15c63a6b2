package sweeper

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/duequeue"
)

// Counts are outcomes, as the intake settled them.
type Counts struct {
	Delivered int `json:"delivered"` // completed
	Retried   int `json:"retried"`   // failed or snoozed: due again later
	Dead      int `json:"dead"`      // given up
}

func (c Counts) minus(b Counts) Counts {
	return Counts{c.Delivered - b.Delivered, c.Retried - b.Retried, c.Dead - b.Dead}
}

// Result of one sweep.
type Result struct {
	Tables    int            `json:"tables"`  // peeked without an error
	Overdue   int            `json:"overdue"` // entries found past their grace time, of all types
	Counts                   //
	Elsewhere int            `json:"elsewhere"` // claimed, settled, cancelled or rescheduled by another meanwhile
	CutOff    int            `json:"cut_off"`   // not delivered since the sweep was told to end
	Left      map[string]int `json:"left"`      // by biz type: overdue but not deliverable here, or paused
	Recovered int            `json:"recovered"` // run-out claims given back
	Buried    int            `json:"buried"`    // of those: dead after the last crash
	Failed    []string       `json:"failed"`    // servers that could not be swept in full
	Took      time.Duration  `json:"took_ns"`
	ended     bool           // ctx ended the sweep
}

func (r *Result) add(entries []duequeue.Entry, from round) {
	r.Overdue += len(entries)
	if from.left == "" {
		return
	}
	for _, e := range entries {
		r.Left[from.names[e.Type]+" ("+from.left+")"]++
	}
}

// Settled gives the result with all outcomes of the sweep, also those that came
// in after it was told to end. The rest went elsewhere, or was not begun.
func (r Result) Settled(c Counts) Result {
	r.Counts = c
	rest := max(r.Overdue-r.LeftTotal()-c.Delivered-c.Retried-c.Dead, 0)
	if r.ended {
		r.CutOff = rest
	} else {
		r.Elsewhere = rest
	}
	return r
}

// LeftTotal is the number of overdue tasks that were left where they are.
func (r Result) LeftTotal() (n int) {
	for _, c := range r.Left {
		n += c
	}
	return n
}

// String is the summary line.
func (r Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d tables, %d overdue, %d delivered, %d retried, %d dead, %d elsewhere, %d left, %d recovered, %d buried, took %s",
		r.Tables, r.Overdue, r.Delivered, r.Retried, r.Dead, r.Elsewhere, r.LeftTotal(), r.Recovered, r.Buried, r.Took.Round(time.Millisecond))
	if r.ended {
		fmt.Fprintf(&b, "; cut off, %d not delivered", r.CutOff)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Left)) {
		fmt.Fprintf(&b, "; left %s: %d", name, r.Left[name])
	}
	if len(r.Failed) > 0 {
		fmt.Fprintf(&b, "; failed servers: %s", strings.Join(r.Failed, ", "))
	}
	return b.String()
}
