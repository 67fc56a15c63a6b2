package chaos

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/schedule"
)

// Slacks of the order of runs.
const (
	handAfter  = time.Second            // a run by hand comes so long after it was made
	orderSlack = 50 * time.Millisecond  // between the time that a row has and that at which a trigger saw it
	committing = 500 * time.Millisecond // from the time at which a trigger saw a run's end until others see it
	waitMost   = 20 * time.Second       // from the end of earlier runs until one that waited begins, without a fault
)

// What lets two runs of a schedule be in delivery at once that are not to be.
const (
	besideFrozen    = "a node was frozen"
	besideCancelled = "the earlier one was cancelled in its delivery"
	besideAgain     = "one was delivered a second time"
)

// precedes reports whether a run comes before another one for certain.
func (f *firing) precedes(g *firing) bool {
	switch {
	case f == g:
		return false
	case f.Revision == ofBackfill && g.Revision == ofBackfill: // if a later backfill is of earlier times, either may come first: of several, three are looked at
		return f.Fire.Before(g.Fire) && f.Created.Before(g.Created.Add(clockSlack))
	case f.Revision == ofHand && g.Revision == ofHand:
		return f.JobID < g.JobID
	case f.byHand() && g.byHand() && f.Made.Sub(g.Made).Abs() < clockSlack:
		return f.Revision == ofBackfill // by their keys
	case f.byHand() && g.byHand():
		return f.Made.Before(g.Made)
	case f.byHand():
		return f.Made.Add(handAfter + orderSlack).Before(g.time())
	case g.byHand():
		return !f.time().After(g.time())
	}
	return cmp.Or(cmp.Compare(f.Revision, g.Revision), f.Fire.Compare(g.Fire)) < 0
}

// mayPrecede reports whether a run comes before another one, or might: one of them was made by hand when the time of the other was near,
// or both by two backfills.
func (f *firing) mayPrecede(g *firing) bool {
	if f == g || !f.byHand() && !g.byHand() {
		return f.precedes(g)
	}
	return !g.precedes(f)
}

// openIn reports whether the run was open at some time of a span.
func (f *firing) openIn(from, to time.Time) bool { return !f.time().After(to) && !f.endedBy(from) }

// because reports whether the run ended for a reason.
func (f *firing) because(reason string) bool {
	last, _ := f.last()
	return strings.HasPrefix(last.LastError, reason)
}

// turns checks when runs began that depend on earlier ones.
func (c *timerCheck) turns() {
	if !c.judged() {
		return
	}
	for _, f := range c.runs {
		of := c.deliveries[f.JobID]
		for _, d := range of {
			c.turn(f, d)
		}
		if len(of) > 0 {
			c.waited(f, of[0])
		}
	}
	if c.alone() {
		c.atOnce()
	}
}

// turn checks that every earlier run had ended when a delivery began. One that was too late to be delivered holds up none.
func (c *timerCheck) turn(f *firing, d delivery) {
	for _, before := range c.runs {
		if before.precedes(f) && before.openIn(d.At, d.At) && !before.because(missedReason) && !c.missedBy(before, d.At) && !c.spared(before, d.At) {
			c.broken(promiseTurn, d.String()+" beside\n"+before.String()+"\nof\n"+f.String())
		}
	}
}

// spared reports whether a run waits for its turn behind runs that replace: one by hand or made up for, that has not begun.
func (c *timerCheck) spared(f *firing, t time.Time) bool {
	begun := slices.ContainsFunc(c.deliveries[f.JobID], func(d delivery) bool { return !d.At.After(t) })
	return c.overlap == schedule.OverlapReplace && !begun && (f.byHand() || t.Sub(f.Due) > punctual)
}

// missedBy reports whether a run was too late to begin at a time, and had not begun: it holds up none. Of one that has waited, lateness counts from when
// its turn came.
func (c *timerCheck) missedBy(f *firing, t time.Time) bool {
	of, from := c.deliveries[f.JobID], f.Due
	for _, w := range f.waits {
		switch {
		case w.at.After(t):
		case w.until.After(f.time()):
			from = w.until
		default:
			from = f.Due
		}
	}
	return c.StartWithin > 0 && !f.byHand() && t.After(from.Add(c.StartWithin-orderSlack)) && (len(of) == 0 || of[0].At.After(t))
}

