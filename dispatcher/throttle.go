package dispatcher

import (
	"math"
	"sync/atomic"
	"time"
)

const (
	keepRate    = 0.8                    // of the rate at which the target said later, the part that is used next
	sameSoonest = 8 * time.Second        // until the rate is again what it was when the target said later, at least, ...
	sameLatest  = 20 * time.Second       // ... at most, ...
	sameAfter   = 20                     // ... and in between after so many deliveries
	searchGrows = 500 * time.Millisecond // while the target's rate is not known, the rate doubles in this time
	leastRate   = 0.2                    // deliveries a second
	fewTaken    = 5                      // deliveries between two answers "later" that show little of the target's rate
	manyTaken   = 20                     // deliveries after which a "later" to a task that was told so before is that task's matter
	endRate     = 10_000                 // deliveries a second that the target takes: there is no need for a limit
	forgetAfter = 10 * time.Minute       // in which no delivery had to wait: the same
)

// throttle is the rate at which deliveries of a biz type begin once its target has said later: what the target takes, found by
// trying. It falls when the target says later and grows while the target takes what it gets:
//
//	no limit --> searching   the target said later: from what it took in the last second, the rate doubles and doubles
//	searching -> known       it said later again: that rate is known to be too high
//	known -----> known       the same. In between, the rate grows as TCP's window does (CUBIC): quickly back to near the
//	                         known rate, slowly past it, and then faster and faster
//	known -----> searching   it said later, and has taken nothing since the last time
//	any -------> no limit    it takes endRate, or no delivery has had to wait for forgetAfter
//
// The zero value is no limit. kind.mu guards it.
type throttle struct {
	rate  float64       // deliveries a second; 0: no limit
	from  float64       // the rate right after the target last said later
	top   float64       // the rate at which it did; 0: searching
	grown time.Duration // for so long it has taken deliveries since then
	taken int           // deliveries since then
	cut   time.Time     // when it did: what began before tells nothing new
	last  time.Time     // when a delivery was last taken, at the earliest the end of the rest
	next  time.Time     // no delivery begins before
	since time.Time     // there is a limit
	bound time.Time     // when a delivery last had to wait for it
	rows  int           // tasks that a delivery may have, as the target took only a part of one; 0: no limit
}

// later takes in that the target said later to a delivery that began at a time, and that it took some tasks of it all the same. It took recent
// deliveries in the last second before that, and rests for so long. It returns how long it is left alone.
func (t *throttle) later(began, now time.Time, recent float64, taken int, rest time.Duration) time.Duration {
	if !began.After(t.cut) {
		return rest
	}
	switch {
	case t.rate == 0:
		t.rate, t.since = keepRate*max(recent, 1), now
	case taken > 0: // fewer tasks in each delivery will do
	case t.taken > 0:
		known := t.rate
		if t.taken < fewTaken { // it may be bad luck
			known = max(known, 0.9*t.top)
		}
		t.top, t.rate = known, keepRate*t.rate
	default:
		t.top, t.rate = 0, t.rate/2
	}
	t.rate = max(t.rate, leastRate)
	if taken > 0 {
		t.rows = taken
	}
	rest = max(rest, t.apart())
	t.from, t.grown, t.taken, t.cut, t.last, t.next, t.bound = t.rate, 0, 0, now, now.Add(rest), time.Time{}, now
	return rest
}

// took takes in that the target took a delivery of some tasks. While nothing is delivered, the rate does not grow.
func (t *throttle) took(began, now time.Time, rows int) {
	if t.rate == 0 || !began.After(t.cut) {
		return
	}
	most := searchGrows // so that the rate does not more than double by one delivery
	if t.top > 0 {
		most = max(time.Second, 2*t.apart())
	}
	t.grown += min(max(now.Sub(t.last), 0), most)
	t.last = now
	t.taken++
	if t.rate = t.grow(); t.rate >= endRate || t.idle(now) {
		*t = throttle{}
	}
	if t.rows > 0 && rows >= t.rows {
		t.rows += 1 + t.rows/4
	}
}

// grow returns the rate after deliveries were taken for the time grown.
func (t *throttle) grow() float64 {
	if t.top == 0 {
		return t.from * math.Exp2(min(t.grown.Seconds()/searchGrows.Seconds(), 30))
	}
	same := min(max(sameSoonest.Seconds(), sameAfter/t.top), sameLatest.Seconds())
	x := t.grown.Seconds()/same - 1
	return t.top * (1 + (1-keepRate)*x*x*x)
}

// apart is the time between two deliveries.
func (t *throttle) apart() time.Duration { return time.Duration(float64(time.Second) / t.rate) }

// wait returns how long no delivery may begin.
func (t *throttle) wait(now time.Time) time.Duration {
	if t.rate == 0 {
		return 0
	}
	wait := t.next.Sub(now)
	if wait > 0 {
		t.bound = now
	}
	return wait
}

// idle reports whether the limit has had no effect for long.
func (t *throttle) idle(now time.Time) bool { return t.rate > 0 && now.Sub(t.bound) > forgetAfter }

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

// tally counts the deliveries that a target takes, second by second, for the moment at which it says later. Safe for concurrent use; near the
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
