package scanner

import (
	"maps"
	"slices"
	"time"
)

// job is one group's peek, decided on.
type job struct {
	group  *group
	tables []int
	types  []uint64
	from   int64 // lower bound of action_time
	until  int64 // upper bound
	start  int64 // the server's clock when it was decided
	full   bool
	first  bool // no peek has read the group before
	guest  bool // of tables that another node looks at first: see guestJob
	sparse bool // few of the tables are expected to hold anything
	claims bool // look for run-out claims
}

// view is what a decision rests on, besides the groups.
type view struct {
	now    time.Time
	clock  int64    // the server's, Unix ms
	wanted []uint64 // biz types
	peers  int      // nodes of the group
}

// pick decides what to peek next. Where there is nothing it returns nil and when
// to look again.
func (sv *server) pick(v view) (*job, time.Time) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	if !sv.cfg.Claims {
		sv.count(v.peers)
	}
	sv.lookForGone(v.now)
	if !slices.Equal(v.wanted, sv.wanted) {
		sv.wanted, sv.lagging = v.wanted, true
	}
	switch {
	case v.now.Before(sv.restUntil):
		return nil, sv.restUntil
	case v.clock == 0:
		return nil, v.now.Add(clockWait)
	}
	for sv.peeking < parallel {
		g := sv.mostOverdue(v)
		if g == nil {
			break
		}
		if j := sv.regular(g, v); j != nil {
			sv.peeking++
			return j, time.Time{}
		}
	}
	return nil, sv.lookAgain(v)
}

// count notes how many nodes the group has. One that has gone may have left claims in any table: those in the tables that it owned
// are found by the first peek of the next owner, the others by the next peek.
func (sv *server) count(peers int) {
	if peers < sv.peers {
		for _, g := range sv.groups {
			if !g.Guest {
				g.runOut = sv.base
			}
		}
	}
	sv.peers = peers
}

// mostOverdue is the idle group whose regular peek has waited longest, nil if
// none has to be peeked yet. A group whose last peek left out a type that is wanted now is
// peeked at once, but not again and again.
func (sv *server) mostOverdue(v view) (most *group) {
	lagging := false
	for _, g := range sv.groups {
		due := !g.next.After(v.now) || g.ranOut(v.now)
		if !due && sv.lagging && g.lags(v.wanted) {
			lagging = true
			due = v.now.Sub(g.last) >= lagEvery
		}
		if lagging = lagging || g.busy; due && !g.busy && len(g.tables) > 0 && (most == nil || g.next.Before(most.next)) {
			most = g
		}
	}
	sv.lagging = lagging
	return most
}

// regular makes the job of a group whose time has come, and sets its next time.
// It is nil if no type is wanted. What was due since a type was last read is pulled; of one that was never read, or that the last
// full look left out, all that is due.
func (sv *server) regular(g *group, v view) *job {
	if !g.next.IsZero() {
		sv.metrics.lag.WithLabelValues(sv.name).Set(max(v.now.Sub(g.next).Seconds(), 0))
	}
	g.next = slotAfter(sv.base, v.now, g.tables[0], g.interval(sv.cfg.Interval), sv.cfg.grid())
	types := filter(v.wanted, g.Reads)
	full := !v.now.Before(g.nextFull)
	switch {
	case g.Guest:
		return sv.guestJob(g, types, v, full)
	case full:
		return sv.fullJob(g, types, v)
	case len(types) == 0 && !g.ranOut(v.now):
		return nil
	}
	for _, t := range types {
		if at := g.read[t]; at < g.recent {
			sv.unread(t, g.tables, at, v.clock)
		}
	}
	j := sv.job(g, types, v, g.recent)
	j.claims = g.ranOut(v.now) || g.lags(v.wanted) // a stand-in may have left claims of the types that are new
	return j
}

