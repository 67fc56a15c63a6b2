package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The counters that processes tell, beside their round trips by what these are for.
const (
	passesTold = "passes"    // of generators
	runsTold   = "runs made" // by generators
	claimsTold = "claims"    // that got their row
	vainTold   = "claims in vain"
)

// told are the metrics of those counters.
var told = map[string]string{
	"tocsin_generator_passes_total":   passesTold,
	"tocsin_generator_runs_total":     runsTold,
	"tocsin_dispatcher_claimed_total": claimsTold,
	"tocsin_dispatcher_dropped_total": vainTold, // those that were refused their claim
}

// countersForm begins the line of a log that has a process's counters.
const countersForm = "counters: "

// tellCounters writes what the process has done so far, each second until ended is closed.
func tellCounters(ended <-chan struct{}, r *prometheus.Registry) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
		}
		text, err := json.Marshal(gathered(r))
		if err != nil {
			panic(err) // plain values only
		}
		fmt.Fprintf(os.Stderr, "%s%s\n", countersForm, text)
	}
}

// gathered are the round trips, by what they are for, and what is told.
func gathered(r *prometheus.Registry) map[string]float64 {
	counts := map[string]float64{}
	families, _ := r.Gather()
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := told[f.GetName()]
			switch {
			case f.GetName() == "tocsin_store_round_trip_seconds":
				counts[m.GetLabel()[0].GetValue()] += float64(m.GetHistogram().GetSampleCount())
			case name != "" && (name != vainTold || m.GetLabel()[0].GetValue() == "claim_refused"):
				counts[name] += m.GetCounter().GetValue()
			}
		}
	}
	return counts
}

// countersIn are the highest counters in a log: a process that ends has none at last.
func countersIn(log string) map[string]float64 {
	most := map[string]float64{}
	eachLine(log, func(line []byte) {
		var counts map[string]float64
		text, found := bytes.CutPrefix(line, []byte(countersForm))
		if !found || json.Unmarshal(text, &counts) != nil { // half a line is none
			return
		}
		for name, n := range counts {
			most[name] = max(most[name], n)
		}
	})
	return most
}

// eachLine hands over the lines of a log. A log that is not there has none.
func eachLine(log string, do func(line []byte)) {
	text, err := os.ReadFile(log)
	if err != nil {
		return
	}
	for line := range bytes.Lines(text) {
		do(line)
	}
}
