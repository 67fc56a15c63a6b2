package scanner

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin/duequeue"
	"github.com/tocsinhq/tocsin/store"
)

// pull is one page of whole rows of a lane, decided on: its oldest unread ones, which the intake starts at once. So a backlog
// needs no queue, and no second read.
type pull struct {
	bizType uint64
	lane    *lane
	room    duequeue.Room
	spans   []*span // of these tables
	until   int64   // the server's clock
	limit   int     // rows of a table
}

// nextPull decides which lane to read on. It returns nil if no lane that has something unread has demand, or if as many
// pulls are under way as may be. Lanes take turns.
func (sv *server) nextPull(v view) *pull {
	for _, t := range sv.behind(v) {
		sv.mu.Lock()
		l := sv.lane(t)
		tables, limit := l.width.next(max(len(l.oldest), 1))
		sv.mu.Unlock()
		room := sv.cfg.Intake.Reserve(sv.index, t, tables*limit)
		if room.Rows == 0 {
			sv.restLane(l, room.Wait)
			continue
		}
		if spans := sv.takeSpans(t, min(tables, room.Rows), v.clock); len(spans) > 0 {
			return &pull{bizType: t, lane: l, room: room, spans: spans, until: v.clock, limit: max(room.Rows/len(spans), 1)}
		}
		sv.cfg.Intake.Take(context.Background(), sv.index, t, room, nil, v.now)
	}
	return nil
}

// behind returns the biz types that have something unread that is due, beginning behind the last one that was pulled.
func (sv *server) behind(v view) []uint64 {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	if sv.pulling >= pulls || v.clock == 0 || v.now.Before(sv.restUntil) {
		return nil
	}
	var types []uint64
	for t, l := range sv.lanes {
		if l.ready(v.clock) && !v.now.Before(l.rest) {
			types = append(types, t)
		}
	}
	slices.Sort(types)
	turn, _ := slices.BinarySearch(types, sv.pulled+1)
	return slices.Concat(types[turn:], types[:turn])
}

// restLane lets no pull of a lane begin for a while; 0: the intake wakes the scanner when the lane has demand.
func (sv *server) restLane(l *lane, wait time.Duration) {
	if wait > 0 {
		sv.mu.Lock()
		l.rest = time.Now().Add(wait)
		sv.mu.Unlock()
	}
}

// takeSpans takes the spans of the next page out of a lane, and begins its pull. Spans of tables that are not looked at any
// more, or that have to be looked at in full first, are forgotten.
func (sv *server) takeSpans(bizType uint64, n int, now int64) (spans []*span) {
	sv.offering.RLock()
	defer sv.offering.RUnlock()
	sv.mu.Lock()
	defer sv.mu.Unlock()
	var sick []int
	for _, g := range sv.groups {
		if g.failures > 0 {
			sick = append(sick, g.tables...)
		}
	}
	l := sv.lane(bizType)
	for len(spans) == 0 && l.ready(now) {
		for _, s := range l.take(n, now) {
			if sv.reads(s.Table, bizType) && !sv.owned[s.Table].Guest && !slices.Contains(sick, s.Table) {
				spans = append(spans, s)
			} else {
				l.done([]*span{s})
			}
		}
	}
	if len(spans) > 0 {
		sv.pulling++
		sv.pulled = bizType
	}
	return spans
}

// pullOnce reads a page and hands it over; the room is given back in any case.
func (sv *server) pullOnce(ctx context.Context, p *pull) {
	bounded, cancel := context.WithTimeout(ctx, peekTimeout)
	defer cancel()
	from := make([]store.Place, len(p.spans))
	for i, s := range p.spans {
		from[i] = s.Place
	}
	asked := time.Now()
	page, err := sv.cfg.Store.Due(bounded, store.DueQuery{Server: sv.index, Type: p.bizType, From: from, Until: p.until, Limit: p.limit})
	sv.metrics.peeks.WithLabelValues(sv.name).Observe(time.Since(asked).Seconds())
	if err != nil {
		page = store.DuePage{}
		err = fmt.Errorf("read what is due in %d tables from table %d on: %w", len(from), from[0].Table, err)
	}
	rows := sv.ours(page.Rows)
	refused := sv.cfg.Intake.Take(context.WithoutCancel(ctx), sv.index, p.bizType, p.room, rows, asked)
	sv.metrics.entries.WithLabelValues(sv.name).Add(float64(len(rows)))
	sv.judge(ctx, err)
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
	p.lane.done(p.spans)
	if refused {
		p.lane.rest = time.Now().Add(retryEvery)
	}
	more := make(map[int]store.Place, len(page.More))
	for _, place := range page.More {
		more[place.Table] = place
	}
	failed := sv.unreadable(page.Failed, false)
	for _, s := range p.spans {
		place, full := more[s.Table]
		switch {
		case err != nil:
			p.lane.add(*s)
		case failed[s.Table] != nil:
		case full:
			p.lane.add(span{Place: place, until: s.until})
		case s.until > p.until:
			p.lane.add(span{Place: store.Place{Table: s.Table, Due: p.until + 1}, until: s.until})
		}
	}
	if err == nil {
		p.lane.width.note(len(p.spans), len(page.More), len(page.Rows))
	}
	for _, t := range slices.Sorted(maps.Keys(failed)) {
		if i := slices.IndexFunc(sv.groups, func(g *group) bool { return slices.Contains(g.tables, t) }); i >= 0 {
			sv.isolate(sv.groups[i], map[int]error{t: failed[t]})
		}
	}
	sv.look()
}
