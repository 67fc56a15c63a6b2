package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
)

// Slacks of the checker.
const (
	clockSlack  = 2 * time.Millisecond // the tables' times are cut to milliseconds
	staying     = time.Second          // runs that are due by so long after a change may stay with the revision before it
	quickChange = staying / 2          // a change that takes longer may be made anew, so that more runs stay
	slowStaying = 16 * time.Second     // as many as this at most
	lateAnswer  = 20 * time.Second     // a change that nobody acknowledged may be stored this long after its answer
	firstWindow = time.Minute          // after a change: its first runs
	punctual    = 5 * time.Second      // a run that comes later than this is made up for
)

// spell is the time in which one revision of a schedule was in force. At some time between lo and hi, by the server's
// clock, due runs of the one before ended, and those of this one began.
type spell struct {
	revised
	asked  *timerOp // nil: nobody asked for it
	lo, hi time.Time
	goesOn bool   // the schedule was active before: runs that are due about now may stay with the one before
	next   *spell // nil: it is still in force
}

// back is when whoever asked for the revision was told of it.
func (s *spell) back() time.Time {
	if s.State == statePaused && s.asked == nil {
		return s.At.Add(staying) // whoever paused it says nothing; by then it is committed
	}
	if s.asked == nil || s.asked.Word != acknowledged {
		return s.At
	}
	return s.asked.Back
}

// timetables checks all schedules.
func (v verdict) timetables() {
	known := map[tocsin.JobID]bool{}
	runs := map[tocsin.JobID][]*firing{}
	for _, f := range v.runs {
		v.report.count(lineRuns, "made")
		runs[f.Schedule] = append(runs[f.Schedule], f)
	}
	for _, t := range v.timers {
		known[t.ID] = true
		slices.SortFunc(runs[t.ID], func(a, b *firing) int { return cmp.Or(a.Fire.Compare(b.Fire), a.Made.Compare(b.Made)) })
		c := &timerCheck{verdict: v, timer: t, spells: map[uint32]*spell{}, made: map[runOf]*firing{}, runs: runs[t.ID]}
		c.check()
	}
	for id := range runs {
		if !known[id] {
			v.report.breach(promiseHand, fmt.Sprintf("schedule %s, which nobody made, has %d runs", id, len(runs[id])))
		}
	}
}

// timerCheck checks one schedule.
type timerCheck struct {
	verdict
	*timer
	spells map[uint32]*spell // by revision
	order  []*spell
	runs   []*firing // in the order of their fire times
	made   map[runOf]*firing
	offset time.Duration // from a fire time until its run is due
}

// runOf is what a run is made for.
type runOf struct {
	revision uint32
	fire     time.Time
}

func (c *timerCheck) check() {
	c.report.count(linePolicies, c.plan.String())
	for i, by := range c.changes {
		if i == 0 {
			c.report.count(lineSchedules, by.Want.Beat.pace())
		}
		c.report.count(lineChanges, by.Kind+" "+string(by.Word))
	}
	c.resolve()
	c.stored()
	trace := c.timer.String()
	for _, f := range c.runs {
		f.trace = trace
	}
	c.once()
	c.offsets()
	c.turns()
	c.pauses()
	for _, s := range c.order {
		if s.active() {
			c.fired(s)
		}
	}
	for _, f := range c.runs {
		if f.byHand() {
			c.byHand(f)
		} else {
			c.belongs(f)
		}
		c.run(f)
	}
}

// wanted counts a fire time that was to be, and lost one that had no task; first: in the first minute after a change.
func (c *timerCheck) wanted(first bool) { c.fireTime("in all", first) }
func (c *timerCheck) lost(first bool)   { c.fireTime("lost", first) }

func (c *timerCheck) fireTime(what string, first bool) {
	c.report.count(lineFires, what)
	if first {
		c.report.count(lineFirst, what)
	}
}

func (c *timerCheck) broken(promise, about string) {
	c.report.breach(promise, about+"\n  "+c.timer.String())
}

// resolve finds who asked for each revision, and with it what was in force when.
func (c *timerCheck) resolve() {
	var last *spell
	for _, r := range c.revisions[c.ID] {
		s := &spell{revised: r, lo: r.At, hi: r.At.Add(clockSlack), asked: c.whoAsked(r), goesOn: last != nil && last.active() && r.active()}
		if c.pauseAfter > 0 && last != nil && r.pauses(last.revised) {
			s.asked, s.lo = nil, c.pausing(last.revised, r)
		} else if s.asked == nil || !s.asked.made(r, c.Zone) || r.State == statePaused && last.State != statePaused {
			c.broken(promiseAsked, r.String())
		}
		if s.asked != nil {
			s.lo = s.asked.Sent.Add(-clockSlack)
		}
		c.anchored(s, last)
		if s.goesOn {
			s.hi = s.hi.Add(s.stays())
		}
		if last != nil {
			last.next = s
		}
		last = s
		c.spells[r.Revision], c.order = s, append(c.order, s)
	}
}

