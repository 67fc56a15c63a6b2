package chaos

import (
	"slices"
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
	of := c.deliveries[f.JobID]
	last, ended := f.last()
	e := &entry{BizID: f.BizID, JobID: f.JobID, Type: c.Type, Due: f.Due, Sent: f.Made, Back: f.Made, Word: acknowledged, firing: f}
	c.report.States[last.Status.String()]++
	for i, before := range f.ends[:max(len(f.ends)-1, 0)] {
		if !sameEnd(before.row, f.ends[i+1].row) {
			c.breach(e, &last.row, of, promiseOneEnd)
		}
	}
	if !f.gone.IsZero() {
		c.report.Fires.Purged++
	}
	switch {
	case !ended && !f.gone.IsZero():
		c.breach(e, &last.row, of, promisePurge)
	case !ended:
		c.breach(e, &last.row, of, promiseEnds)
	case last.Status == tocsin.Done:
		c.doneRun(f, e, last, of)
		c.inForce(f, e, last, of)
	case last.Status == tocsin.Cancelled:
		c.cancelledRun(f, e, last, of)
	case last.Attempts < c.attempts() && last.Crashes < crashesMost:
		c.breach(e, &last.row, of, promiseLastTry)
	default:
		c.inForce(f, e, last, of)
	}
	if last.Status != tocsin.Cancelled && last.Attempts > c.failed(last.row, of)+unseen(e, last.row, of) || last.Status == tocsin.Dead && len(of) == 0 {
		c.breach(e, &last.row, of, promiseAttempts)
	}
	c.asked(f, e, last, of)
	c.delivered(f, e, last, of)
	c.twice(e, last.row, of)
}

// asked checks that a run that somebody cancelled stays cancelled.
func (c *timerCheck) asked(f *firing, e *entry, last end, of []delivery) {
	for _, by := range c.changes {
		if by.Kind == cancelRun && by.Job == f.JobID && by.Word == acknowledged && by.Changed && last.Status != tocsin.Cancelled {
			c.breach(e, &last.row, of, promiseCancelled)
		}
	}
}

// doneRun checks that a delivery stands behind it.
func (c *timerCheck) doneRun(f *firing, e *entry, last end, of []delivery) {
	if !slices.ContainsFunc(of, func(d delivery) bool { return d.OK && d.Version == last.Version }) {
		c.breach(e, &last.row, of, promiseDelivered)
	}
}

// inForce checks that the deliveries of a run that was done or failed began before its revision was dead, but for what was
// loaded or claimed then.
func (c *timerCheck) inForce(f *firing, e *entry, last end, of []delivery) {
	next := c.endOf(f)
	if next == nil {
		return
	}
	for i, d := range of {
		after := d.At.Sub(next.back())
		stays := i == 0 && next.goesOn && f.Due.After(next.lo.Add(-staying)) && !f.Due.After(next.hi)
		switch {
		case after <= 0 || stays:
		case i == 0 && !f.byHand() && f.Due.After(next.hi), !c.inHand(f, d, next.back()) && !c.frozen(d):
			c.breach(e, &last.row, of, promiseDead)
		default:
			c.report.Fires.Dead.Loaded++ // it was claimed when the revision died, and nothing may cancel it
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
func (c *timerCheck) cancelledRun(f *firing, e *entry, last end, of []delivery) {
	since, strictly := c.ofChange(f, last), c.strict()
	switch by := c.ofUser(f, last); {
	case by != nil:
		c.report.Fires.Cancelled["by hand"]++
		since = last.at
		if by.Word == acknowledged {
			since = by.Back
		}
	case strings.HasPrefix(last.LastError, skippedReason):
		c.report.Fires.Cancelled["skipped"]++
		since = last.at
		c.skipped(f, e, last, of)
	case strings.HasPrefix(last.LastError, replacedReason):
		c.report.Fires.Cancelled["replaced"]++
		since, strictly = last.at, false // a claimed run is replaced too
		c.replaced(f, e, last, of)
	case !since.IsZero():
		c.report.Fires.Cancelled["by a change"]++
		c.overdue(f, last)
	case strings.HasPrefix(last.LastError, missedReason):
		c.report.Fires.Cancelled["missed"]++
		since = last.at
		if c.StartWithin == 0 || last.at.Before(f.Due.Add(c.StartWithin)) {
			c.breach(e, &last.row, of, promiseMissed)
		}
	default:
		c.breach(e, &last.row, of, promiseUser)
		return
	}
	c.begunAfter(since, f, e, last, strictly)
}

// overdue counts runs that were cancelled by a change although they were due before.
func (c *timerCheck) overdue(f *firing, last end) {
	if last.at.Sub(f.Due) > loadedBefore {
		c.report.Fires.Overdue++
	}
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

// begunAfter checks that no delivery began after the cancel, except of runs loaded or claimed before it; if strictly is set, of none.
func (c *timerCheck) begunAfter(since time.Time, f *firing, e *entry, last end, strictly bool) {
	of := c.deliveries[f.JobID]
	for _, d := range of {
		switch {
		case !d.At.After(since):
		case !strictly && c.inHand(f, d, since):
			c.report.Fires.Dead.Loaded++
		case c.frozen(d):
			c.report.Fires.Dead.Frozen++
		default:
			c.report.Fires.Dead.Begun++
			c.breach(e, &last.row, of, promiseDead)
		}
	}
}

// delivered checks what the deliveries were told, and when they began.
func (c *timerCheck) delivered(f *firing, e *entry, last end, of []delivery) {
	s := c.spells[f.Revision]
	for _, d := range of {
		if d.At.Before(f.Due) || d.At.Before(f.Fire) {
			c.report.Early++
			c.breach(e, &last.row, of, "never early")
		}
		if late := d.At.Sub(f.claimOf(d)); c.claims() && late > claimLasts {
			if c.report.Fires.Outlasted++; late > time.Minute || !c.frozen(d) {
				c.breach(e, &last.row, of, promiseClaim)
			}
		}
		fire := f.Fire
		if f.Revision == ofHand {
			fire = time.Time{}
		}
		if d.Schedule != c.Name || !d.Fire.Equal(fire) || s != nil && s.asked != nil && d.Mark != s.asked.Want.Mark {
			c.breach(e, &last.row, of, promiseTold)
		}
	}
	if len(of) > 0 && !f.byHand() && !c.judged() {
		c.lateness(f, s, of[0])
	}
}

// lateness books how late the first delivery began: after its time, or after the answer to the change that made it.
func (c *timerCheck) lateness(f *firing, s *spell, d delivery) {
	awaited := f.Due
	if s != nil && s.back().After(awaited) {
		awaited = s.back()
	}
	e := &entry{Due: f.Due, Back: awaited}
	c.late(e, d, f.Due, c.place(f.JobID.Table()))
}
