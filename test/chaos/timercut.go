package chaos

import (
	"fmt"
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
