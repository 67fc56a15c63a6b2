package chaos

import (
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
)

// What the reasons of runs that were not delivered begin with.
const (
	missedReason   = "missed"
	skippedReason  = "skipped"
	replacedReason = "replaced: by the run of "
	pausedReason   = "the schedule was paused"
)

// run checks how one run ended, and its deliveries.
func (c *timerCheck) run(f *firing) {
	last, ended := f.last()
	due := &op{Kind: opAdd, Due: laterOf(f.Due, f.Fire), asked: asked{Sent: f.Made, Back: c.awaited(f), Word: acknowledged}}
	t := task{about: f, typ: c.Type, attempts: c.attempts(), asks: []*op{due}, row: last.row, of: c.deliveries[f.JobID]}
	for _, before := range f.ends[:max(len(f.ends)-1, 0)] {
		t.seen = append(t.seen, before.row)
	}
	if !f.gone.IsZero() {
		c.report.count(lineRuns, "purged")
	}
	if !ended && !f.gone.IsZero() {
		c.breach(t, promisePurge)
		c.twice(t)
	} else {
		c.fate(t)
	}
	switch last.Status {
	case tocsin.Done:
		c.inForce(f, t)
	case tocsin.Dead:
		c.inForce(f, t)
		if c.overcounted(t) || len(t.of) == 0 {
			c.breach(t, promiseAttempts)
		}
	case tocsin.Cancelled:
		c.cancelledRun(f, t, last)
	}
	c.asked(f, t)
	c.delivered(f, t)
}

// awaited is from when on a run is late: the answer to the change that made it, at the earliest.
func (c *timerCheck) awaited(f *firing) time.Time {
	if s := c.spells[f.Revision]; s != nil {
		return s.back()
	}
	return f.Due
}

// asked checks that a run that somebody cancelled stays cancelled.
func (c *timerCheck) asked(f *firing, t task) {
	for _, by := range c.changes {
		if by.Kind == cancelRun && by.Job == f.JobID && by.Word == acknowledged && by.Changed && t.row.Status != tocsin.Cancelled {
			c.breach(t, promiseCancelled)
		}
	}
}

// inForce checks that the deliveries of a run that was done or failed began before its revision was dead, except the first one of a run that was due
// by then, and what was loaded or claimed then.
func (c *timerCheck) inForce(f *firing, t task) {
	next := c.endOf(f)
	if next == nil {
		return
	}
	for i, d := range t.of {
		after := d.At.Sub(next.back())
		stays := i == 0 && next.goesOn && !f.Due.After(next.hi)
		switch {
		case after <= 0 || stays:
		case i == 0 && !f.byHand() && f.Due.After(next.hi), !c.inHand(f, d, next.back()) && !c.frozen(d):
			c.breach(t, promiseDead)
		default: // it was claimed when the revision died, and nothing may cancel it
			c.report.count(lineAfterCancel, "loaded or claimed before it")
		}
	}
}

// endOf is the revision that ends a run: the next one, and for one by hand the schedule's end.
func (c *timerCheck) endOf(f *firing) *spell {
	if !f.byHand() {
		if s := c.spells[f.Revision]; s != nil {
			return s.next
		}
		return nil
	}
	if n := len(c.order); n > 0 && c.order[n-1].State == stateDeleted {
		return c.order[n-1]
	}
	return nil
}

// claimLasts is how long after its claim a run may begin: it waits for a slot as long as its claim outlasts its time-out.
const claimLasts = 5*time.Second + clockSlack

// inHand reports whether a delivery that begins after a change may: its process had claimed the run before the change, or loaded it, if such
// runs are not claimed.
func (c *timerCheck) inHand(f *firing, d delivery, change time.Time) bool {
	if !c.claims() {
		return d.At.Sub(change) <= d.before(loadedBefore)
	}
	claimed := f.claimOf(d)
	return !claimed.After(change) && d.At.Sub(claimed) <= claimLasts
}

// claims reports whether each run is claimed before it is delivered.
func (c *timerCheck) claims() bool { return c.strict() || c.judged() }

// claimOf is when the process that made a delivery had claimed the run for it; zero: never.
func (f *firing) claimOf(d delivery) (at time.Time) {
	for _, by := range f.claims {
		if strings.HasPrefix(by.by, d.Node+"-") && !by.at.After(d.At) {
			at = by.at
		}
	}
	return at
}

// cancelledRun checks why the run was cancelled, and that it was not begun after that.
func (c *timerCheck) cancelledRun(f *firing, t task, last end) {
	since, strictly, why := c.ofChange(f, last), c.strict(), ""
	switch by := c.ofUser(f, last); {
	case by != nil:
		since, why = last.at, "by hand"
		if by.Word == acknowledged {
			since = by.Back
		}
	case strings.HasPrefix(last.LastError, skippedReason):
		since, why = last.at, "skipped"
		c.skipped(f, t, last)
	case strings.HasPrefix(last.LastError, replacedReason):
		since, strictly, why = last.at, false, "replaced" // a claimed run is replaced too
		c.replaced(f, t, last)
	case !since.IsZero():
		why = "by a change"
		if last.at.Sub(f.Due) > loadedBefore {
			why = "by a change, overdue"
		}
	case strings.HasPrefix(last.LastError, missedReason):
		since, why = last.at, "missed"
		if c.StartWithin == 0 || last.at.Before(f.Due.Add(c.StartWithin)) {
			c.breach(t, promiseMissed)
		}
	default:
		c.breach(t, promiseUser)
		return
	}
	c.report.count(lineCancelled, why)
	c.begunAfter(t, since, promiseDead, func(d delivery) bool { return !strictly && c.inHand(f, d, since) })
}

// ofUser is the change that may have cancelled the run alone.
func (c *timerCheck) ofUser(f *firing, last end) *timerOp {
	for _, by := range c.changes {
		if by.Kind == cancelRun && by.Job == f.JobID && (by.Word != acknowledged || by.Changed) && !last.at.Before(by.Sent.Add(-clockSlack)) {
			return by
		}
	}
	return nil
}

// ofChange is when whoever changed the schedule was told so, if that may have cancelled the run; zero: it can't have. A change
// leaves alone what people asked for, unless it deletes the schedule.
func (c *timerCheck) ofChange(f *firing, last end) (since time.Time) {
	for _, s := range c.order {
		if s.State != stateDeleted && s.Revision <= f.Revision || last.at.Before(s.lo) {
			continue
		}
		if since = s.back(); since.Before(last.at) {
			since = last.at
		}
	}
	return since
}

// delivered checks what the deliveries were told, and when they began.
func (c *timerCheck) delivered(f *firing, t task) {
	c.early(t)
	s := c.spells[f.Revision]
	for _, d := range t.of {
		if late := d.At.Sub(f.claimOf(d)); c.claims() && late > claimLasts {
			c.report.count(lineOutlasted, "by nodes that were frozen")
			if late > time.Minute || !c.frozen(d) {
				c.breach(t, promiseClaim)
			}
		}
		fire := f.Fire
		if f.Revision == ofHand {
			fire = time.Time{}
		}
		if d.Schedule != c.Name || !d.Fire.Equal(fire) || s != nil && s.asked != nil && d.Mark != s.asked.Want.Mark {
			c.breach(t, promiseTold)
		}
	}
	if !f.byHand() && !c.judged() {
		c.late(t)
	}
}
