package scanner

import (
	"slices"
	"sort"
	"time"

	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/store"
)

const (
	lateCommit  = 250 * time.Millisecond // most overlapping transactions commit within this: gaps are read at every poll
	reReadEvery = time.Second            // older gaps are read once per interval, until commitTime has passed
	maxGaps     = 10_000                 // remembered of one database; the oldest go first
	gapsAtOnce  = 256                    // read in one poll
	lastFew     = 200                    // ids that a new window reads back
)

// window is the state of one doorbell's ids: all ids up to high were seen, except the
// gaps. An id in a gap may still commit, or its transaction was rolled back; after
// commitTime it is considered gone. Only the gaps are read again, never the bells
// between them. The window stores the missing ids and not the seen ones, so it costs
// nothing while ids come in order.
type window struct {
	high   uint64
	gaps   []gap     // ascending, disjoint, all below high; so the older ones come first
	reRead time.Time // when the next round through the older gaps begins
	round  uint64    // the older gaps up to this id were read in this round
}

// gap is the ids low to high, both included, that were missing when seen.
type gap struct {
	low, high uint64
	seen      time.Time
}

// next returns what to read next: the ids above the highest, and at most gapsAtOnce
// gaps: the recent ones, and some of the older ones in turn.
func (w *window) next(now time.Time) store.Unheard {
	w.forget(now)
	if !now.Before(w.reRead) {
		w.reRead, w.round = now.Add(reReadEvery), 0
	}
	recent := now.Add(-lateCommit)
	young := sort.Search(len(w.gaps), func(i int) bool { return !w.gaps[i].seen.Before(recent) })
	first := sort.Search(young, func(i int) bool { return w.gaps[i].high > w.round })
	old := w.gaps[first:young]
	fresh := w.gaps[max(young, len(w.gaps)-gapsAtOnce):]
	old = old[:min(len(old), gapsAtOnce-len(fresh))]
	if len(old) > 0 {
		w.round = old[len(old)-1].high
	}
	var missing []store.Span
	for _, g := range slices.Concat(old, fresh) {
		missing = append(missing, store.Span{Low: g.low, High: g.high})
	}
	return store.Unheard{After: w.high, Missing: missing}
}

// forget gives gaps up that are older than any commit may take.
func (w *window) forget(now time.Time) {
	n := sort.Search(len(w.gaps), func(i int) bool { return now.Sub(w.gaps[i].seen) <= commitTime })
	n = max(n, len(w.gaps)-maxGaps)
	w.gaps = slices.Delete(w.gaps, 0, n)
}

// note takes in the bells that were read as asked, with the limit, and returns the
// new entries. If a page was full there may be more, and rest tells what to read
// then; otherwise rest is nil.
func (w *window) note(asked store.Unheard, bells []store.Bell, limit int, now time.Time) (fresh []duequeue.Entry, rest *store.Unheard) {
	missing, last := 0, uint64(0)
	for _, b := range bells {
		if b.ID <= asked.After {
			missing, last = missing+1, max(last, b.ID)
		}
		if w.isNew(b.ID, now) {
			fresh = append(fresh, b.Entry)
		}
	}
	if missing < limit && len(bells)-missing < limit {
		return fresh, nil
	}
	rest = &store.Unheard{After: w.high}
	if missing >= limit {
		rest.Missing = behind(asked.Missing, last)
	}
	return fresh, rest
}

// behind returns the parts of the spans above an id.
func behind(spans []store.Span, id uint64) []store.Span {
	i := sort.Search(len(spans), func(i int) bool { return spans[i].High > id })
	left := slices.Clone(spans[i:])
	if len(left) > 0 {
		left[0].Low = max(left[0].Low, id+1)
	}
	return left
}

func (w *window) isNew(id uint64, now time.Time) bool {
	if id <= w.high {
		return w.fill(id)
	}
	if id > w.high+1 {
		w.gaps = append(w.gaps, gap{w.high + 1, id - 1, now})
	}
	w.high = id
	return true
}

// fill takes id out of the gap it is in and reports whether it was in one.
func (w *window) fill(id uint64) bool {
	i := sort.Search(len(w.gaps), func(i int) bool { return w.gaps[i].high >= id })
	if i == len(w.gaps) || w.gaps[i].low > id {
		return false
	}
	g := w.gaps[i]
	var left []gap
	if g.low < id {
		left = append(left, gap{g.low, id - 1, g.seen})
	}
	if id < g.high {
		left = append(left, gap{id + 1, g.high, g.seen})
	}
	w.gaps = slices.Replace(w.gaps, i, i+1, left...)
	return true
}

// newWindow starts at the highest id that a doorbell has, and a little before it:
// what rang while the tables were being taken is read again.
func newWindow(last uint64, now time.Time) *window {
	w := &window{high: last}
	if last > 0 {
		w.gaps = []gap{{last - min(last, lastFew) + 1, last, now}}
	}
	return w
}

// check starts anew where the highest id fell: the bell was emptied or restored.
func (w *window) check(last uint64, now time.Time) {
	if last < w.high {
		*w = *newWindow(last, now)
	}
}
