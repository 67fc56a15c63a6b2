package main

import (
	"context"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/internal/dashboards"
	"github.com/tocsinhq/tocsin/internal/dashboards/live"
)

// span is the time that a picture shows, in n moments.
type span struct {
	from time.Time
	step time.Duration
	n    int
}

func (s span) to() time.Time { return s.from.Add(time.Duration(s.n-1) * s.step) }

// line is one series of a panel: a value for each moment, NaN where there is none.
type line struct {
	name   string
	values []float64
}

// last returns the last value; NaN if there is none.
func (l line) last() float64 {
	for _, v := range slices.Backward(l.values) {
		if !math.IsNaN(v) {
			return v
		}
	}
	return math.NaN()
}

// lines asks for the series of a panel.
func linesOf(ctx context.Context, p *live.Prometheus, d dashboards.Dashboard, panel dashboards.Panel, s span) ([]line, error) {
	var all []line
	for _, q := range panel.Targets {
		found, err := p.Ask(ctx, d.Fill(q.Expr, "20s"), s.from, s.to(), s.step)
		if err != nil {
			return nil, err
		}
		for _, series := range found {
			l := line{name: legend(q.Legend, series.Labels), values: make([]float64, s.n)}
			for i := range l.values {
				l.values[i] = math.NaN()
			}
			for _, point := range series.Values {
				if i := int(point.At.Sub(s.from).Round(s.step) / s.step); i >= 0 && i < s.n {
					l.values[i] = point.Value
				}
			}
			all = append(all, l)
		}
	}
	slices.SortStableFunc(all, func(a, b line) int { return strings.Compare(a.name, b.name) })
	return all, nil
}

var label = regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)

// legend fills the labels of a series into the name that the panel gives it.
func legend(template string, labels map[string]string) string {
	return label.ReplaceAllStringFunc(template, func(found string) string {
		return labels[label.FindStringSubmatch(found)[1]]
	})
}

// stack puts each line on top of those before it.
func stack(all []line) []line {
	stacked := make([]line, len(all))
	for i, l := range all {
		stacked[i] = line{l.name, slices.Clone(l.values)}
		for j := range l.values {
			below := 0.
			if i > 0 {
				below = stacked[i-1].values[j]
			}
			if v := l.values[j]; math.IsNaN(v) || math.IsInf(v, 0) {
				stacked[i].values[j] = below
			} else {
				stacked[i].values[j] = below + v
			}
		}
	}
	return stacked
}

// bounds returns the lowest and the highest finite value, 0 among them.
func bounds(all []line) (low, high float64) {
	for _, l := range all {
		for _, v := range l.values {
			if !math.IsNaN(v) && !math.IsInf(v, 0) {
				low, high = min(low, v), max(high, v)
			}
		}
	}
	return low, high
}
