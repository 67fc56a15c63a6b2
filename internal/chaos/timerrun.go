package chaos

import (
	"slices"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
)

// missedReason begins the reason of a run that was too late to be started.
const missedReason = "missed"

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
	case last.Status == tocsin.Cancelled:
		c.cancelledRun(f, e, last, of)
	case last.Attempts < attempts && last.Crashes < crashesMost:
		c.breach(e, &last.row, of, promiseLastTry)
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

// doneRun checks that a delivery stands behind it, which began before the revision was dead.
func (c *timerCheck) doneRun(f *firing, e *entry, last end, of []delivery) {
	if !slices.ContainsFunc(of, func(d delivery) bool { return d.OK && d.Version == last.Version }) {
		c.breach(e, &last.row, of, promiseDelivered)
		return
	}
	s := c.spells[f.Revision]
	if s == nil || s.next == nil {
		return
	}
	begun, dead := of[0].At, s.next.back()
	switch after := begun.Sub(dead); {
	case after <= 0 || s.next.goesOn && f.Due.After(s.next.lo.Add(-staying)) && !f.Due.After(s.next.hi):
	case f.Due.After(s.next.hi) || c.strict() || after > loadedBefore && !c.frozen(of[0]):
		c.breach(e, &last.row, of, promiseDead)
	default:
		c.report.Fires.Dead.Loaded++ // it was claimed when the revision died, and nothing may cancel it
	}
}

// cancelledRun checks why the run was cancelled, and that it was not begun after that.
func (c *timerCheck) cancelledRun(f *firing, e *entry, last end, of []delivery) {
	since := c.ofChange(f, last)
	switch by := c.ofUser(f, last); {
	case by != nil:
		c.report.Fires.Cancelled["by hand"]++
		since = last.at
		if by.Word == acknowledged {
			since = by.Back
		}
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
	c.begunAfter(since, e, last, of)
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
// leaves alone what people asked for.
func (c *timerCheck) ofChange(f *firing, last end) (since time.Time) {
	if f.Revision == ofHand {
		return since
	}
	for _, s := range c.order {
		if s.Revision <= f.Revision || last.at.Before(s.lo) {
			continue
		}
		if since = s.back(); since.Before(last.at) {
			since = last.at
		}
	}
	return since
}

// begunAfter checks that no delivery began after the cancel, but for what had been loaded before.
func (c *timerCheck) begunAfter(since time.Time, e *entry, last end, of []delivery) {
	for _, d := range of {
		switch after := d.At.Sub(since); {
		case after <= 0:
		case after <= loadedBefore && !c.strict():
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
		fire := f.Fire
		if f.Revision == ofHand {
			fire = time.Time{}
		}
		if d.Schedule != c.Name || !d.Fire.Equal(fire) || s != nil && s.asked != nil && d.Mark != s.asked.Want.Mark {
			c.breach(e, &last.row, of, promiseTold)
		}
	}
	if len(of) > 0 && f.Revision != ofHand {
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
