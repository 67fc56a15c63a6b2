package dispatcher

import (
	"math"
	"sync/atomic"
	"time"
)

const (
	tolerated   = 0.05                   // of the answers may be "later": the target then gets nearly all that it takes
	windowLasts = time.Second            // that the answers of a window take, at least, ...
	searchLasts = 250 * time.Millisecond // ... and while the rate doubles
	windowLeast = 20                     // answers in a window, at least, ...
	slowLasts   = 10 * time.Second       // ... or those of so long, but 3; while the rate doubles, one is enough
	fewFresh    = 5                      // answers to tasks that were not told so before, at least, to go by these alone
	keepRate    = 0.9                    // of what the target takes, the part that is used after too many
	growsBy     = 0.01                   // of the rate, by the first window without too many; each further one adds twice as much, until the rate doubles
	vainCuts    = 6                      // falls of the rate in a row without effect after which it is not the rate
	inVain      = 8                      // answers "later" in a row, and nothing taken in the last second: the target rests
	firstRate   = 4                      // deliveries a second, if the target has taken none before it said later
	leastRate   = 0.2
	endRate     = 10_000           // deliveries a second that the target takes: there is no need for a limit
	forgetAfter = 10 * time.Minute // in which no delivery had to wait: the same
)

// throttle is the rate at which deliveries of a biz type begin once its target has said later: what the target takes, found by
// trying. A window is the answers to deliveries that began at one rate, so that a slow target answers to each rate before the next. The share
// of "later" in it decides:
//
//	few                 the rate grows
//	too many            the rate falls to 0.9 of what the target took
//	not fewer, though   the rate fell again and again: they are the matter of single tasks, such as those of one tenant. The rate is what it was,
//	                    and as many are expected from now on
//	nothing was taken   the target rests, and the rate halves
//
// A task that was told so before, and is told so again, may be such a task. So the answers to other tasks alone decide if their share is the lower one.
//
// The first rate is what the target took in the second in which it said later too often. It doubles at first. The limit ends at endRate, or when no
// delivery has had to wait for forgetAfter. The zero value is no limit. kind.mu guards it.
type throttle struct {
	rate   float64 // deliveries a second; 0: no limit
	step   float64 // part of the rate by which it grows next
	good   float64 // the last rate without too many; 0: not known
	own    float64 // the share of "later" that is expected at any rate
	recent float64 // deliveries taken in the second before the last "later"; 0: too few to go by

	cuts  int     // times in a row that the rate fell
	from  float64 // the rate before the first of them
	share float64 // of "later" before the last one

	window answers
	cut    time.Time // what began before tells nothing of the rate
	run    int       // answers "later" in a row, to tasks that were not told so before

	next  time.Time // no delivery begins before
	since time.Time // there is a limit
	bound time.Time // when a delivery last had to wait, or the target said later
	rows  int       // tasks that a delivery may have, as the target took only the first ones of one; 0: no limit
}

// answers are those of a window.
type answers struct {
	all, fresh count     // fresh: to tasks that were not told so before
	first      time.Time // when the first one came
	used       bool      // a delivery had to wait for the rate
	parts      bool      // the target took parts of deliveries
}

// count is a number of answers.
type count struct{ n, later float64 }

func (c count) share() float64 { return c.later / max(c.n, 1) }

func (a *answers) add(now time.Time, later float64, told bool) {
	if a.all.n == 0 {
		a.first = now
	}
	a.all = count{a.all.n + 1, a.all.later + later}
	if !told {
		a.fresh = count{a.fresh.n + 1, a.fresh.later + later}
	}
}

// count returns the answers that tell of the target. If tasks that were told so before are told so more often than others, those others do.
func (a *answers) count() count {
	if a.fresh.n >= fewFresh && a.fresh.share() < a.all.share() {
		return a.fresh
	}
	return a.all
}

// over reports whether more than the expected share are "later", by more than chance.
func (c count) over(own, tolerated float64) bool {
	return c.later > own*c.n+max(tolerated*(1-own)*c.n, 2.5*math.Sqrt(c.n*own*(1-own)), 1)
}

// later takes in that the target said later to a delivery that began at a time, and wants to rest. It took recent deliveries in the last second.
// The delivery may be a probe, and its tasks may have been told so before. later returns for how long the target is left alone; 0: it is not.
func (t *throttle) later(began, now time.Time, recent float64, rest time.Duration, probe, told bool) time.Duration {
	if !began.After(t.cut) {
		return 0
	}
	if t.rate == 0 && now.Sub(t.window.first) > time.Second {
		t.window = answers{}
	}
	t.window.add(now, 1, told)
	if t.recent = recent; recent < windowLeast {
		t.recent = 0
	}
	if t.bound = now; told {
		rest = 0 // it may be for the task alone
	} else {
		t.run++
	}
	switch {
	case probe || recent == 0 && (t.run >= inVain || t.rate == 0 && !told):
		t.begun(now, firstRate)
		t.cuts, t.step, t.good = 0, 1, 0
		t.change(t.rate/2, now)
		return max(rest, t.apart())
	case t.rate > 0:
		t.decide(now)
	default: // how many of the taken ones were told before is not known
		w := count{t.window.all.later + recent, t.window.fresh.later}
		if t.window.all.later > recent {
			w.later = t.window.all.later
		}
		if w.over(t.own, tolerated) {
			t.begun(now, w.n)
			t.lower(now, w, recent, 1)
		}
	}
	return 0
}

// begun sets the first rate, if there is none.
func (t *throttle) begun(now time.Time, rate float64) {
	if t.rate == 0 {
		t.rate, t.since, t.window.used = rate, now, true
	}
}