// waited checks that a run did not wait on when the earlier ones had ended.
func (c *timerCheck) waited(f *firing, d delivery) {
	since := f.time()
	for _, before := range c.runs {
		if last, ended := before.last(); ended && before.mayPrecede(f) && before.openIn(f.time(), d.At) && last.at.After(since) && last.at.Before(d.At) {
			since = last.at
		}
	}
	if c.delayed(c.opts.placeOf(f.JobID.Table()), since, d.At) {
		return
	}
	waited := d.At.Sub(since)
	c.report.book(timeWaits, waited)
	if waited > waitMost {
		c.broken(promiseWaits, waited.String()+" "+d.String()+"\n"+f.String())
	}
}

// atOnce checks that no two runs are in delivery at once.
func (c *timerCheck) atOnce() {
	var all []delivery
	for _, f := range c.runs {
		all = append(all, c.deliveries[f.JobID]...)
	}
	slices.SortFunc(all, func(a, b delivery) int { return a.At.Compare(b.At) })
	var going []delivery
	for _, d := range all {
		going = slices.DeleteFunc(going, func(a delivery) bool { return !c.over(a).After(d.At) })
		for _, a := range going {
			if a.JobID == d.JobID {
				continue
			}
			why := c.beside(a, d)
			c.report.count(lineAtOnce, why)
			if why == causeNone {
				c.broken(promiseAlone, a.String()+"\n"+d.String()+"\n"+c.evidence.runs[a.JobID].String()+"\n"+c.evidence.runs[d.JobID].String())
			}
		}
		going = append(going, d)
	}
}

// over is when a delivery ended: by itself, with its process, or at its time-out.
func (c *timerCheck) over(d delivery) time.Time {
	if !d.End.IsZero() {
		return d.End
	}
	end := d.At.Add(deliveryTimeout)
	for _, i := range c.incidents {
		if i.hits(d.Node, KillNode, EndedNode, TermNode) && i.from.After(d.At) && i.from.Before(end) {
			end = i.from
		}
	}
	return end
}

// beside says why a delivery could begin beside that of another run. A run that is not claimed may be cancelled in its delivery, and
// a delivery that is made a second time may outlast its run. With strict types only a node that was frozen explains it.
func (c *timerCheck) beside(a, b delivery) string {
	frozen := func(i incident) bool {
		return (i.hits(a.Node, FreezeNode) || i.hits(b.Node, FreezeNode)) && i.touches(a.At, b.At, time.Second)
	}
	first, second := c.evidence.runs[a.JobID], c.evidence.runs[b.JobID]
	switch last, _ := first.last(); {
	case slices.ContainsFunc(c.incidents, frozen), first.endedBy(b.At) && slices.ContainsFunc(c.deliveries[a.JobID], func(d delivery) bool { return d.At.Before(a.At) && c.frozenSince(d, b.At) }):
		return besideFrozen
	case c.strict():
	case first.endedBy(b.At) && last.Status == tocsin.Cancelled:
		return besideCancelled
	case first.endedBy(b.At) && len(c.deliveries[a.JobID]) > 1, second.endedBy(b.At):
		return besideAgain
	}
	return causeNone
}

// frozenSince reports whether the node of a delivery was frozen between its begin and a time: its success, stored late, ends a run that is delivered again.
func (c *timerCheck) frozenSince(d delivery, until time.Time) bool {
	return slices.ContainsFunc(c.incidents, func(i incident) bool { return i.hits(d.Node, FreezeNode) && i.touches(d.At, until, 0) })
}

// skipped checks that enough earlier runs were open between the time of a run and its end.
func (c *timerCheck) skipped(f *firing, t task, last end) {
	beside, open := 1, 0
	if c.overlap == schedule.OverlapQueue {
		beside = 2
	}
	for _, before := range c.runs {
		if before.mayPrecede(f) && before.openIn(f.time().Add(-committing), last.at) {
			open++
		}
	}
	if !c.alone() || f.byHand() || open < beside {
		c.breach(t, promiseSkipped)
	}
}

// replaced checks that the run that its reason names comes later and was due, and was delivered or cancelled itself.
func (c *timerCheck) replaced(f *firing, t task, last end) {
	fire, err := time.Parse(time.RFC3339Nano, strings.TrimPrefix(last.LastError, replacedReason))
	later := func(g *firing) bool {
		end, _ := g.last()
		begun := len(c.deliveries[g.JobID]) > 0 || end.Status == tocsin.Cancelled
		return !g.byHand() && g.Fire.Equal(fire) && f.mayPrecede(g) && !g.time().After(last.at) && begun
	}
	if err != nil || c.overlap != schedule.OverlapReplace || !slices.ContainsFunc(c.runs, later) {
		c.breach(t, promiseReplaced)
	}
}
