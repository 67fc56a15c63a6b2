package scanner

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/tocsinhq/tocsin/duequeue"
	"github.com/tocsinhq/tocsin/store"
)

// stream reads what is due already of a job's one biz type, whole, page by page
// from the table whose next row is the oldest, and has the intake start it at
// once: a backlog needs no queue, and no second read. It ends when everything
// due is read, when the intake has no room, or after a while, so that the group
// can be peeked meanwhile; what is left of the pages stands in result.rest.
func (sv *server) stream(ctx context.Context, j *job) result {
	r := result{failed: make(map[int]error), floor: math.MaxInt64, rest: sv.places(j)}
	w := j.width
	for end := time.Now().Add(streamFor); len(r.rest) > 0 && time.Now().Before(end); {
		tables, limit := w.next(len(r.rest))
		room := sv.cfg.Intake.Reserve(ctx, sv.index, j.types[0], tables*limit)
		if room.Rows == 0 {
			r.plain = !room.Later
			break
		}
		from := r.takeOldest(min(tables, room.Rows), j.until)
		page, err := sv.due(ctx, j, from, room, max(room.Rows/len(from), 1))
		if err != nil {
			r.err = err
			return r
		}
		maps.Copy(r.failed, page.Failed)
		r.rest = filter(append(r.rest, page.More...), func(p store.Place) bool { return sv.owns(p.Table) })
		w.note(len(from), len(page.More), len(page.Rows))
		if page.refused != 0 {
			r.refused = page.refused
			break
		}
	}
	r.width = w
	return r.streamed()
}

// places gives where a job's stream goes on: in the tables that are still owned.
func (sv *server) places(j *job) []store.Place {
	rest := j.rest
	if rest == nil {
		for _, t := range j.tables {
			rest = append(rest, store.Place{Table: t, Due: j.from})
		}
	}
	return filter(rest, func(p store.Place) bool { return slices.Contains(j.tables, p.Table) && sv.owns(p.Table) })
}

// backlogged looks which of a job's types hold so much that is due that it is
// better streamed: those of the oldest rows of many tables. It offers nothing.
func (sv *server) backlogged(ctx context.Context, j *job) (types []uint64, err error) {
	for rest := j.types; len(rest) > 0; rest = filter(rest, func(t uint64) bool { return !slices.Contains(types, t) }) {
		page, err := sv.peek(ctx, store.PeekQuery{
			Server: sv.index, Tables: j.tables, Types: rest, Until: j.start, Limit: probeLimit,
		})
		if err != nil || len(page.Full)*probedShare < len(j.tables) {
			return types, err
		}
		for _, e := range page.Entries {
			if !slices.Contains(types, e.Type) {
				types = append(types, e.Type)
			}
		}
	}
	return types, nil
}

// takeOldest takes up to n places that are furthest behind out of the rest. One in
// the newer half of what is left to read waits for those in the older.
func (r *result) takeOldest(n int, until int64) []store.Place {
	slices.SortFunc(r.rest, func(a, b store.Place) int {
		return cmp.Or(cmp.Compare(a.Due, b.Due), cmp.Compare(a.Table, b.Table))
	})
	middle := r.rest[0].Due + (until-r.rest[0].Due)/2
	older := sort.Search(len(r.rest), func(i int) bool { return r.rest[i].Due > middle })
	n = min(n, max(older, 1))
	oldest := r.rest[:n:n]
	r.rest = slices.Clone(r.rest[n:])
	return oldest
}

// streamed says how far the tables are read.
func (r result) streamed() result {
	for _, p := range r.rest {
		r.floor = min(r.floor, p.Due)
	}
	if r.refused != 0 {
		r.floor, r.rest = min(r.floor, r.refused), nil
	}
	r.plain = r.plain || len(r.rest) == 0 // ids come next: nothing is due any more, or nothing wanted in this way
	if r.plain {
		r.rest = nil
	}
	r.behind = true
	return r
}

// taken is a page and what the intake refused of it, as in Intake.Take.
type taken struct {
	store.DuePage
	refused int64
}

// due reads a page and hands it over; the room is given back in any case.
func (sv *server) due(ctx context.Context, j *job, from []store.Place, room duequeue.Room, limit int) (t taken, err error) {
	ctx, cancel := context.WithTimeout(ctx, peekTimeout)
	defer cancel()
	asked := time.Now()
	t.DuePage, err = sv.cfg.Store.Due(ctx, store.DueQuery{
		Server: sv.index, Type: j.types[0], From: from, Until: j.until, Limit: limit,
	})
	sv.metrics.peeks.WithLabelValues(sv.name).Observe(time.Since(asked).Seconds())
	if err != nil {
		t.Rows = nil
		err = fmt.Errorf("read what is due in %d tables from table %d on: %w", len(from), from[0].Table, err)
	}
	t.Rows = sv.ours(t.Rows)
	t.refused = sv.cfg.Intake.Take(context.WithoutCancel(ctx), sv.index, j.types[0], room, t.Rows, asked)
	sv.metrics.entries.WithLabelValues(sv.name).Add(float64(len(t.Rows)))
	if t.refused != 0 {
		sv.metrics.refusals.WithLabelValues(sv.name).Inc()
	}
	return t, err
}

// ours leaves out what is no longer owned. That is not held on to while the rows
// are taken, as that may claim them, and Set would wait: what is forgotten in
// between the intake has to refuse.
func (sv *server) ours(rows []store.Row) []store.Row {
	sv.offering.RLock()
	defer sv.offering.RUnlock()
	return slices.DeleteFunc(rows, func(row store.Row) bool { return !sv.reads(row.JobID.Table(), row.Type) })
}

// width finds how many tables to read in one statement, so that it brings about
// streamPage rows: many where they hold few due rows, one by one where many. The
// more tables a page is of, the nearer to the order of their action times are its
// rows; the fewer, the cheaper it is to settle. So it narrows as a backlog turns
// out to be deep.
type width struct {
	tables int
	rows   int  // read at this width
	short  bool // the last statement found its tables at their end
}

// next gives the tables of the next statement and the rows of each, at most.
func (w *width) next(left int) (tables, limit int) {
	tables = min(w.tables, left)
	return tables, max(streamPage/tables, 1)
}

// note learns from a statement of so many tables, of which some have more: where
// most had more, page after page, the next one reads fewer tables; where most had
// less than their page, twice in a row, more. Once is the end of a deep table.
func (w *width) note(tables, more, rows int) {
	w.rows += rows
	short := more*4 <= tables
	switch {
	case short && w.short:
		*w = width{tables: min(tables*2, maxStreamed)}
	case more*4 >= tables*3 && w.rows >= deepAfter*streamPage:
		*w = width{tables: max(tables/2, 1)}
	default:
		w.short = short
	}
}
