package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
)

// cut checks the fire times about a change of an active schedule: up to some moment they are those of the revision before it,
// and from then on those of the one after it. None is of both or of neither.
func (c *timerCheck) cut(s, next *spell) {
	until := next.hi
	if next.next != nil && next.next.lo.Before(until) {
		until = next.next.lo
	}
	var low, high time.Time // the moment is not before low, and before high
	notBefore := func(t time.Time) {
		if t.After(low) {
			low = t
		}
	}
	before := func(t time.Time) {
		if high.IsZero() || t.Before(high) {
			high = t
		}
	}
	lost := false
	for _, t := range c.fires(s, next.lo, until) {
		if c.unwanted(next, t) && c.made[runOf{next.Revision, t}] == nil {
			continue
		}
		switch stayed, known := c.stayed(s, next, t); {
		case known && stayed:
			c.wanted(t.Sub(s.hi) < firstWindow)
			notBefore(t)
		case known:
			before(t)
		}
	}
	for _, t := range c.fires(next, next.lo, until) {
		if c.made[runOf{next.Revision, t}] != nil {
			c.wanted(true)
			before(t)
		} else if c.unwanted(next, t) {
			continue
		} else if notBefore(t); !high.IsZero() && !t.Before(high) {
			lost = true
		}
	}
	if high.IsZero() || low.Before(high) {
		return
	}
	if lost {
		c.lost(true)
	} else {
		c.report.count(lineFires, "twice")
	}
	c.broken(promiseCut, fmt.Sprintf("runs for %s to %s, change: %s\n  %s\n  %s", high.Format(clockForm), low.Format(clockForm), next,
		c.ranFor(s, next, high), c.ranFor(s, next, low)))
}

// stayed reports whether the run for a fire time stayed with its revision at a change: it may have been begun, and its retry
// cancelled. It is not known if somebody cancelled the run alone, another change was near, or the run was overdue at the change
// or waited for another one: that is cancelled whoever has the fire times after it.
func (c *timerCheck) stayed(s, next *spell, t time.Time) (stayed, known bool) {
	f := c.made[runOf{s.Revision, t}]
	if f == nil {
		return false, !s.goesOn || t.Add(c.offset).After(s.hi) // else it may be of the revision before that
	}
	last, ended := f.last()
	switch {
	case !ended || last.Status != tocsin.Cancelled || strings.HasPrefix(last.LastError, skippedReason) || strings.HasPrefix(last.LastError, replacedReason),
		len(c.deliveries[f.JobID]) > 0 && c.deliveries[f.JobID][0].At.Before(last.at):
		return true, true
	case c.ofUser(f, last) != nil || next.next != nil && !last.at.Before(next.next.lo) || strings.HasPrefix(last.LastError, missedReason),
		last.at.After(f.Due.Add(staying)), c.judged() && last.at.After(f.Due):
		return false, false
	}
	return false, true
}

// ranFor describes the runs of two revisions for a fire time.
func (c *timerCheck) ranFor(s, next *spell, t time.Time) string {
	text := t.Format(clockForm)
	for _, of := range []*spell{s, next} {
		if f := c.made[runOf{of.Revision, t}]; f == nil {
			text += fmt.Sprintf("; revision %d has none", of.Revision)
		} else {
			text += fmt.Sprintf("; revision %d: job_id %s, made %s", f.Revision, f.JobID, f.Made.Format(clockForm))
			for _, e := range f.ends {
				text += ", at " + e.at.Format(clockForm) + " " + e.row.String()
			}
		}
	}
	return text
}

// askedFor reports whether a change may be why a run by hand was made.
func (c *timerCheck) askedFor(by *timerOp, f *firing) bool {
	switch {
	case by.Kind == runTimer && f.Revision == ofHand && by.Job == f.JobID:
		return true
	case f.Revision == ofHand && by.Kind == runTimer && by.Word != acknowledged:
		return by.during(f.Made)
	case f.Revision != ofBackfill || by.Kind != backfillTimer || f.Fire.Before(by.From) || !f.Fire.Before(by.To) || !by.during(f.Made):
		return false
	}
	s := c.spellAt(by.Back)
	return s != nil && by.Want.Beat.strikes(c.location(), by.anchor(s), f.Fire)
}

// during reports whether something may have been stored by the change.
func (c *timerOp) during(t time.Time) bool {
	until := c.Back.Add(clockSlack)
	if c.Word != acknowledged {
		until = c.Back.Add(lateAnswer)
	}
	return !t.Before(c.Sent.Add(-clockSlack)) && !t.After(until)
}

// spellAt is the revision that was in force at a time.
func (c *timerCheck) spellAt(t time.Time) (in *spell) {
	for _, s := range c.order {
		if !s.At.After(t) {
			in = s
		}
	}
	return in
}

// anchor is what the fire times of a backfill count from: those of @every go on backwards, before the activation.
func (c *timerOp) anchor(s *spell) time.Time {
	anchor, every := s.Anchor, c.Want.Beat.Every
	if every > 0 && !anchor.Before(c.From) {
		anchor = anchor.Add(-every * (anchor.Sub(c.From)/every + 1))
	}
	return anchor
}

// backfilled checks that an acknowledged backfill made a run for each fire time of its span, or found one.
func (c *timerCheck) backfilled(by *timerOp) {
	s := c.spellAt(by.Back)
	if s == nil {
		return
	}
	fires := by.Want.Beat.fires(c.location(), by.anchor(s), by.From.Add(-time.Nanosecond), by.To)
	if len(fires) != by.Runs {
		c.broken(promiseBackfill, fmt.Sprintf("%d fire times, %s", len(fires), by))
	}
	there := map[time.Time]bool{}
	for _, f := range c.runs {
		if f.Revision == ofBackfill && !f.Made.After(by.Back.Add(clockSlack)) && !f.freeAt(by.Sent) {
			there[f.Fire] = true
		}
	}
	for _, t := range fires {
		if !there[t] {
			c.broken(promiseBackfill, "none for "+t.Format(clockForm)+": "+by.String())
		}
	}
}

// freeAt reports whether the run's key was free again at a time: it was cancelled, or deleted.
func (f *firing) freeAt(t time.Time) bool {
	last, ended := f.last()
	return !f.gone.IsZero() && !f.gone.After(t) || ended && last.Status == tocsin.Cancelled && !last.at.After(t)
}

// free reports whether a backfill might make another run for a fire time: the first one's key was free, and somebody asked
// for another.
func (c *timerCheck) free(first, again *firing) bool {
	if !first.freeAt(again.Made) {
		return false
	}
	for _, by := range c.changes {
		if c.askedFor(by, again) && !c.askedFor(by, first) {
			return true
		}
	}
	return false
}

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
