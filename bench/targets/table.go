package main

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/tocsinhq/tocsin/internal/quantile"
)

// table is the results for people: a line for each figure.
func table(results []result) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "row\tfigure\ttarget\tmedian\trounds\t")
	for _, r := range results {
		for _, c := range r.checks {
			fmt.Fprintf(w, "%s\t%s\t%s\n", r.name, c.key, c.line(r, results))
		}
	}
	_ = w.Flush() // into memory
	return b.String()
}

// line is target, median, rounds and verdict of one figure.
func (c check) line(r result, all []result) string {
	got := r.figures[c.key]
	if len(got) == 0 {
		return c.target() + "\t-\t-\tnot measured"
	}
	limit, ok := c.against(all)
	verdict := "met"
	switch {
	case !ok:
		verdict = "nothing to compare with"
	case c.least && quantile.Median(got) < limit, !c.least && quantile.Median(got) > limit:
		verdict = "missed"
	}
	texts := make([]string, len(got))
	for i, x := range got {
		texts[i] = text(x)
	}
	return c.target() + "\t" + text(quantile.Median(got)) + "\t" + strings.Join(texts, " ") + "\t" + verdict
}

// against is the limit in numbers, which another row may decide.
func (c check) against(all []result) (limit float64, ok bool) {
	if c.of == "" {
		return c.limit, true
	}
	for _, r := range all {
		if r.name != c.of {
			continue
		}
		if got := r.figures[c.key]; len(got) > 0 {
			return c.limit * quantile.Median(got), true
		}
	}
	return 0, false
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