// took takes in that the target took a delivery of some tasks, or only the first ones of them.
func (t *throttle) took(began, now time.Time, rows int, part, told bool) {
	if !began.After(t.cut) {
		return
	}
	t.run = 0
	switch {
	case part:
		t.rows, t.window.parts = rows, true
	case t.rows > 0 && rows >= t.rows:
		t.rows += 1 + t.rows/4
	}
	if t.rate > 0 {
		t.window.add(now, 0, told)
		t.decide(now)
	}
	if t.idle(now) {
		*t = throttle{cut: t.cut}
	}
}

// decide changes the rate at the end of a window. Half of one is enough if it has too many for a whole one.
func (t *throttle) decide(now time.Time) {
	w, full, allowed := t.window.count(), max(t.rate*windowLasts.Seconds(), min(windowLeast, max(t.rate*slowLasts.Seconds(), 3))), float64(tolerated)
	if t.step >= 1 {
		full = max(t.rate*searchLasts.Seconds(), 1+2*min(w.later, 1))
	}
	if t.cuts > 0 {
		allowed /= 2 // else chance would let it fall lower and lower
	}
	early := t.cuts < 2 && t.window.all.n >= full/2 && w.later >= 3 && count{full, w.later}.over(t.own, tolerated)
	switch many := early || w.over(t.own, allowed); {
	case t.window.all.n < full && !early:
	case !many:
		t.cuts, t.good = 0, t.rate
		t.grow(now, w)
	case t.cuts == 0:
		t.lower(now, w, max(t.good, t.rate*(1-w.share())), growsBy)
	case w.share()-t.own < (t.share-t.own)/2: // it has helped, though not enough
		t.cuts = 0
		t.lower(now, w, t.rate*(1-w.share()), growsBy)
	case t.cuts < vainCuts-1 || t.window.all.n < windowLeast:
		t.lower(now, w, t.rate*(1-w.share()), t.step)
	default: // no lower rate has made them fewer
		t.own, t.cuts = w.share(), 0
		t.change(t.from, now)
	}
}

// lower sets the rate, and the step after that.
func (t *throttle) lower(now time.Time, w count, rate, step float64) {
	if !t.window.used {
		rate = min(rate, t.window.all.n/max(now.Sub(t.window.first), windowLasts).Seconds())
	}
	if t.cuts == 0 {
		t.from = t.rate
	}
	t.cuts++
	if t.share, t.step, t.good = w.share(), step, 0; t.share == 1 {
		t.step = 1
	}
	t.change(keepRate*min(max(rate, t.recent), t.rate), now)
	if t.cuts > 1 {
		t.cut = now.Add(windowLasts) // a target that counts by the second may refuse until its next one
	}
}

// grow raises the rate, if it was made use of and the target took all of each delivery.
func (t *throttle) grow(now time.Time, w count) {
	rate := t.rate
	t.own += (min(w.share(), t.own) - t.own) / 8
	if t.window.used && !t.window.parts {
		rate *= 1 + t.step
		t.step = min(2*t.step, 1)
	}
	if rate < endRate {
		t.change(rate, now)
		return
	}
	t.rate, t.window = 0, answers{}
}

// change sets the rate, and opens a window.
func (t *throttle) change(rate float64, now time.Time) {
	if rate != t.rate {
		t.cut, t.next = now, time.Time{}
	}
	t.rate, t.window = max(rate, leastRate), answers{}
}

// apart is the time between two deliveries.
func (t *throttle) apart() time.Duration { return time.Duration(float64(time.Second) / t.rate) }

// wait returns how long no delivery may begin. One that is not full may wait for a second, and needs no higher rate.
func (t *throttle) wait(now time.Time, full bool) time.Duration {
	if t.rate == 0 {
		return 0
	}
	wait := t.next.Sub(now)
	if wait > 0 {
		t.bound, t.window.used = now, t.window.used || full || t.rate < 1
	}
	return wait
}

// heeds reports whether an answer of the target may change something.
func (t *throttle) heeds() bool { return t.rate > 0 || t.own > 0 || t.rows > 0 || t.run > 0 }

// idle reports whether the limit has had no effect for long.
func (t *throttle) idle(now time.Time) bool { return t.heeds() && now.Sub(t.bound) > forgetAfter }

// begin books a delivery. What was missed is not made up for: a target that spreads its limit evenly would not take it.
func (t *throttle) begin(now time.Time) {
	if t.rate > 0 {
		t.next = now.Add(t.apart())
	}
}

// most returns how many tasks a delivery may have.
func (t *throttle) most(batch int) int {
	if t.rows == 0 {
		return batch
	}
	return min(batch, t.rows)
}

// takenTally counts the deliveries that a target takes, second by second, for the moment at which it says later. Safe for concurrent use; near the
// change of a second some may be missed.
type takenTally struct {
	second    atomic.Int64
	now, last atomic.Int64 // deliveries of that second, and of the one before
}

func (t *takenTally) add(at time.Time) {
	second := at.Unix()
	if was := t.second.Load(); was != second && t.second.CompareAndSwap(was, second) {
		before := t.now.Swap(0)
		if was != second-1 {
			before = 0
		}
		t.last.Store(before)
	}
	t.now.Add(1)
}

// recent returns how many deliveries were taken in this second or the one before, whichever are more.
func (t *takenTally) recent(at time.Time) float64 {
	switch at.Unix() - t.second.Load() {
	case 0:
		return float64(max(t.now.Load(), t.last.Load()))
	case 1:
		return float64(t.now.Load())
	}
	return 0
}
