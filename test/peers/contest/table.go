package contest

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

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