// guestJob reads what is due soon, or a little overdue, in tables that another node looks at first; a full one, the oldest
// page of each table, so that what that node can't deliver is not left for ever. It is nil if no type is wanted.
func (sv *server) guestJob(g *group, types []uint64, v view, full bool) *job {
	ranOut := g.ranOut(v.now)
	if len(types) == 0 && !ranOut {
		return nil
	}
	j := sv.job(g, types, v, v.clock)
	j.guest, j.claims, j.from = true, ranOut, max(v.clock-guestBack.Milliseconds(), 0)
	if full {
		g.nextFull = v.now.Add(sv.cfg.FullEvery)
		j.from, j.full, j.claims = 0, true, true
	}
	return j
}

// fullJob reads a group from the beginning. The types that it leaves out count as never read.
func (sv *server) fullJob(g *group, types []uint64, v view) *job {
	maps.DeleteFunc(g.read, func(t uint64, _ int64) bool { return !slices.Contains(types, t) })
	first := g.nextFull.IsZero()
	g.nextFull = v.now.Add(sv.cfg.FullEvery)
	j := sv.job(g, types, v, 0)
	j.full, j.first, j.claims = true, first, true
	return j
}

// job makes a group's job. If the server's clock was set back,
// from may lie in what is its future now.
func (sv *server) job(g *group, types []uint64, v view, from int64) *job {
	g.busy, g.told = true, time.Time{}
	return &job{
		group:  g,
		tables: g.tables,
		types:  types,
		from:   max(min(from, v.clock-commitTime.Milliseconds()), 0),
		until:  v.clock + sv.cfg.LookAhead.Milliseconds(),
		start:  v.clock,
		sparse: g.sparse(),
	}
}

// lookAgain is when the next regular peek is due, or sooner the next pull of what was not due when it was noted. While as many peeks
// are under way as may be, the end of one wakes the loop.
func (sv *server) lookAgain(v view) time.Time {
	at := v.now.Add(sv.cfg.Interval)
	for _, gone := range sv.gone {
		at = earlier(at, gone.at)
	}
	if sv.peeking < parallel {
		for _, g := range sv.groups {
			if !g.busy && len(g.tables) > 0 {
				at = earlier(at, g.nextAt())
			}
		}
		if sv.lagging {
			at = earlier(at, v.now.Add(lagEvery))
		}
	}
	for _, l := range sv.lanes {
		due, some := l.next()
		if !some || sv.pulling >= pulls {
			continue
		}
		next := v.now.Add(time.Duration(due-v.clock) * time.Millisecond)
		if next.Before(l.rest) {
			next = l.rest
		}
		if next.After(v.now) { // else it waits for demand, or for a pull under way
			at = earlier(at, next)
		}
	}
	return at
}

// spread puts off the next full look of a group if full looks take too much time of the server. A group may use an equal share of that time or, if
// this is more, what the other groups leave: one slow look among many does not put off the next one for hours. Called under mu.
func (sv *server) spread(g *group) {
	all := time.Duration(0)
	for _, other := range sv.groups {
		all += other.took
	}
	at := time.Now().Add(fullShare * min(all, time.Duration(len(sv.groups))*g.took))
	if !g.nextFull.IsZero() && at.After(g.nextFull) {
		g.nextFull = at
	}
}

// finish takes the group back after its job: how far it was read, or what failed.
func (sv *server) finish(j *job, r result) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	g := j.group
	g.busy = false
	sv.peeking--
	sv.lagging = true // if it has left out a type
	if j.full {
		g.took = r.took
		sv.spread(g)
	}
	switch {
	case r.err == nil:
		if !j.guest {
			g.peeked(j.types, j.start-commitTime.Milliseconds())
		}
		g.note(r.found)
		sv.isolate(g, sv.unreadable(r.failed, j.full))
	case r.slow:
		sv.halve(g, j.first, r.err)
	default:
		g.next = time.Time{}
		if j.full {
			g.nextFull = time.Time{}
		}
	}
	if j.full && r.err == nil && r.took < peekTimeout/4 { // a merged group takes twice as long
		g.deep = false
	}
	if r.again {
		g.next = time.Time{}
	}
	if r.looked && g.follows() {
		g.runOut = sooner(r.runOut, g.told)
	}
	sv.groups = compact(sv.groups, sv.cfg.TablesPerStatement)
	sv.look()
}