// pausing is when the transaction that paused a revision began to cancel its runs: a process may be frozen in its middle.
func (c *timerCheck) pausing(paused, r revised) time.Time {
	began := r.At
	for _, f := range c.runs {
		if end, _ := f.last(); f.Revision == paused.Revision && end.LastError == pausedReason && end.at.Before(began) {
			began = end.at
		}
	}
	return began
}

// stays is how long after a change runs may stay with the revision before it.
func (s *spell) stays() time.Duration {
	if s.asked != nil && s.asked.Word == acknowledged && s.asked.Back.Sub(s.asked.Sent) < quickChange {
		return staying
	}
	return slowStaying
}

// whoAsked is the change that a revision comes from, as far as the answers tell; nil: none.
func (c *timerCheck) whoAsked(r revised) (asked *timerOp) {
	for _, by := range c.changes {
		if by.mayHaveMade(r) && (asked == nil || by.Word == acknowledged || !asked.made(r, c.Zone)) {
			asked = by
		}
	}
	return asked
}

// mayHaveMade reports whether the change may be why a revision was stored.
func (c *timerOp) mayHaveMade(r revised) bool {
	if !c.revises() || r.At.Before(c.Sent.Add(-clockSlack)) || (c.Kind == deleteTimer) != (r.State == stateDeleted) {
		return false
	}
	if c.Word == acknowledged {
		return (c.Kind == deleteTimer || c.Revision == r.Revision) && !r.At.After(c.Back.Add(clockSlack))
	}
	return !r.At.After(c.Back.Add(lateAnswer))
}

// made reports whether a revision is what the change asked for. What is paused stays so when it is edited.
func (c *timerOp) made(r revised, zone string) bool {
	state := r.active() == c.Want.Active || c.Want.Active && c.Kind == editTimer && r.State == statePaused
	return c.Word != refusedWord && state && r.Cron == c.Want.Beat.cron() && r.Zone == zone && markOf(r.Payload) == c.Want.Mark
}

// anchored checks what @every counts from: the activation, or the last change of the expression.
func (c *timerCheck) anchored(s, last *spell) {
	if s.asked == nil && s.State != statePaused {
		return // nobody knows what it should be
	}
	began := last == nil || s.active() && !last.active() || s.Cron != last.Cron
	if began && (s.Anchor.Before(s.lo) || s.Anchor.After(s.At.Add(clockSlack))) || !began && !s.Anchor.Equal(last.Anchor) {
		c.broken(promiseAnchor, s.String())
	}
}

// stored checks that each acknowledged change is there, as it was asked for. One that changed nothing names the revision that
// was in force.
func (c *timerCheck) stored() {
	for _, by := range c.changes {
		if by.Word == acknowledged && by.Kind == runTimer && c.evidence.runs[by.Job] == nil {
			c.broken(promiseStored, by.String())
		}
		if by.Word == acknowledged && by.Kind == backfillTimer {
			c.backfilled(by)
		}
		if by.Word != acknowledged || !by.revises() {
			continue
		}
		s := c.spells[by.Revision]
		if last := len(c.order) - 1; by.Kind == deleteTimer && last >= 0 && c.order[last].State == stateDeleted {
			s = c.order[last]
		}
		if s == nil || !by.made(s.revised, c.Zone) || s.next != nil && s.next.hi.Before(by.Sent) {
			c.broken(promiseChange, by.String())
		}
	}
}

// once checks that no fire time has two tasks, whatever became of the first one.
func (c *timerCheck) once() {
	done := map[time.Time]*firing{}
	for _, f := range c.runs {
		if f.Revision == ofHand {
			continue
		}
		if before := c.made[runOf{f.Revision, f.Fire}]; before != nil && !(f.Revision == ofBackfill && c.free(before, f)) {
			c.report.count(lineFires, "twice")
			c.broken(promiseOneTask, before.String()+"\n"+f.String())
		}
		c.made[runOf{f.Revision, f.Fire}] = f
		if last, ended := f.last(); !ended || last.Status != tocsin.Done || f.byHand() {
			continue
		}
		if before := done[f.Fire]; before != nil && before.Revision != f.Revision {
			c.report.count(lineFires, "twice")
			c.broken(promiseOneRun, before.String()+"\n"+f.String())
		}
		done[f.Fire] = f
	}
}

