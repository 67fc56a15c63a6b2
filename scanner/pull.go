package scanner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/store"
)

// pull is one page of whole rows of a lane, decided on: its oldest unread ones, which the intake starts at once. So a backlog
// needs no queue, and no second read.
type pull struct {
	lane  *lane
	room  duequeue.Room
	taken []*span // from the lane
	spans []*span // the part of these to read
	until int64   // the server's clock
	limit int     // rows of a table
}

// nextPull decides which lane to read on. It returns nil if no lane that has something unread has demand, or if as many
// pulls are under way as may be. Lanes take turns.
func (sv *server) nextPull(v view) *pull {
	for _, l := range sv.behind(v) {
		sv.mu.Lock()
		tables, limit := l.width.next(len(l.oldest))
		sv.mu.Unlock()
		room := sv.reserve(l, tables*limit)
		if room.Rows == 0 {
			sv.mu.Lock()
			l.rest = v.now.Add(room.Wait) // 0: the intake wakes the scanner when the lane has demand
			sv.mu.Unlock()
			continue
		}
		p := &pull{lane: l, room: room, until: v.clock}
		if sv.begin(p, min(tables, room.Rows)) {
			return p
		}
		sv.handOver(context.Background(), l.bizType, room, store.DuePage{}, v.now)
	}
	return nil
}

// reserve asks the intake for room.
func (sv *server) reserve(l *lane, most int) duequeue.Room {
	if sv.cfg.Claims {
		return duequeue.Room{Rows: sv.cfg.Intake.Room(sv.index, l.bizType, most)}
	}
	return sv.cfg.Intake.Reserve(sv.index, l.bizType, most)
}

// handOver passes on what was read, and gives the room back.
func (sv *server) handOver(ctx context.Context, bizType uint64, room duequeue.Room, page store.DuePage, asked time.Time) (refused []duequeue.Entry) {
	if sv.cfg.Claims {
		sv.offering.RLock()
		defer sv.offering.RUnlock()
		entries := slices.DeleteFunc(page.Entries, func(e duequeue.Entry) bool { return !sv.reads(e.JobID.Table(), e.Type) })
		sv.metrics.entries.WithLabelValues(sv.name).Add(float64(len(entries)))
		return sv.cfg.Intake.Fetched(sv.index, bizType, room.Rows, entries)
	}
	rows := sv.ours(page.Rows)
	sv.metrics.entries.WithLabelValues(sv.name).Add(float64(len(rows)))
	return sv.cfg.Intake.Take(ctx, sv.index, bizType, room, rows, asked)
}

// behind returns the lanes that have something unread that is due, beginning behind the last one that was pulled.
func (sv *server) behind(v view) (lanes []*lane) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	if sv.pulling >= pulls || v.clock == 0 || v.now.Before(sv.restUntil) {
		return nil
	}
	for _, l := range sv.lanes {
		if sv.cfg.Claims && len(l.pulled) > 0 { // ids cost little to read, and a claim of few tables costs less than one of many
			continue
		}
		if l.ready(v.clock) && !v.now.Before(l.rest) {
			lanes = append(lanes, l)
		}
	}
	slices.SortFunc(lanes, func(a, b *lane) int { return cmp.Compare(a.bizType, b.bizType) })
	turn := max(slices.IndexFunc(lanes, func(l *lane) bool { return l.bizType > sv.pulled }), 0)
	return slices.Concat(lanes[turn:], lanes[:turn])
}

