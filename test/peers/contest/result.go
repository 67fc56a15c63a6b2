package contest

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tocsinhq/tocsin/internal/quantile"
)

// Result is what a run came to. A JSON encoding holds all of it: Merge puts
// together rounds that were played apart.
type Result struct {
	Layout  string    `json:"layout"` // of Tocsin's tables
	Tasks   int       `json:"tasks"`  // of insert and of drain
	Rates   []float64 `json:"rates"`
	Strict  bool      `json:"strict"`
	CPUs    int       `json:"cpus"` // that this process may use; the servers have no others
	Systems []Record  `json:"systems"`
}

// Record is what one system did.
type Record struct {
	Name   string `json:"name"`
	Facts  Facts  `json:"facts"`
	Rounds []Turn `json:"rounds"`
	Median Turn   `json:"median"`      // of each figure by itself; Delivered, Duplicates, tasks and Early are sums
	Ratio  *Ratio `json:"tocsin_over"` // of medians; nil for Tocsin itself, and without it
}

// Ratio compares Tocsin to the system: above 1, Tocsin does better. A figure is
// 0 where one side has none above 0.
type Ratio struct {
	Drain  float64   `json:"drain"`
	Insert float64   `json:"insert"`
	P50    []float64 `json:"p50"` // by rate: the system's lateness over Tocsin's
	P99    []float64 `json:"p99"`
}

// Reference is the name of the entry that ratios are taken against.
const Reference = "tocsin"

func newResult(entries []Entry, opts Options) Result {
	r := Result{
		Layout: opts.Layout.String(), Tasks: opts.Tasks, Rates: opts.Rates, Strict: opts.Strict,
		CPUs: runtime.GOMAXPROCS(0), Systems: make([]Record, len(entries)),
	}
	for i, e := range entries {
		r.Systems[i].Name = e.Name
	}
	return r
}

// Merge puts the rounds of several runs of the same work together.
func Merge(results ...Result) (Result, error) {
	if len(results) == 0 {
		return Result{}, errors.New("no results to put together")
	}
	all := results[0]
	all.Systems = slices.Clone(all.Systems)
	for _, r := range results[1:] {
		if r.Layout != all.Layout || r.Tasks != all.Tasks || r.Strict != all.Strict || !slices.Equal(r.Rates, all.Rates) {
			return Result{}, errors.New("the results are of different work: layout, tasks, rates and strictness must be the same")
		}
		for _, s := range r.Systems {
			i := slices.IndexFunc(all.Systems, func(a Record) bool { return a.Name == s.Name })
			if i < 0 {
				all.Systems = append(all.Systems, s)
				continue
			}
			all.Systems[i].Rounds = slices.Concat(all.Systems[i].Rounds, s.Rounds)
		}
	}
	all.summarize()
	return all, nil
}

// summarize fills in medians and ratios.
func (r *Result) summarize() {
	var tocsin *Turn
	for i := range r.Systems {
		r.Systems[i].Median = medians(r.Systems[i].Rounds)
		if r.Systems[i].Name == Reference {
			tocsin = &r.Systems[i].Median
		}
	}
	for i := range r.Systems {
		if r.Systems[i].Ratio = nil; tocsin != nil && r.Systems[i].Name != Reference {
			r.Systems[i].Ratio = compare(*tocsin, r.Systems[i].Median)
		}
	}
}

// medians of the rounds.
func medians(rounds []Turn) (m Turn) {
	if len(rounds) == 0 {
		return m
	}
	of := func(figure func(Turn) float64) float64 {
		values := make([]float64, len(rounds))
		for i, t := range rounds {
			values[i] = figure(t)
		}
		return round(quantile.Median(values), 2)
	}
	m.Drain = of(func(t Turn) float64 { return t.Drain })
	m.Insert = of(func(t Turn) float64 { return t.Insert })
	for i := range rounds[0].Lateness {
		m.Lateness = append(m.Lateness, Lateness{
			Rate:      rounds[0].Lateness[i].Rate,
			AddedRate: of(func(t Turn) float64 { return t.Lateness[i].AddedRate }),
			P50:       of(func(t Turn) float64 { return t.Lateness[i].P50 }),
			P99:       of(func(t Turn) float64 { return t.Lateness[i].P99 }),
			Max:       of(func(t Turn) float64 { return t.Lateness[i].Max }),
		})
	}
	for _, t := range rounds {
		m.add(t)
	}
	return m
}

