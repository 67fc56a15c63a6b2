package schedule

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/store"
)

// decide decides about a pending run that is due.
func (b *beginning) decide(now int64) {
	hand, stale := b.me.byHand(), false
	if b.row != nil && !hand {
		stale = b.me.of.Revision != b.row.Revision
	}
	switch {
	case b.row == nil:
		b.end(verdictOutdated, reasonDeleted)
		return
	case stale && (!b.me.first() || b.row.State == Inactive || b.row.State == Paused):
		b.end(verdictOutdated, b.outdated())
		return
	case !hand && b.me.first():
		if why := newKnown(b.row).missed(&b.me, now); why != "" {
			b.end(verdictMissed, why)
			return
		}
	}
	k := newKnown(b.row)
	earlier, later := b.split(k, now)
	first := firstOf(earlier)
	comes := !hand && b.me.first() && !b.me.waited() && !k.madeUp(&b.me, now) // its time comes: overlap decides
	switch {
	case b.row.Overlap == OverlapAllow, len(earlier) == 0 && !later:
		b.claim(now)
	case later || !comes:
		b.wait(k, now, earlier)
	case b.row.Overlap == OverlapReplace:
		for i := range earlier {
			if !inTurn(k, &earlier[i], now) {
				b.Replaced = append(b.Replaced, earlier[i].id)
			}
		}
		b.claim(now)
	case b.row.Overlap == OverlapSkip:
		b.end(verdictSkipped, fmt.Sprintf("skipped: run %s is open", first.name()))
	default:
		for i := range earlier {
			if o := &earlier[i]; o != first && o.status == tocsin.Pending && o.first() && !inTurn(k, o, now) {
				b.end(verdictSkipped, fmt.Sprintf("skipped: run %s waits already", o.name()))
				return
			}
		}
		b.wait(k, now, earlier)
	}
}

// inTurn reports whether a run is by hand or made up for, and has not begun: no other run replaces it, and it takes no place in the queue.
func inTurn(k *known, o *sibling, now int64) bool {
	return o.status == tocsin.Pending && o.first() && (o.byHand() || k.madeUp(o, now))
}

// firstOf returns the first run in the order of runs; nil: there is none.
func firstOf(runs []sibling) (first *sibling) {
	for i := range runs {
		if first == nil || runs[i].before(first) {
			first = &runs[i]
		}
	}
	return first
}

// split returns the open runs that come before this one, and whether a later one is in delivery. An earlier run that is missed
// is about to be cancelled itself.
func (b *beginning) split(k *known, now int64) (earlier []sibling, later bool) {
	for i := range b.others {
		o := &b.others[i]
		missed := o.status == tocsin.Pending && !o.byHand() && o.first() && k.missed(o, now) != ""
		switch before := o.before(&b.me) && o.time() <= now; {
		case before && !missed:
			earlier = append(earlier, *o)
		case !before && o.status == tocsin.Claimed:
			later = true
		}
	}
	return earlier, later
}

func (b *beginning) outdated() string {
	return fmt.Sprintf("cancelled: of revision %d of its schedule, which has revision %d", b.me.of.Revision, b.row.Revision)
}

func (b *beginning) claim(now int64) {
	b.Deadline, b.verdict = now+b.hold.Milliseconds()+1, verdictDelivered
	if store.IsToken(b.by) {
		b.Deadline = b.me.action
	}
}

func (b *beginning) end(verdict, reason string) { b.Ended, b.verdict = reason, verdict }

// wait has the run look again: soon if it is the next, that is if all before it have begun.
func (b *beginning) wait(k *known, now int64, earlier []sibling) {
	most := min(max(nearLeast, time.Duration(now-b.me.time())*time.Millisecond/10), nearMost)
	least := most / 2
	for _, o := range earlier {
		if o.status == tocsin.Pending && o.first() {
			least, most = farLeast, farMost
		}
	}
	if k.madeUp(&b.me, now) {
		b.note = fmt.Sprintf("%s%s late, it waits for its turn", madeUpFor, time.Duration(now-b.me.due)*time.Millisecond)
	}
	b.Next, b.verdict = now+(least+rand.N(most-least)).Milliseconds(), verdictQueued
}

// name names a run for a reason.
func (r *sibling) name() string {
	if r.byHand() {
		return r.id.String()
	}
	return "of " + r.of.Nominal().Format(time.RFC3339Nano)
}
