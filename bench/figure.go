package bench

import (
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"time"
)

// Run is what every result says of the run it is from.
type Run struct {
	Layout   string            `json:"layout"`
	Nodes    int               `json:"nodes"`
	Pending  int               `json:"pending,omitempty"` // rows that waited in the tables for a day far ahead
	CPUs     int               `json:"cpus"`              // that this process may use
	Settings map[string]string `json:"settings"`          // of the first server
	Metrics  *Scraped          `json:"metrics"`           // of the nodes; null: without nodes, or with NoMetrics
}

// run describes a run.
func (s *site) run(settings map[string]string) Run {
	return Run{
		Layout: s.opts.Layout.String(), Nodes: s.opts.Nodes, Pending: s.opts.Pending,
		CPUs: runtime.GOMAXPROCS(0), Settings: settings, Metrics: s.scraped,
	}
}

// profiled runs do while the CPU profile that Options ask for is taken.
func profiled(to io.Writer, do func() error) error {
	if to == nil {
		return do()
	}
	if err := pprof.StartCPUProfile(to); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	return do()
}

// round cuts a figure to so many decimals.
func round(x float64, decimals int) float64 {
	by := math.Pow10(decimals)
	return math.Round(x*by) / by
}

// ratio is a over b, for JSON 0 where b is 0.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return round(a/b, 3)
}

// quantile gives the smallest value that at least the share q of sorted lies at
// or below, in milliseconds; 0 of nothing.
func quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(q*float64(len(sorted)))) - 1
	return millis(sorted[min(max(rank, 0), len(sorted)-1)])
}

// Quartiles are three figures that part sorted ones into quarters.
type Quartiles struct {
	Lower  float64 `json:"lower"`
	Median float64 `json:"median"`
	Upper  float64 `json:"upper"`
}

// quartiles are 0 of nothing. Between two figures a quartile is interpolated.
func quartiles(figures []float64) Quartiles {
	if len(figures) == 0 {
		return Quartiles{}
	}
	sorted := slices.Sorted(slices.Values(figures))
	at := func(share float64) float64 {
		below, part := math.Modf(share * float64(len(sorted)-1))
		above := min(int(below)+1, len(sorted)-1)
		return round(sorted[int(below)]*(1-part)+sorted[above]*part, 3)
	}
	return Quartiles{at(0.25), at(0.5), at(0.75)}
}

// text writes them for people: "0.91 (0.85 to 0.97)".
func (q Quartiles) text(format string) string {
	return fmt.Sprintf(format+" ("+format+" to "+format+")", q.Median, q.Lower, q.Upper)
}

// between draws a duration.
func between(from, to time.Duration) time.Duration { return from + rand.N(to-from+time.Millisecond) }

func millis(d time.Duration) float64 { return round(float64(d.Microseconds())/1000, 3) }

// lines writes "name  text" for people.
type lines struct{ strings.Builder }

func (l *lines) line(name, format string, args ...any) {
	fmt.Fprintf(l, "  %-12s %s\n", name, fmt.Sprintf(format, args...))
}

// run ends a result with what it was measured on.
func (l *lines) run(r Run) {
	l.line("on", "layout %s, %d nodes, %d pending rows, %d CPUs", r.Layout, r.Nodes, r.Pending, r.CPUs)
	for i, part := range slices.Collect(slices.Chunk(slices.Sorted(maps.Keys(r.Settings)), 3)) {
		name := ""
		if i == 0 {
			name = "server"
		}
		texts := make([]string, len(part))
		for k, setting := range part {
			texts[k] = setting + "=" + r.Settings[setting]
		}
		l.line(name, "%s", strings.Join(texts, " "))
	}
}

// sides prints what a task costs on both sides.
func (l *lines) sides(ours, raw PerTask) {
	l.cost("a task", ours)
	l.cost("raw", raw)
}

func (l *lines) cost(name string, p PerTask) {
	l.line(name, "%.3f statements (%.3f selects, %.3f inserts, %.3f updates, %.3f commits)",
		p.Statements, p.Selects, p.Inserts, p.Updates, p.Commits)
	l.line("", "%.0f bytes to and %.0f from the server, %.1f µs of CPU here and %s there",
		p.BytesReceived, p.BytesSent, p.ProcessMicros, orUnknown(p.ServerMicros, "%.1f µs"))
}

// orUnknown is a figure for people.
func orUnknown(x *float64, format string) string {
	if x == nil {
		return "unknown"
	}
	return fmt.Sprintf(format, *x)
}
