package upkeep

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/store"
)

// purgeWalk is one purge of one server, by one goroutine.
type purgeWalk struct {
	walk
	*Purger
	rounds []round
	names  map[uint64]string // of biz types
	pace   pace
	result PurgeResult
}

func newPurgeWalk(p *Purger, server int, policies []biztype.Policy) *purgeWalk {
	names := make(map[uint64]string, len(policies))
	for _, policy := range policies {
		names[policy.Number] = policy.Name
	}
	return &purgeWalk{
		walk: newWalk(p.cfg.Store, server, p.cfg.Progress), Purger: p, rounds: rounds(policies), names: names,
		pace: pace{p.rows, p.rows}, result: PurgeResult{Types: map[string]Removed{}},
	}
}

func (w *purgeWalk) run(ctx context.Context) {
	removed := []tocsin.Status{tocsin.Done, tocsin.Cancelled}
	if w.cfg.Dead {
		removed = append(removed, tocsin.Dead)
	}
	err := w.overTables(ctx, func(tables []int) error {
		for _, r := range w.rounds {
			for _, status := range removed {
				if err := w.finished(ctx, tables, r, status); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err == nil && !w.cfg.DryRun {
		err = w.bells(ctx)
	}
	if err == nil {
		err = w.runs(ctx)
	}
	if err == nil && !w.cfg.DryRun {
		err = w.acts(ctx)
	}
	if err != nil {
		w.fail(err)
	}
}

// finished removes rows that are past their retention, page by page.
func (w *purgeWalk) finished(ctx context.Context, tables []int, r round, status tocsin.Status) error {
	before := w.store.Now(w.server) - r.retention.Milliseconds()
	pages := store.Over(w.well(tables))
	for step := range pages.Steps() {
		page, err := w.store.Peek(ctx, store.PeekQuery{
			Server: w.server, Status: status, Tables: step.Tables, After: step.After, Types: r.types, Until: before - 1, Limit: w.rows,
		})
		if err != nil {
			return err
		}
		for _, table := range slices.Sorted(maps.Keys(page.Failed)) {
			if err := page.Failed[table]; !errors.Is(err, store.ErrMisplaced) { // an audit reports it
				w.failTable(table, err)
			}
		}
		if err := w.take(ctx, status, before, page.Entries); err != nil {
			return err
		}
		for _, full := range page.Full {
			if !w.failed[full.Table] {
				pages.More(full.Table, full.Last)
			}
		}
	}
	return nil
}

// take removes entries, which are grouped by table.
func (w *purgeWalk) take(ctx context.Context, status tocsin.Status, before int64, entries []duequeue.Entry) error {
	if w.cfg.DryRun {
		for _, e := range entries {
			w.count(e.Type, removedIn(status, 1))
		}
		return nil
	}
	for len(entries) > 0 {
		table := entries[0].JobID.Table()
		end := slices.IndexFunc(entries, func(e duequeue.Entry) bool { return e.JobID.Table() != table })
		if end < 0 {
			end = len(entries)
		}
		err := w.table(ctx, status, before, entries[:end])
		switch {
		case mysql.Unanswered(err):
			return err
		case err != nil:
			w.failTable(table, err)
		}
		entries = entries[end:]
	}
	return nil
}

// table removes rows of one table in batches. Rows that stay locked are left,
// and after a few of them the whole table.
func (w *purgeWalk) table(ctx context.Context, status tocsin.Status, before int64, rows []duequeue.Entry) error {
	for locked := 0; len(rows) > 0; {
		n := w.pace.of(len(rows))
		err := w.batch(ctx, status, before, rows[:n])
		if err == nil {
			w.pace.went()
			rows = rows[n:]
			continue
		}
		if mysql.ClassOf(err) != mysql.Contended {
			return err
		}
		w.result.Timeouts++
		if w.pace.shrink(n) {
			continue // the same rows, fewer at once
		}
		w.result.Locked++
		if locked++; locked == lockedAtMost {
			return err
		}
		rows = rows[1:]
	}
	return nil
}

// batch removes rows in one transaction, and then pauses for as long as that
// took: a purge takes half of a server's time at most. Who waited for a lock has
// paused already.
func (w *purgeWalk) batch(ctx context.Context, status tocsin.Status, before int64, rows []duequeue.Entry) error {
	start := time.Now()
	w.result.Batches++
	removed, err := w.store.Purge(ctx, w.server, status, before, rows)
	for typeCode, n := range removed {
		w.count(typeCode, removedIn(status, n))
	}
	if err != nil {
		return err
	}
	return pauseAfter(ctx, start)
}

func (w *purgeWalk) count(typeCode uint64, n Removed) {
	if n != (Removed{}) {
		name := w.names[typeCode]
		w.result.Types[name] = w.result.Types[name].plus(n)
	}
}

// bells removes old bells of every database.
func (w *purgeWalk) bells(ctx context.Context) error {
	before := w.store.Now(w.server) - bellAge.Milliseconds()
	return w.overDatabases(func(database int) error {
		return w.pages(ctx, 0, func(after uint64) (int, uint64, error) {
			removed, next, err := w.store.PurgeBells(ctx, w.server, database, after, before, w.rows)
			w.result.Bells += removed
			return removed, next, err
		})
	}, func(_ int, err error) { w.fail(err) })
}

// runs removes runs of every database that began longer ago than the retention of their biz type. A user that has no right to
// the runs, as before an upgrade, is no failure: finished tasks are removed.
func (w *purgeWalk) runs(ctx context.Context) error {
	now := w.store.Now(w.server)
	kept := make([]store.Kept, len(w.rounds))
	for i, r := range w.rounds {
		kept[i] = store.Kept{Types: r.types, Since: now - r.retention.Milliseconds()}
	}
	return w.overDatabases(func(database int) error { return w.runsOf(ctx, database, kept) }, w.lacks)
}

// lacks notes that a database's runs or acts could not be removed.
func (w *purgeWalk) lacks(database int, err error) {
	switch {
	case mysql.ClassOf(err) != mysql.Denied:
		w.fail(err)
	case !slices.Contains(w.result.Lacking, database):
		w.result.Lacking = append(w.result.Lacking, database)
	}
}

// acts removes acts of every database that are older than actsKept.
func (w *purgeWalk) acts(ctx context.Context) error {
	before := time.UnixMilli(w.store.Now(w.server)).Add(-actsKept)
	return w.overDatabases(func(database int) error {
		return paged(ctx, func() (bool, error) {
			removed, err := w.store.PurgeActs(ctx, database, before, w.rows)
			w.result.Acts += removed
			if removed > 0 {
				w.result.Batches++
			}
			return removed == w.rows, err
		})
	}, w.lacks)
}

// runsBack is how far back a look at the runs that have expired lately begins. It is more than store.LateRuns: if the last purge was longer
// ago than a day, that shows.
const runsBack = 26 * time.Hour

// runsOf removes the runs of one database. kept has the shortest retention first. Of the runs, only those that are older than the
// longest retention are all removed; each shorter one leaves others among its own, which are many. So only those that a purge of
// yesterday has not seen are read, and all if one of them should have been removed yesterday.
func (w *purgeWalk) runsOf(ctx context.Context, database int, kept []store.Kept) error {
	if len(kept) == 0 {
		return nil
	}
	longest, late := len(kept)-1, false
	for i := longest; i >= 0 && !late && !w.cfg.DryRun; i-- {
		after := uint64(0)
		if i < longest {
			var err error
			if after, err = w.store.RunsBefore(ctx, w.server, database, kept[i].Since-runsBack.Milliseconds()); err != nil {
				return err
			}
		}
		if err := w.someRuns(ctx, database, kept, after, kept[i].Since, &late); err != nil {
			return err
		}
	}
	if w.cfg.DryRun || late && longest > 0 {
		return w.someRuns(ctx, database, kept, 0, kept[0].Since, &late)
	}
	return nil
}

// someRuns removes the runs behind a run_id up to those that began at a time, and notes whether they are late.
func (w *purgeWalk) someRuns(ctx context.Context, database int, kept []store.Kept, after uint64, until int64, late *bool) error {
	return w.pages(ctx, after, func(after uint64) (int, uint64, error) {
		page := store.RunsPage{Server: w.server, Database: database, After: after, Limit: w.rows, Until: until}
		done, err := w.store.PurgeRuns(ctx, page, kept, w.cfg.DryRun)
		w.result.Runs += done.Removed
		*late = *late || done.Late
		return done.Removed, done.Next, err
	})
}

// pages removes rows behind an id, page by page, and pauses after each as batch does. page returns how many, and where to go on; 0:
// nowhere.
func (w *purgeWalk) pages(ctx context.Context, after uint64, page func(after uint64) (removed int, next uint64, err error)) error {
	return paged(ctx, func() (bool, error) {
		removed, next, err := page(after)
		if err == nil && removed > 0 && !w.cfg.DryRun {
			w.result.Batches++
		}
		after = next
		return next > 0, err
	})
}

// round is one look through every table: types that are kept for as long.
type round struct {
	retention time.Duration
	types     []uint64
}

// rounds groups the biz types, so that each table is looked through as few times
// as their retentions allow.
func rounds(policies []biztype.Policy) []round {
	groups := make(map[time.Duration]*round)
	for _, p := range policies {
		keep := p.WithDefaults().Retention.D()
		if groups[keep] == nil {
			groups[keep] = &round{retention: keep}
		}
		groups[keep].types = append(groups[keep].types, p.Number)
	}
	var all []round
	for _, r := range groups {
		slices.Sort(r.types)
		all = append(all, *r)
	}
	slices.SortFunc(all, func(a, b round) int { return cmp.Compare(a.retention, b.retention) })
	return all
}

// pace says how many rows a batch has: a quarter after a lock time-out, so that
// a single locked row is found within five, and twice as many after a batch that
// went well.
type pace struct{ size, most int }

func (p *pace) of(rows int) int { return min(p.size, rows) }

func (p *pace) went() { p.size = min(2*p.size, p.most) }

// shrink answers a time-out of a batch of n rows. False: there is no smaller one.
func (p *pace) shrink(n int) bool {
	p.size = max(n/4, 1)
	return n > 1
}
