package standin

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin/store"
)

// server looks at the tables on one server. It belongs to the goroutine that runs it.
type server struct {
	*StandIn
	index int
	name  string
	news  chan struct{} // one slot: the duties have changed
	held  []int         // tables passed to the intake
	whole time.Time     // when to start from the beginning again
}

// run looks at intervals until ctx ends, and then gives up the tables.
func (sv *server) run(ctx context.Context) {
	tick := time.NewTicker(sv.cfg.Every)
	defer tick.Stop()
	defer func() { sv.hold(nil) }()
	for {
		select {
		case <-ctx.Done():
			return
		case <-sv.news:
			sv.whole = time.Time{} // some tables may never have been looked at
		case <-tick.C:
		}
		duties := sv.of(sv.index)
		sv.hold(duties)
		if err := sv.look(ctx, duties); err != nil && ctx.Err() == nil {
			sv.metrics.failures.Inc()
			sv.limit.Of(sv.cfg.Logger, "peek "+sv.name).Warn("tables of nodes that lack biz types can't be looked at",
				"error", err, "server", sv.name)
		}
	}
}

// hold tells the intake which types may start, and in which tables.
func (sv *server) hold(duties []Duty) {
	var now []int
	for _, d := range duties {
		if types := sv.numbers(d.Types); len(types) > 0 {
			sv.cfg.Intake.StandIn(d.Tables, d.Owner, types)
			now = append(now, d.Tables...)
		}
	}
	slices.Sort(now)
	ended := slices.DeleteFunc(sv.held, func(table int) bool {
		_, still := slices.BinarySearch(now, table)
		return still
	})
	if len(ended) > 0 {
		sv.cfg.Intake.StandDown(ended)
	}
	sv.held = now
}

// look offers rows that are due soon. If some find no room or can't be read, the next
// look starts from the beginning.
func (sv *server) look(ctx context.Context, duties []Duty) error {
	clock, now := sv.cfg.Tables.Now(sv.index), time.Now()
	if len(duties) == 0 || clock == 0 {
		return nil
	}
	from := clock - commitTime.Milliseconds()
	next := sv.whole
	if !now.Before(sv.whole) {
		from, next = 0, now.Add(wholeEvery)
	}
	sv.whole = time.Time{} // unless all goes well
	rest := false
	for _, d := range duties {
		for tables := range slices.Chunk(d.Tables, tablesAtOnce) {
			more, err := sv.peek(ctx, tables, sv.numbers(d.Types), from, clock+lookAhead.Milliseconds())
			if err != nil {
				return err
			}
			rest = rest || more
		}
	}
	if !rest {
		sv.whole = next
	}
	return nil
}

// peek offers a page of each table, and reports whether there is more. If a
// page is full, each biz type is asked for alone: rows of one that is paused, or
// that hangs, would hide those of the others behind them.
func (sv *server) peek(ctx context.Context, tables []int, types []uint64, from, until int64) (rest bool, err error) {
	q := store.PeekQuery{Server: sv.index, Tables: tables, Types: types, From: from, Until: until, Limit: pageLimit, Sparse: true}
	full, rest, err := sv.offer(ctx, q)
	if err != nil || len(full) == 0 || len(types) == 1 {
		return rest, err
	}
	q.Tables, q.Sparse = full, false
	for _, one := range types {
		q.Types = []uint64{one}
		if _, _, err := sv.offer(ctx, q); err != nil {
			return true, err
		}
	}
	return true, nil
}

// offer offers what one query finds. It returns the tables that have more,
// and whether something is left.
func (sv *server) offer(ctx context.Context, q store.PeekQuery) (full []int, rest bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, peekTimeout)
	defer cancel()
	page, err := sv.cfg.Tables.Peek(ctx, q)
	if err != nil {
		return nil, false, fmt.Errorf("peek %d tables from table %d on: %w", len(q.Tables), q.Tables[0], err)
	}
	for _, last := range page.Full {
		full = append(full, last.JobID.Table())
	}
	refused := sv.cfg.Intake.Offer(sv.index, page.Entries)
	sv.metrics.entries.Add(float64(len(page.Entries)))
	return full, len(full)+len(page.Failed)+len(refused) > 0, nil
}