// add sums up what is counted.
func (m *Turn) add(t Turn) {
	m.Delivered += t.Delivered
	m.Duplicates += t.Duplicates
	for i, l := range t.Lateness {
		m.Lateness[i].Tasks += l.Tasks
		m.Lateness[i].Early += l.Early
	}
}

func compare(tocsin, other Turn) *Ratio {
	r := &Ratio{Drain: ratio(tocsin.Drain, other.Drain), Insert: ratio(tocsin.Insert, other.Insert)}
	for i, l := range other.Lateness {
		r.P50 = append(r.P50, ratio(l.P50, tocsin.Lateness[i].P50))
		r.P99 = append(r.P99, ratio(l.P99, tocsin.Lateness[i].P99))
	}
	return r
}

// String is a turn in a line.
func (t Turn) String() string {
	text := fmt.Sprintf("drain %.0f/s, insert %.0f/s", t.Drain, t.Insert)
	for _, l := range t.Lateness {
		text += fmt.Sprintf(", at %.0f/s p50 %.2f p99 %.2f max %.2f ms", l.Rate, l.P50, l.P99, l.Max)
	}
	return text
}

// perSecond is n over the time.
func perSecond(n int, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return round(float64(n)/d.Seconds(), 0)
}

// round cuts a figure to so many decimals.
func round(x float64, decimals int) float64 {
	by := math.Pow10(decimals)
	return math.Round(x*by) / by
}

// millis returns a quantile of sorted times in milliseconds.
func millis(sorted []time.Duration, q float64) float64 {
	return round(float64(quantile.Of(sorted, q).Microseconds())/1000, 2)
}

// ratio is a over b, 0 where there is none.
func ratio(a, b float64) float64 {
	if a <= 0 || b <= 0 {
		return 0
	}
	return round(a/b, 2)
}

// String is the result for people: a table of medians, and below it what each
// system is.
func (r Result) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\tdrain\ttocsin\tinsert\ttocsin\t")
	for _, rate := range r.Rates {
		fmt.Fprintf(w, "at %.0f/s p50\tp99\tmax\tearly\ttocsin\t", rate)
	}
	fmt.Fprint(w, "delivered\ttwice\t\n")
	fmt.Fprintf(w, "\ttasks/s\tx\ttasks/s\tx\t%s\t\t\n", strings.Repeat("ms\tms\tms\ttasks\tx p99\t", len(r.Rates)))
	for _, s := range r.Systems {
		s.row(w)
	}
	_ = w.Flush() // a strings.Builder takes everything
	r.notes(&b)
	return b.String()
}

// row writes one line of the table.
func (s Record) row(w *tabwriter.Writer) {
	against := s.Ratio
	if against == nil {
		n := len(s.Median.Lateness)
		against = &Ratio{P50: make([]float64, n), P99: make([]float64, n)}
	}
	fmt.Fprintf(w, "%s\t%.0f\t%s\t%.0f\t%s\t", s.Name, s.Median.Drain, times(against.Drain), s.Median.Insert, times(against.Insert))
	for i, l := range s.Median.Lateness {
		fmt.Fprintf(w, "%.2f\t%.2f\t%.2f\t%d\t%s\t", l.P50, l.P99, l.Max, l.Early, times(against.P99[i]))
	}
	fmt.Fprintf(w, "%d\t%d\t\n", s.Median.Delivered, s.Median.Duplicates)
}

// times is a ratio, or nothing.
func times(ratio float64) string {
	if ratio == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", ratio)
}

// notes say what the figures are of.
func (r Result) notes(b *strings.Builder) {
	rounds := 0
	for _, s := range r.Systems {
		rounds = max(rounds, len(s.Rounds))
	}
	fmt.Fprintf(b, "\nmedians of %d rounds; drain and insert of %d tasks; %d CPUs for a system, its servers and this process; Tocsin's tables %s\n", rounds, r.Tasks, r.CPUs, r.Layout)
	fmt.Fprint(b, "tocsin x: above 1, Tocsin does so many times better than the system of the row\n")
	for _, s := range r.Systems {
		fmt.Fprintf(b, "\n%s\n", s.Name)
		for _, fact := range [][2]string{
			{"version", s.Facts.Version}, {"durable", s.Facts.Durability}, {"tuned", s.Facts.Tuning}, {"settled", s.Facts.Settled},
		} {
			fmt.Fprintf(b, "  %-8s %s\n", fact[0], fact[1])
		}
	}
}
