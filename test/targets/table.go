package main

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/tocsinhq/tocsin/internal/quantile"
)

// table returns the figures for people, a line for each.
func (all figures) table(rows []row) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "row\tfigure\ttarget\tmedian\trounds\t")
	for _, r := range rows {
		for _, c := range r.checks {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.name, c.key, c.target(), all.verdict(c, all[r.name+" "+c.key]))
		}
	}
	_ = w.Flush() // into memory
	return b.String()
}

// verdict is median, rounds and verdict of one figure. Another row may decide the limit.
func (all figures) verdict(c check, got []float64) string {
	if len(got) == 0 {
		return "-\t-\tnot measured"
	}
	median, limit, verdict := quantile.Median(got), c.limit, "met"
	others := all[c.of+" "+c.key]
	if len(others) > 0 {
		limit *= quantile.Median(others)
	}
	switch {
	case c.of != "" && len(others) == 0:
		verdict = "nothing to compare with"
	case c.least && median < limit, !c.least && median > limit:
		verdict = "missed"
	}
	texts := make([]string, len(got))
	for i, x := range got {
		texts[i] = text(x)
	}
	return text(median) + "\t" + strings.Join(texts, " ") + "\t" + verdict
}

func (c check) target() string {
	sign := "<="
	if c.least {
		sign = ">="
	}
	if c.of != "" {
		return sign + " " + text(c.limit) + " of " + c.of
	}
	return sign + " " + text(c.limit)
}

func text(x float64) string { return strconv.FormatFloat(x, 'g', 5, 64) }