// begin takes the spans of a pull out of its lane, of at most n tables. Those of tables that are not looked at any
// more, or that have to be looked at in full first, are forgotten. It reports whether there is anything to read.
func (sv *server) begin(p *pull, n int) bool {
	sv.offering.RLock()
	defer sv.offering.RUnlock()
	sv.mu.Lock()
	defer sv.mu.Unlock()
	var sick []int
	for _, g := range sv.groups {
		if g.failures > 0 && !g.busy {
			sick = append(sick, g.tables...)
		}
	}
	for p.lane.ready(p.until) {
		p.taken = p.lane.take(n, p.until)
		p.spans = filter(p.taken, func(s *span) bool {
			return sv.reads(s.Table, p.lane.bizType) && !sv.owned[s.Table].Guest && !slices.Contains(sick, s.Table)
		})
		if len(p.spans) > 0 {
			p.limit = max(p.room.Rows/len(p.spans), 1)
			sv.pulling++
			sv.pulled = p.lane.bizType
			return true
		}
		p.lane.done(p.taken)
	}
	return false
}

// pullOnce reads a page and hands it over; the room is given back in any case.
func (sv *server) pullOnce(ctx context.Context, p *pull) {
	bounded, cancel := context.WithTimeoutCause(ctx, peekTimeout, errTooLong)
	defer cancel()
	from := make([]store.Place, len(p.spans))
	for i, s := range p.spans {
		from[i] = s.Place
	}
	asked := time.Now()
	read := sv.cfg.Store.Due
	if sv.cfg.Claims {
		read = sv.cfg.Store.DueIDs
	}
	page, err := read(bounded, store.DueQuery{Server: sv.index, Type: p.lane.bizType, From: from, Until: p.until, Limit: p.limit})
	sv.metrics.peeks.WithLabelValues(sv.name).Observe(time.Since(asked).Seconds())
	if err != nil {
		page = store.DuePage{}
		err = fmt.Errorf("read what is due in %d tables from table %d on: %w", len(from), from[0].Table, withCause(bounded, err))
	}
	refused := sv.handOver(context.WithoutCancel(ctx), p.lane.bizType, p.room, page, asked)
	if !errors.Is(err, errTooLong) {
		sv.judge(ctx, err)
	}
	sv.refuse(refused)
	sv.endPull(p, page, err, len(refused) > 0)
}

// ours leaves out what is no longer looked at. The lock is not held while the rows
// are taken, as that may claim them, and Set would wait: what is forgotten in
// between the intake has to refuse.
func (sv *server) ours(rows []store.Row) []store.Row {
	sv.offering.RLock()
	defer sv.offering.RUnlock()
	return slices.DeleteFunc(rows, func(row store.Row) bool { return !sv.reads(row.JobID.Table(), row.Type) })
}

// endPull puts back what of the spans is still unread. A table that could not be read is left alone.
func (sv *server) endPull(p *pull, page store.DuePage, err error, refused bool) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	sv.pulling--
	l := p.lane
	l.done(p.taken)
	failed := sv.unreadable(page.Failed, false)
	switch n := len(p.spans); {
	case err == nil:
		l.width.note(n, len(page.More), len(page.Rows)+len(page.Entries))
	case !errors.Is(err, errTooLong):
	case n > 1:
		l.width = width{tables: n / 2} // together they had too much to walk
	default:
		failed[p.spans[0].Table] = err
	}
	more := make(map[int]store.Place, len(page.More))
	for _, place := range page.More {
		more[place.Table] = place
	}
	for _, s := range p.spans {
		place, full := more[s.Table]
		switch {
		case failed[s.Table] != nil:
		case err != nil:
			l.add(*s)
		case full:
			l.add(span{Place: place, until: s.until})
		case s.until > p.until:
			l.add(span{Place: store.Place{Table: s.Table, Due: p.until + 1}, until: s.until})
		}
	}
	switch due, some := l.next(); {
	case refused:
		l.rest = time.Now().Add(retryEvery)
	case some && due > p.until: // all is read up to now
		l.rest = time.Now().Add(pullEvery)
	}
	for _, t := range slices.Sorted(maps.Keys(failed)) {
		if i := slices.IndexFunc(sv.groups, func(g *group) bool { return slices.Contains(g.tables, t) }); i >= 0 {
			sv.isolate(sv.groups[i], map[int]error{t: failed[t]})
		}
	}
	sv.look()
}
