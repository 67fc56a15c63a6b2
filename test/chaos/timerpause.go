package chaos

import (
	"fmt"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
)

// Slacks of counting failed runs.
const (
	countWithin = 3 * time.Second  // from a failed run's end until its schedule is paused
	countFaults = 5 * time.Second  // a fault that ended so long before may still lose a count
	countBefore = 10 * time.Second // a pause without cause is explained by a fault so long before
)

// pauses checks when the schedule was paused.
func (c *timerCheck) pauses() {
	if c.pauseAfter == 0 {
		return
	}
	var ended []*firing
	for _, f := range c.runs {
		if last, _ := f.last(); !f.byHand() && (last.Status == tocsin.Done || last.Status == tocsin.Dead) {
			ended = append(ended, f)
		}
	}
	slices.SortStableFunc(ended, func(a, b *firing) int { return a.ends[len(a.ends)-1].at.Compare(b.ends[len(b.ends)-1].at) })
	for _, s := range c.order {
		if s.active() {
			c.pause(s, ended)
		}
	}
}

// pause checks that a revision was paused when so many of its runs had failed in a row, and not before. A process that ends
// before it has counted an outcome, or can't reach the server then, does not count it.
func (c *timerCheck) pause(s *spell, ended []*firing) {
	first, full := c.failures(s, ended)
	paused := s.next != nil && s.next.pauses(s.revised)
	from, to := first, full.Add(countWithin)
	switch {
	case full.IsZero() && !paused:
		return
	case full.IsZero():
		from, to = s.next.At.Add(-countBefore), s.next.At
	case paused && s.next.At.After(to):
		to = s.next.At
	case paused:
		c.report.count(linePaused, "after as many failed runs as asked for")
		return
	case s.next != nil && !s.next.lo.After(to):
		return // somebody else was faster
	}
	near := func(i incident) bool { return i.touches(from, to, countFaults) }
	if slices.ContainsFunc(c.incidents, near) {
		c.report.count(linePaused, "with another count, beside a fault")
		return
	}
	c.broken(promisePause, fmt.Sprintf("%d failed runs in a row: from %s to %s; %s", c.pauseAfter, first.Format(clockForm), full.Format(clockForm), s))
}

// failures is when the first and the last of so many runs in a row of a revision had failed as it takes to pause it; zero: never.
func (c *timerCheck) failures(s *spell, ended []*firing) (first, full time.Time) {
	row := 0
	for _, f := range ended {
		last, _ := f.last()
		switch {
		case last.at.Before(s.At):
		case s.next != nil && last.at.After(s.next.At):
			return first, time.Time{}
		case last.Status == tocsin.Done:
			row = 0
		case f.Revision == s.Revision:
			if row++; row == 1 {
				first = last.at
			}
			if row == c.pauseAfter {
				return first, last.at
			}
		}
	}
	return first, time.Time{}
}
