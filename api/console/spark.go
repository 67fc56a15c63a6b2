package console

import (
	"fmt"
	"math"
	"strings"

	"github.com/tocsinhq/tocsin/api"
)

// spark is a small picture of the last minutes.
type spark struct {
	Line, Failed string // paths
	Most         string // the highest value
}

// A spark, in pixels. A point is of 15 s, so that a refresh stays small.
const (
	sparkOf     = 3  // samples of a point
	sparkPoints = 20 // of 5 minutes
	sparkStep   = 3
	sparkHigh   = 14
)

// Lateness draws how late the slowest deliveries of a biz type were; nil if there is too little to see.
func (v *visit) Lateness(past []api.OverviewSample) *spark {
	late := points(past, func(s api.OverviewSample) float64 {
		if s.Late99MS == nil {
			return math.NaN()
		}
		return float64(*s.Late99MS)
	})
	most := highest(late)
	line := lineOf(late, most)
	if line == "" {
		return nil
	}
	return &spark{Line: line, Most: v.Span(int64(most))}
}

// Rates draws what a biz type delivered, and what failed; nil if there is too little to see.
func (o *overviewPage) Rates(past []api.OverviewSample) *spark {
	done := points(past, func(s api.OverviewSample) float64 { return s.Delivered })
	failed := points(past, func(s api.OverviewSample) float64 { return s.Failed })
	most := max(highest(done), highest(failed))
	if most == 0 || len(done) < 2 {
		return nil
	}
	s := &spark{Line: lineOf(done, most), Most: o.Rate(most) + "/s"}
	if highest(failed) > 0 {
		s.Failed = lineOf(failed, most)
	}
	return s
}

// points are the highest of some samples each, the latest whole; NaN where there is nothing.
func points(past []api.OverviewSample, of func(api.OverviewSample) float64) (all []float64) {
	for first := len(past) % sparkOf; first < len(past); first += sparkOf {
		values := make([]float64, 0, sparkOf)
		for _, s := range past[first : first+sparkOf] {
			values = append(values, of(s))
		}
		all = append(all, highest(values))
	}
	return all
}

// highest returns the highest value that is one; NaN: there is none.
func highest(values []float64) float64 {
	most := math.NaN()
	for _, value := range values {
		if math.IsNaN(most) || value > most {
			most = value
		}
	}
	return most
}

// lineOf draws values up to most, the latest at the right, and breaks where there are none. It is "" with fewer than two.
func lineOf(values []float64, most float64) string {
	var b strings.Builder
	begun, drawn := false, 0
	for i, value := range values {
		if math.IsNaN(value) {
			begun = false
			continue
		}
		if !begun {
			b.WriteByte('M')
		} else {
			b.WriteByte(' ')
		}
		begun = true
		drawn++
		fmt.Fprintf(&b, "%d %d", (sparkPoints-len(values)+i)*sparkStep, sparkHigh-int(value/math.Max(most, 1e-9)*(sparkHigh-1)))
	}
	if drawn < 2 {
		return ""
	}
	return b.String()
}
