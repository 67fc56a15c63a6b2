package chaos

import (
	"fmt"
	"time"

	"github.com/tocsinhq/tocsin"
)

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
