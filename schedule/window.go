package schedule

import (
	"time"

	"github.com/tocsinhq/tocsin/schedule/firetimes"
)

// How far runs are made ahead.
const (
	Step    = 10 * time.Minute // a schedule whose next fire time is nearer is due: the next window is made, two steps ahead
	MaxRuns = 500              // runs of one window, which is one transaction
)

// maxCounted is how many missed fire times are counted at most: a schedule of each second that stood for a year has missed
// 31 millions.
const maxCounted = 10_000

// window is what is to be made, and where the cursor stands then.
type window struct {
	fires      []time.Time // nominal times, ascending, at most MaxRuns
	until      time.Time   // made_until
	next       time.Time   // next_fire; zero: no fire time is left
	passedOver int
}

// windowOf returns the next window of an active schedule. A fire time is missed if its run would start later than
// StartWithin; missed fire times are made up for by the policy, all in one window.
func windowOf(s Schedule, times *firetimes.Times, now time.Time) window {
	w := window{until: s.MadeUntil}
	if missed := now.Add(-times.Offset() - s.StartWithin.D()); w.until.Before(missed.Add(-time.Millisecond)) {
		w.missed(s.Definition, times, missed)
	}
	ahead := now.Add(2 * Step)
	for len(w.fires) < MaxRuns {
		t := times.Next(w.until)
		if t.IsZero() || t.After(ahead) {
			w.next = t
			if w.until.Before(ahead) {
				w.until = ahead
			}
			return w
		}
		w.fires, w.until = append(w.fires, t), t
	}
	w.next = times.Next(w.until)
	return w
}

// missed passes over the fire times before a time, apart from those that are made up for.
func (w *window) missed(d Definition, times *firetimes.Times, before time.Time) {
	switch d.Missed {
	case MissedOnce:
		w.fires = newest(times, w.until, before, 1)
	case MissedAll:
		w.fires = newest(times, w.until, before, d.MissedMost)
	}
	all := between(times, w.until, before, maxCounted)
	w.passedOver = len(all) - len(w.fires)
	w.until = before.Add(-time.Millisecond)
}

// newest returns the last fire times in a span, at most n. Fire times can only be computed forward, so newest tries
// longer and longer tails of the span. It computes about four times as many as it returns, however long the span is.
func newest(times *firetimes.Times, after, before time.Time, n int) []time.Time {
	for length := time.Minute; ; length *= 4 {
		from := before.Add(-length)
		whole := !from.After(after)
		if whole {
			from = after
		}
		all := between(times, from, before, 0)
		if whole || len(all) >= n {
			return all[max(0, len(all)-n):]
		}
	}
}

// between returns the fire times after one time and before another, at most a number of them unless it is 0.
func between(times *firetimes.Times, after, before time.Time, most int) (all []time.Time) {
	for t := times.Next(after); !t.IsZero() && t.Before(before); t = times.Next(t) {
		all = append(all, t)
		if len(all) == most {
			break
		}
	}
	return all
}
