package scanner

import (
	"math"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin/store"
)

// job is one group's peek, decided on.
type job struct {
	group  *group
	tables []int
	types  []uint64
	from   int64 // lower bound of action_time
	until  int64 // upper bound
	start  int64 // the server's clock when it was decided; of a stream: when that began
	full   bool
	guest  bool // of tables that another node looks at first: see guestJob
	sparse bool // few of the tables are expected to hold anything
	plain  bool // read on what is due: streaming was tried
	claims bool // look for run-out claims
	first  bool // what is due may be much

	stream bool          // read what is due whole, of the one biz type
	rest   []store.Place // of a stream: go on from there; nil: from the beginning
	width  width         // of a stream: tables to read at once
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
	sv.count(v.peers)
	switch {
	case v.now.Before(sv.restUntil):
		return nil, sv.restUntil
	case v.clock == 0:
		return nil, v.now.Add(clockWait)
	}
	if sv.peeking < parallel {
		if j := sv.nextRegular(v); j != nil {
			sv.peeking++
			return j, time.Time{}
		}
	}
	if len(sv.pauses) > 0 {
		v.wanted = filter(v.wanted, func(t uint64) bool { return !v.now.Before(sv.pauses[t].until) })
	}
	if j := sv.behind(v); j != nil {
		return j, time.Time{}
	}
	return nil, sv.lookAgain(v.now)
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

// nextRegular makes the next regular job, nil if none is due.
func (sv *server) nextRegular(v view) *job {
	for {
		g := mostOverdue(sv.groups, v.now)
		if g == nil {
			return nil
		}
		if j := sv.regular(g, v); j != nil {
			return j
		}
	}
}

// mostOverdue is the idle group whose regular peek has waited longest, nil if
// none has to be peeked yet.
func mostOverdue(groups []*group, now time.Time) *group {
	var most *group
	for _, g := range groups {
		if g.busy || len(g.tables) == 0 || g.next.After(now) {
			continue
		}
		if most == nil || g.next.Before(most.next) {
			most = g
		}
	}
	return most
}

// regular makes the job of a group whose time has come, and sets its next time.
// It is nil where no type is left to peek regularly.
func (sv *server) regular(g *group, v view) *job {
	full := !v.now.Before(g.nextFull)
	if !g.next.IsZero() {
		sv.metrics.lag.WithLabelValues(sv.name).Set(v.now.Sub(g.next).Seconds())
	}
	g.next = slotAfter(sv.base, v.now, g.tables[0], g.interval(sv.cfg.Interval), sv.cfg.grid())
	v.wanted = filter(v.wanted, g.Reads)
	if g.Guest {
		return sv.guestJob(g, v, full)
	}
	g.skip(v.wanted, full)
	if full {
		return sv.fullJob(g, v)
	}
	types := g.level(v.wanted)
	if len(types) == 0 {
		return nil
	}
	j := sv.job(g, types, v, g.floor(types))
	j.claims = sv.cfg.RecoverOften || !g.runOut.IsZero() && !v.now.Before(g.runOut)
	return j
}

// guestJob reads what is due soon, or a little overdue, in tables that another node looks at first; a full one, the oldest
// page of each table, so that what that node can't deliver is not left for ever. It is nil if no type is wanted.
func (sv *server) guestJob(g *group, v view, full bool) *job {
	if len(v.wanted) == 0 {
		return nil
	}
	j := sv.job(g, v.wanted, v, v.clock)
	j.guest, j.from = true, max(v.clock-guestBack.Milliseconds(), 0)
	if full {
		g.nextFull = v.now.Add(sv.cfg.FullEvery)
		j.from, j.full, j.claims = 0, true, true
	}
	return j
}

// fullJob reads a group without a floor: the first time all types, later those
// that are level. The others are caught up with first.
func (sv *server) fullJob(g *group, v view) *job {
	types, first := v.wanted, g.nextFull.IsZero()
	if !first {
		types = g.level(v.wanted)
		g.owe(g.behind(v.wanted))
	}
	g.nextFull = v.now.Add(sv.cfg.FullEvery)
	j := sv.job(g, types, v, 0)
	j.full, j.first, j.claims = true, first, true
	return j
}

// behind makes a job to catch up with what is wanted, nil if none is needed or as
// many are under way as may be: a peek of what was streamed already, else a
// stream. The types take turns, so that the backlog of one holds up no other.
func (sv *server) behind(v view) *job {
	if sv.peeking < parallel {
		if g, types := sv.furthest(v.wanted, true); g != nil {
			sv.peeking++
			return sv.plainJob(g, types, v)
		}
	}
	if sv.streaming >= streams {
		return nil
	}
	next, _ := slices.BinarySearch(v.wanted, sv.streamed+1)
	for i := range v.wanted {
		t := v.wanted[(next+i)%len(v.wanted)]
		if g, _ := sv.furthest([]uint64{t}, false); g != nil {
			sv.streaming++
			sv.streamed = t
			return sv.streamJob(g, t, v)
		}
	}
	return nil
}

// furthest finds the idle group that is furthest behind with those of the types
// whose next step is a peek, where plain is set, else a stream; nil if none is. A
// group that waits for its first peek is none: that tells what has a backlog, and
// many groups wait at once where a node takes its share of the tables.
func (sv *server) furthest(types []uint64, plain bool) (most *group, missing []uint64) {
	for _, g := range sv.groups {
		if g.busy || g.Guest || len(g.tables) == 0 || g.failures > 0 || g.unread() {
			continue
		}
		found := filter(g.behind(types), func(t uint64) bool { return g.Reads(t) && g.read[t].plain == plain })
		if len(found) > 0 && (most == nil || g.floor(found) < most.floor(missing)) {
			most, missing = g, found
		}
	}
	return most, missing
}

// plainJob peeks what the streams of the types have left. Where all of them came
// to their end it begins where the server's clock stood when the first of them began:
// all tables are read up to there, and some no further.
func (sv *server) plainJob(g *group, types []uint64, v view) *job {
	j := sv.job(g, types, v, g.floor(types))
	j.plain = true
	began := v.clock
	for _, t := range types {
		b := g.read[t].backlog
		if b == nil {
			return j
		}
		began = min(began, b.began)
	}
	j.from, j.start = max(j.from, began), began
	return j
}

// streamJob goes on with the stream of a type, or begins it.
func (sv *server) streamJob(g *group, t uint64, v view) *job {
	r := g.read[t]
	j := sv.job(g, []uint64{t}, v, r.floor)
	j.stream, j.until, j.width = true, v.clock, width{tables: maxStreamed}
	if b := r.backlog; b != nil {
		j.rest, j.width, j.start = b.rest, b.width, min(b.began, v.clock)
	}
	return j
}

// job makes a group's job from a floor on. Where the server's clock was set back
// the floor may lie in what is its future now.
func (sv *server) job(g *group, types []uint64, v view, floor int64) *job {
	g.busy, g.lowered = true, nil
	return &job{
		group:  g,
		tables: g.tables,
		types:  types,
		from:   max(min(floor, v.clock-commitTime.Milliseconds()), 0),
		until:  v.clock + sv.cfg.LookAhead.Milliseconds(),
		start:  v.clock,
		sparse: g.sparse(),
	}
}

// lookAgain is when the next regular peek is due; sooner if a group is behind,
// for the intake may want the rest. While as many peeks are under way as may be, the
// end of one wakes the loop.
func (sv *server) lookAgain(now time.Time) time.Time {
	at := now.Add(sv.cfg.Interval)
	for _, g := range sv.groups {
		if g.busy || len(g.tables) == 0 {
			continue // its end wakes the loop
		}
		if sv.peeking < parallel {
			at = earlier(at, g.next)
		}
		if g.anyBehind() {
			at = earlier(at, now.Add(retryEvery))
		}
	}
	return at
}

// finish takes the group back after its job: how far it was read, or what failed.
func (sv *server) finish(j *job, r result) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	g := j.group
	g.busy = false
	if j.stream {
		sv.streaming--
	} else {
		sv.peeking--
	}
	switch {
	case r.err == nil:
		sv.progress(j, r)
		sv.isolate(g, sv.unreadable(r.failed, j.full))
	case j.stream:
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
	if at := time.Now().Add(fullShare * time.Duration(len(sv.groups)) * r.took); j.full && !g.nextFull.IsZero() && at.After(g.nextFull) {
		g.nextFull = at
	}
	if r.again {
		g.next = time.Time{}
	}
	if r.looked {
		g.runOut = r.runOut
	}
	sv.groups = compact(sv.groups, sv.cfg.TablesPerStatement)
	sv.look()
}

// progress notes how far a job has read. A stream whose tables all got to where
// its clock stood when it began, and which still goes on, begins anew: in those
// that it is done with more is due by now.
func (sv *server) progress(j *job, r result) {
	floor := min(r.floor, j.start-commitTime.Milliseconds())
	if j.stream {
		next := reading{floor: floor, behind: true, plain: r.plain}
		if len(r.rest) > 0 && r.floor <= j.start || r.plain && r.refused == 0 && r.floor == math.MaxInt64 {
			next.backlog = &backlog{rest: r.rest, width: r.width, began: j.start}
		}
		j.group.streamed(j.types[0], next)
		return
	}
	if j.guest {
		j.group.note(r.found)
		return
	}
	for _, t := range j.types {
		due, stopped := r.stopped[t]
		switch {
		case slices.Contains(r.left, t):
		case stopped:
			j.group.done([]uint64{t}, min(floor, due), true)
		default:
			j.group.done([]uint64{t}, floor, r.behind)
		}
	}
	j.group.note(r.found)
}
