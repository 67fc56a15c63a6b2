package console

import (
	"slices"

	"github.com/tocsinhq/tocsin/api"
)

// timeline is a picture of a schedule's newest attempts, the latest at the right. Upwards each has how long it took, downwards how late it began.
type timeline struct {
	Bars          []bar
	First, Last   api.Time
	Longest, Late int64 // the longest duration and lateness, in milliseconds, which are as high as the picture
	Width         int   // of a bar
	P95           int   // where the line of the p95 of durations is
}

// bar is one attempt. Up and Down are how high its parts are.
type bar struct {
	X, Up, Down int
	Failed      bool
	Run         api.Run
}

// The picture, in its own units.
const (
	barsWide = 1000
	mostStep = 20  // from bar to bar
	barsUp   = 90  // of the longest, from the line of beginnings
	barsDown = 40  // of the latest
	base     = 102 // where the line is: above the longest bar is room for its mark
	least    = 2   // so that each can be seen
)

// Top is where the upper part begins.
func (b bar) Top() int { return base - b.Up }

// Mark is where the mark of one that failed stands.
func (b bar) Mark() int { return base - b.Up - 2 }

// timelineOf draws runs, which are the latest first.
func timelineOf(runs []api.Run, p95 int64) *timeline {
	t := &timeline{Bars: make([]bar, len(runs)), First: runs[len(runs)-1].Started, Last: runs[0].Started}
	for _, r := range runs {
		t.Longest, t.Late = max(t.Longest, r.DurationMS), max(t.Late, r.LatenessMS)
	}
	high := func(ms, of int64, most int) int {
		return max(int(float64(ms)/float64(max(of, 1))*float64(most)), least)
	}
	step := min(barsWide/len(runs), mostStep)
	t.Width = step - 1
	for i, r := range runs {
		t.Bars[i] = bar{barsWide - (i+1)*step, high(r.DurationMS, t.Longest, barsUp), high(r.LatenessMS, t.Late, barsDown), slices.Contains(failedOutcomes, r.Outcome), r}
	}
	slices.Reverse(t.Bars)
	t.P95 = base - high(p95, t.Longest, barsUp)
	return t
}
