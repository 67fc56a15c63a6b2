package scanner

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin/duequeue"
	"github.com/tocsinhq/tocsin/store"
)

// group is some tables of one server that are peeked in one statement.
type group struct {
	*duequeue.Access                    // of a Guest nothing is read on, and read stays empty
	tables           []int              // ascending; replaced, never changed in place, as a job may hold it
	read             map[uint64]reading // by biz type; a type that is missing was never read
	next             time.Time          // of the regular peek; zero: at once
	nextFull         time.Time          // from then on the regular peek is a full one
	runOut           time.Time          // from then on the regular peek looks for run-out claims; zero: only a full one does
	busy             bool               // a job of it is under way
	lowered          duequeue.Refused   // since the job began
	deep             bool               // its full looks have too much to read: it is not merged
	failures         int                // peeks of this one table that failed in a row; such a group stays alone
	found            int                // entries of the last peek
	silent           int                // peeks in a row that found nothing
}

// reading is how far a group's rows of one biz type are read.
type reading struct {
	floor  int64 // every row before it was offered and accepted
	behind bool  // there may be rows from the floor on that the intake did not take

	// While it is behind.
	owed    bool     // a full peek left it out
	plain   bool     // streaming was tried: the next step is a peek
	backlog *backlog // what a stream has left; nil: none is under way
}

// backlog is how far the stream of one type has come.
type backlog struct {
	rest  []store.Place // it goes on from there; none: everything due was read
	width width         // as many tables at once
	began int64         // the server's clock when it began: what became due later may be unread
}

func newGroup(as *duequeue.Access, tables []int) *group {
	return &group{Access: as, tables: tables, read: make(map[uint64]reading), found: len(tables)}
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

// floor is the lowest of the types' floors.
func (g *group) floor(types []uint64) int64 {
	low := int64(math.MaxInt64)
	for _, t := range types {
		low = min(low, g.read[t].floor)
	}
	return low
}

// behind gives those of the types that have to catch up.
func (g *group) behind(types []uint64) []uint64 {
	return filter(types, g.isBehind)
}

// level gives those of the types that need not.
func (g *group) level(types []uint64) []uint64 {
	return filter(types, func(t uint64) bool { return !g.isBehind(t) })
}

func (g *group) isBehind(t uint64) bool {
	r, ok := g.read[t]
	return !ok || r.behind
}

// anyBehind reports whether some type has to catch up once it is wanted.
func (g *group) anyBehind() bool {
	for _, r := range g.read {
		if r.behind {
			return true
		}
	}
	return false
}

// unread reports whether the group waits for its first peek.
func (g *group) unread() bool { return !g.Guest && g.failures == 0 && g.nextFull.IsZero() }

// skip notes that a regular peek left out every type but the wanted ones: what
// comes of them from now on is unread. A full one that leaves a type out owes it
// a whole reading.
func (g *group) skip(wanted []uint64, full bool) {
	for t, r := range g.read {
		if slices.Contains(wanted, t) {
			continue
		}
		if full {
			r.floor, r.owed = 0, false
		}
		g.read[t] = reading{floor: r.floor, behind: true, owed: r.owed}
	}
}

// done notes that the types were read up to their floor, and beyond it unless
// behind. What was refused meanwhile lowers it.
func (g *group) done(types []uint64, floor int64, behind bool) {
	for _, t := range types {
		next := reading{floor: floor, behind: behind}
		if due, lowered := g.lowered[t]; lowered {
			next = next.lower(due)
		}
		if g.read[t].owed && !next.behind {
			next.floor = 0
		} else {
			next.owed = g.read[t].owed
		}
		g.read[t] = next
	}
}

// owe notes that a full peek left the types out: once they are level they are
// read from the beginning.
func (g *group) owe(types []uint64) {
	for _, t := range types {
		if r, ok := g.read[t]; ok {
			r.owed = true
			g.read[t] = r
		}
	}
}

// streamed notes how far a stream of one type has come. It goes back to an entry that
// was refused meanwhile.
func (g *group) streamed(t uint64, r reading) {
	if due, lowered := g.lowered[t]; lowered {
		r = r.lower(due)
	}
	r.owed = g.read[t].owed
	g.read[t] = r
}

// lower notes that an entry of a type, due then, was refused. It may be one that the
// group had accepted and that was then pushed out.
func (g *group) lower(t uint64, due int64) {
	if g.busy {
		g.lowered.Note(t, due)
	}
	if r, ok := g.read[t]; ok {
		g.read[t] = r.lower(due)
	}
}

// lower returns the reading after an entry that is due then was refused. A reading
// that is behind stays as it is if the entry will still be read.
func (r reading) lower(due int64) reading {
	if r.behind && due >= r.floor && (r.backlog == nil || due >= r.backlog.began) {
		return r
	}
	return reading{floor: min(r.floor, due), behind: true, owed: r.owed}
}

// merge makes one group of two.
func merge(a, b *group) *group {
	m := newGroup(a.Access, slices.Sorted(slices.Values(slices.Concat(a.tables, b.tables))))
	for t, r := range a.read {
		if other, ok := b.read[t]; ok {
			m.read[t] = reading{floor: min(r.floor, other.floor), behind: r.behind || other.behind, owed: r.owed || other.owed}
		}
	}
	m.next, m.nextFull = earlier(a.next, b.next), earlier(a.nextFull, b.nextFull)
	if m.runOut = earlier(a.runOut, b.runOut); m.runOut.IsZero() && b.runOut.IsZero() {
		m.runOut = a.runOut
	} else if m.runOut.IsZero() {
		m.runOut = b.runOut
	}
	m.found, m.silent = a.found+b.found, min(a.silent, b.silent)
	return m
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// settled reports whether the group may be merged: one that was never read would
// take the floor from the other, one that fails would take it along, and a
// stream would begin anew.
func (g *group) settled() bool {
	return !g.busy && !g.deep && g.failures == 0 && !g.unread() && !g.streaming()
}

// streaming reports whether a stream is to go on.
func (g *group) streaming() bool {
	for _, r := range g.read {
		if r.backlog != nil && len(r.backlog.rest) > 0 {
			return true
		}
	}
	return false
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
