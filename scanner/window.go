package scanner

import (
	"slices"
	"sort"
	"time"

	"github.com/tocsinhq/tocsin/duequeue"
	"github.com/tocsinhq/tocsin/store"
)

const (
	lateCommit  = 250 * time.Millisecond // within it most transactions that overlap commit: re-read at every poll
	reReadEvery = time.Second            // older gaps are re-read so often, until commitTime has passed
	maxGaps     = 10_000                 // remembered of one database; the oldest go first
	lastFew     = 200                    // ids that a new window reads back
)

// window is what is known of one doorbell's ids: all up to high were seen, but
// for the gaps. An id in a gap may still commit, or its transaction rolled back;
// after commitTime it is taken for gone. Remembering what is missing and not what
// was seen, the window costs nothing while ids come in order.
type window struct {
	high   uint64
	gaps   []gap  // ascending and disjoint, all under high
	cursor uint64 // reading goes on behind it, where unread is set
	unread bool
	reRead time.Time // when older gaps are read again
}

// gap is the ids low to high, both included, that were missing when seen.
type gap struct {
	low, high uint64
	seen      time.Time
}

// after is the id behind which to read next.
func (w *window) after(now time.Time) uint64 {
	if w.unread {
		return w.cursor
	}
	w.forget(now)
	recent := now.Add(-lateCommit)
	if !now.Before(w.reRead) {
		w.reRead = now.Add(reReadEvery)
		recent = time.Time{}
	}
	i := sort.Search(len(w.gaps), func(i int) bool { return !w.gaps[i].seen.Before(recent) })
	if i == len(w.gaps) {
		return w.high
	}
	return w.gaps[i].low - 1
}

// forget gives gaps up that are older than any commit may take.
func (w *window) forget(now time.Time) {
	n := sort.Search(len(w.gaps), func(i int) bool { return now.Sub(w.gaps[i].seen) <= commitTime })
	n = max(n, len(w.gaps)-maxGaps)
	w.gaps = slices.Delete(w.gaps, 0, n)
}

// note takes in what was read behind after, ascending by id, and returns the
// entries that are new. It reports whether the page was full, so that there may
// be more.
func (w *window) note(bells []store.Bell, limit int, now time.Time) (fresh []duequeue.Entry, more bool) {
	for _, b := range bells {
		if w.isNew(b.ID, now) {
			fresh = append(fresh, b.Entry)
		}
	}
	w.unread = len(bells) >= limit
	if w.unread {
		w.cursor = bells[len(bells)-1].ID
	}
	return fresh, w.unread
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

// lacks reports whether there may be something to read in a doorbell whose
// highest id is last. Without gaps a lower one can't commit any more.
func (w *window) lacks(last uint64) bool { return last > w.high || w.unread || len(w.gaps) > 0 }
