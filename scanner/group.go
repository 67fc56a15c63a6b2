package scanner

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin/internal/duequeue"
)

// group is some tables of one server that are peeked in one statement.
type group struct {
	*duequeue.Access                  // of a Guest only what is due soon is looked for, and read stays empty
	tables           []int            // ascending; replaced, never changed in place, as a job may hold it
	read             map[uint64]int64 // by biz type: what is due earlier is known, or stands in the spans of its lane; missing: never read
	recent           int64            // the latest of these times: that of the last peek
	last             time.Time        // of the last peek
	next             time.Time        // of the regular peek; zero: at once
	nextFull         time.Time        // from then on the regular peek is a full one
	runOut           time.Time        // then the group is peeked, and looked at for run-out claims; zero: only a full peek looks
	told             time.Time        // the earliest end of a claim that RunOut has told of since the job under way began; zero: of none
	busy             bool             // a job of it is under way
	took             time.Duration    // the last full look, of its tables or of more than these
	deep             bool             // its full looks have too much to read: it is not merged
	failures         int              // peeks of this one table that failed in a row; such a group stays alone
	found            int              // entries of the last peek
	silent           int              // peeks in a row that found nothing
}

func newGroup(as *duequeue.Access, tables []int) *group {
	return &group{Access: as, tables: tables, read: make(map[uint64]int64), found: len(tables)}
}

// note takes in how many entries a peek found.
func (g *group) note(found int) {
	g.found = found
	if g.silent++; found > 0 {
		g.silent = 0
	}
}

// sparse reports whether few of the tables are expected to hold an entry.
func (g *group) sparse() bool { return len(g.tables) > 1 && g.found <= len(g.tables)/sparseShare }

// interval is the time to the next regular peek: longer by half where nothing
// was found for a while. Rows that ring no bell are due beyond the doorbell's
// horizon, which is two intervals, so they are found in time as long as their
// insert takes less than half an interval to commit.
func (g *group) interval(base time.Duration) time.Duration {
	if g.silent < silentPeeks {
		return base
	}
	return base + base/2
}

// peeked notes that the types are read until then. If the server's clock was set back, the others are read no further.
func (g *group) peeked(types []uint64, until int64) {
	g.recent, g.last = until, time.Now()
	for _, t := range types {
		g.read[t] = until
	}
	for t, at := range g.read {
		g.read[t] = min(at, until)
	}
}

// fresh reports whether the group waits for its first peek.
func (g *group) fresh() bool { return !g.Guest && g.failures == 0 && g.nextFull.IsZero() }

// lags reports whether the last peek has left out one of the types.
func (g *group) lags(types []uint64) bool {
	return !g.Guest && g.failures == 0 && !g.fresh() && slices.ContainsFunc(types, func(t uint64) bool {
		at, ever := g.read[t]
		return g.Reads(t) && (!ever || at < g.recent)
	})
}

// merge makes one group of two.
func merge(a, b *group) *group {
	m := newGroup(a.Access, slices.Sorted(slices.Values(slices.Concat(a.tables, b.tables))))
	for t, at := range a.read {
		if other, ok := b.read[t]; ok {
			m.read[t] = min(at, other)
			m.recent = max(m.recent, m.read[t])
		}
	}
	m.last = earlier(a.last, b.last)
	m.next, m.nextFull = earlier(a.next, b.next), earlier(a.nextFull, b.nextFull)
	m.runOut = sooner(a.runOut, b.runOut)
	m.found, m.silent, m.took = a.found+b.found, min(a.silent, b.silent), a.took+b.took
	return m
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// endsAt notes that a claim can be recovered then.
func (g *group) endsAt(at time.Time) {
	g.runOut, g.told = sooner(g.runOut, at), sooner(g.told, at)
}

// ranOut reports whether a claim can be recovered. A table that fails is left alone.
func (g *group) ranOut(now time.Time) bool {
	return g.failures == 0 && !g.runOut.IsZero() && !now.Before(g.runOut)
}

// follows reports whether the group is looked at again when the next claim runs out. A guest leaves claims to the owner of the tables, except
// its own, which RunOut has told of.
func (g *group) follows() bool { return !g.Guest || !g.runOut.IsZero() }

// nextAt is when the group is peeked again.
func (g *group) nextAt() time.Time {
	if g.failures > 0 {
		return g.next
	}
	return earlier(g.next, sooner(g.runOut, g.next))
}

// sooner returns the earlier of two times. A zero time counts as none.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || b.IsZero() {
		return cmp.Or(a, b)
	}
	return earlier(a, b)
}

// settled reports whether the group may be merged: one that was never read would
// have the other read in full, and one that fails would take it along.
func (g *group) settled() bool {
	return !g.busy && !g.deep && g.failures == 0 && !g.fresh()
}

// compact drops empty groups and merges small ones that are looked at in the same way, so that tables
// that came and went one by one don't cost a statement each.
func compact(groups []*group, size int) (kept []*group) {
	var small [][]*group // those of each part are looked at in the same way
	for _, g := range groups {
		switch {
		case len(g.tables) == 0 && !g.busy:
		case g.settled() && len(g.tables) <= size/2:
			i := slices.IndexFunc(small, func(some []*group) bool { return sameLook(some[0].Access, g.Access) })
			if i < 0 {
				i, small = len(small), append(small, nil)
			}
			small[i] = append(small[i], g)
		default:
			kept = append(kept, g)
		}
	}
	for _, some := range small {
		kept = append(kept, together(some, size)...)
	}
	return kept
}

// together merges small groups.
func together(small []*group, size int) (kept []*group) {
	slices.SortFunc(small, func(a, b *group) int { return cmp.Compare(a.tables[0], b.tables[0]) })
	for len(small) > 1 {
		m := merge(small[0], small[1])
		small = small[1:]
		small[0] = m
		if len(m.tables) > size/2 {
			kept, small = append(kept, m), small[1:]
		}
	}
	return append(kept, small...)
}

// slotAfter is the next time of a group's regular peek: the groups, told apart
// by their first table, are spread over the interval, at multiples of grid. It
// counts from base on the monotonic clock.
func slotAfter(base, now time.Time, first int, interval, grid time.Duration) time.Time {
	const golden = 0.6180339887498949 // multiples of it fall evenly into an interval
	_, part := math.Modf(float64(first+1) * golden)
	offset := time.Duration(part * float64(interval)).Truncate(grid)
	slot := now.Sub(base).Truncate(interval) + offset
	if !base.Add(slot).After(now) {
		slot += interval
	}
	return base.Add(slot)
}

// failWait is how long a table that failed so often in a row is left alone.
func failWait(failures int, interval time.Duration) time.Duration {
	return min(interval<<min(failures-1, 10), max(time.Minute, interval))
}

func filter[T any](all []T, keep func(T) bool) []T {
	var kept []T
	for _, v := range all {
		if keep(v) {
			kept = append(kept, v)
		}
	}
	return kept
}