// offsets checks that the jitter is one constant.
func (c *timerCheck) offsets() {
	offsets := map[time.Duration]string{}
	for _, f := range c.runs {
		if f.Revision != ofHand {
			c.offset = f.Due.Sub(f.Fire)
			offsets[c.offset] = f.String()
		}
	}
	for offset, example := range offsets {
		if len(offsets) > 1 || offset < 0 || offset > 0 && offset >= c.Jitter {
			c.broken(promiseOffset, fmt.Sprintf("%s: %s", offset, example))
		}
	}
}

// fires are the fire times of a revision whose runs are due between two times, without both.
func (c *timerCheck) fires(s *spell, after, before time.Time) []time.Time {
	if s.asked == nil || !s.active() {
		return nil
	}
	if s.goesOn {
		after = after.Add(-c.offset) // else only fire times after the activation count
	}
	return s.asked.Want.Beat.fires(c.location(), s.Anchor, after, before.Add(-c.offset))
}

// fired checks that each fire time of a revision that was in force has a task.
func (c *timerCheck) fired(s *spell) {
	if s.next == nil {
		c.broken(promiseEnds, "still in force at the end: "+s.String())
		return
	}
	for _, t := range c.fires(s, s.hi, s.next.lo) {
		first := t.Sub(s.hi) < firstWindow
		c.wanted(first)
		if c.made[runOf{s.Revision, t}] == nil && !c.unwanted(s, t) {
			c.lost(first)
			c.broken(promiseFire, "no task for "+t.Format(clockForm)+" of "+s.String())
		}
	}
	if s.next.goesOn {
		c.cut(s, s.next)
	}
}

// unwanted reports whether the run for a fire time was skipped, replaced, or cancelled by somebody before a revision was stored: an edit does not
// make it again, though it may make runs again that wait, for earlier times.
func (c *timerCheck) unwanted(s *spell, fire time.Time) bool {
	return slices.ContainsFunc(c.runs, func(g *firing) bool {
		last, ended := g.last()
		return g.Revision < s.Revision && g.Fire.Equal(fire) && ended && !last.at.After(s.hi) &&
			(c.ofUser(g, last) != nil || strings.HasPrefix(last.LastError, skippedReason) || strings.HasPrefix(last.LastError, replacedReason))
	})
}

// belongs checks that a run is for a fire time of its revision, and not for one before.
func (c *timerCheck) belongs(f *firing) {
	s := c.spells[f.Revision]
	switch {
	case s == nil || s.asked == nil:
		c.broken(promiseNoFire, f.String())
	case !s.active():
		c.broken(promiseIdle, f.String())
	case !f.Due.After(s.lo) && !c.carried(f, s) || !s.goesOn && !f.Fire.After(s.lo) || !s.asked.Want.Beat.strikes(c.location(), s.Anchor, f.Fire):
		c.broken(promiseNoFire, f.String())
	case s.next != nil && f.Made.After(s.next.At.Add(clockSlack)):
		c.broken(promiseDead, "made after the revision's end: "+f.String())
	}
}

// carried reports whether a run takes the place of one that waited for its turn when the schedule was changed.
func (c *timerCheck) carried(f *firing, s *spell) bool {
	return s.goesOn && c.judged() && slices.ContainsFunc(c.runs, func(g *firing) bool {
		last, ended := g.last()
		return g.Revision < f.Revision && g.Fire.Equal(f.Fire) && ended && last.Status == tocsin.Cancelled && !last.at.Before(s.lo.Add(-clockSlack))
	})
}

// byHand checks that somebody asked for a run.
func (c *timerCheck) byHand(f *firing) {
	c.report.count(lineRuns, "by hand")
	if f.Revision == ofBackfill {
		c.report.count(lineRuns, "backfilled")
	}
	if !slices.ContainsFunc(c.changes, func(by *timerOp) bool { return c.askedFor(by, f) }) {
		c.broken(promiseHand, f.String())
	}
}

// markOf reads the mark of a payload; -1: it has none.
func markOf(payload string) int {
	mark := -1
	_, rest, found := strings.Cut(payload, `"mark":`)
	if found {
		_, _ = fmt.Sscanf(rest, "%d", &mark)
	}
	return mark
}
