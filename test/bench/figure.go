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

	"github.com/tocsinhq/tocsin/internal/quantile"
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

// Figures compare Tocsin with the raw bound of the same work, measured before
// and after it.
type Figures struct {
	Tasks          int     `json:"tasks"`
	TasksPerSecond float64 `json:"tasks_per_second"`
	BoundPerSecond float64 `json:"bound_per_second"` // the mean of before and after
	Ratio          float64 `json:"ratio"`
	BoundBefore    float64 `json:"bound_before_per_second"`
	BoundAfter     float64 `json:"bound_after_per_second"`
	PerTask        PerTask `json:"per_task"`
	BoundPerTask   PerTask `json:"bound_per_task"`
}

// compare makes the figures of n tasks.
func compare(n int, before, ours, after Usage) Figures {
	bound := (before.rate(n) + after.rate(n)) / 2
	return Figures{
		Tasks: n, TasksPerSecond: round(ours.rate(n), 0), BoundPerSecond: round(bound, 0), Ratio: ratio(ours.rate(n), bound),
		BoundBefore: round(before.rate(n), 0), BoundAfter: round(after.rate(n), 0),
		PerTask: ours.perTask(n), BoundPerTask: before.plus(after, 1).perTask(2 * n),
	}
}

func (f Figures) speed() string {
	return fmt.Sprintf("%.0f tasks/s, %.2f of the raw %.0f rows/s (%.0f before, %.0f after)",
		f.TasksPerSecond, f.Ratio, f.BoundPerSecond, f.BoundBefore, f.BoundAfter)
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

// millis returns a quantile of sorted times in milliseconds.
func millis(sorted []time.Duration, q float64) float64 {
	return round(float64(quantile.Of(sorted, q).Microseconds())/1000, 3)
}

// between draws a duration.
func between(from, to time.Duration) time.Duration { return from + rand.N(to-from+time.Millisecond) }

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
func (l *lines) sides(f Figures) {
	l.cost("a task", f.PerTask)
	l.cost("raw", f.BoundPerTask)
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
