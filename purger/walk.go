package purger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/duequeue"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/tablewalk"
	"github.com/tocsinhq/tocsin/internal/wait"
	"github.com/tocsinhq/tocsin/store"
)

// walk is one purge of one server, by one goroutine.
type walk struct {
	*Purger
	server int
	rounds []round
	names  map[uint64]string // of biz types
	pace   pace
	failed map[int]bool // tables that are left
	result Result
	errs   []error
}

func newWalk(p *Purger, server int, policies []biztype.Policy) *walk {
	names := make(map[uint64]string, len(policies))
	for _, policy := range policies {
		names[policy.Number] = policy.Name
	}
	return &walk{
		Purger: p, server: server, rounds: rounds(policies), names: names,
		pace: pace{p.cfg.Batch, p.cfg.Batch}, failed: map[int]bool{}, result: Result{Types: map[string]Removed{}},
	}
}

func (w *walk) run(ctx context.Context) {
	err := w.tables(ctx)
	if err == nil && w.cfg.Bells != nil && !w.cfg.DryRun {
		err = w.bells(ctx)
	}
	if err == nil && w.cfg.Runs != nil {
		err = w.runs(ctx)
	}
	if err != nil {
		w.fail(err)
	}
}

func (w *walk) fail(err error) {
	name := w.cfg.Servers[w.server]
	w.result.Failed = []string{name}
	w.errs = append(w.errs, fmt.Errorf("purge server %s: %w", name, err))
}

// failTable leaves a table; the others go on.
func (w *walk) failTable(table int, err error) {
	w.failed[table] = true
	w.fail(err)
}

// tables looks through all tables. Its error is the server's as a whole.
func (w *walk) tables(ctx context.Context) error {
	way := tablewalk.Walk{
		Server: w.server, Tables: w.cfg.TablesOf(w.server), Measure: w.cfg.Tables.Measure, Progress: w.cfg.Progress,
	}
	return way.Run(ctx, func(tables []int) error {
		before := len(w.failed)
		for _, r := range w.rounds {
			for _, status := range statuses(w.cfg.Dead) {
				if err := w.finished(ctx, tables, r, status); err != nil {
					return err
				}
			}
		}
		w.result.Tables += len(tables) - (len(w.failed) - before)
		return nil
	})
}

// finished removes rows that are past their retention, page by page.
func (w *walk) finished(ctx context.Context, tables []int, r round, status tocsin.Status) error {
	before := w.cfg.Now(w.server) - r.retention.Milliseconds()
	pages := tablewalk.Over(slices.DeleteFunc(slices.Clone(tables), func(table int) bool { return w.failed[table] }))
	for step := range pages.Steps() {
		page, err := w.cfg.Tables.Peek(ctx, store.PeekQuery{
			Server: w.server, Status: status, Tables: step.Tables, After: step.After, Types: r.types, Until: before - 1, Limit: w.cfg.Batch,
		})
		if err != nil {
			return err
		}
		for _, table := range slices.Sorted(maps.Keys(page.Failed)) {
			if err := page.Failed[table]; !errors.Is(err, store.ErrMisplaced) { // the auditor's to report
				w.failTable(table, err)
			}
		}
		if err := w.take(ctx, status, before, page.Entries); err != nil {
			return err
		}
		for _, last := range page.Full {
			if table := last.JobID.Table(); !w.failed[table] {
				pages.More(table, last)
			}
		}
	}
	return nil
}

// take removes entries, which are grouped by table.
func (w *walk) take(ctx context.Context, status tocsin.Status, before int64, entries []duequeue.Entry) error {
	if w.cfg.DryRun {
		for _, e := range entries {
			w.count(e.Type, in(status, 1))
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
		case err != nil && ofServer(err):
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
func (w *walk) table(ctx context.Context, status tocsin.Status, before int64, rows []duequeue.Entry) error {
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
func (w *walk) batch(ctx context.Context, status tocsin.Status, before int64, rows []duequeue.Entry) error {
	start := time.Now()
	w.result.Batches++
	removed, err := w.cfg.Tables.Purge(ctx, w.server, status, before, rows)
	for typeCode, n := range removed {
		w.count(typeCode, in(status, n))
	}
	if err != nil {
		return err
	}
	return wait.For(ctx, time.Since(start))
}

func (w *walk) count(typeCode uint64, n Removed) {
	if n != (Removed{}) {
		name := w.names[typeCode]
		w.result.Types[name] = w.result.Types[name].plus(n)
	}
}

// bells removes old bells of every database.
func (w *walk) bells(ctx context.Context) error {
	before := w.cfg.Now(w.server) - w.cfg.BellAge.Milliseconds()
	return w.databases(w.cfg.Bells.DatabasesOf(w.server), func(database int) error {
		return w.pages(ctx, 0, func(after uint64) (int, uint64, error) {
			removed, next, err := w.cfg.Bells.PurgeBells(ctx, w.server, database, after, before, w.cfg.Batch)
			w.result.Bells += removed
			return removed, next, err
		})
	}, func(_ int, err error) { w.fail(err) })
}

// runs removes runs of every database that began longer ago than the retention of their biz type. A user that has no right to
// the runs, as before an upgrade, is no failure: finished tasks are removed.
func (w *walk) runs(ctx context.Context) error {
	now := w.cfg.Now(w.server)
	kept := make([]store.Kept, len(w.rounds))
	for i, r := range w.rounds {
		kept[i] = store.Kept{Types: r.types, Since: now - r.retention.Milliseconds()}
	}
	return w.databases(w.cfg.Runs.DatabasesOf(w.server), func(database int) error { return w.runsOf(ctx, database, kept) }, func(database int, err error) {
		if mysql.ClassOf(err) == mysql.Denied {
			w.result.Lacking = append(w.result.Lacking, database)
			return
		}
		w.fail(err)
	})
}

// runsBack is how far back a look at the runs that have expired lately begins. It is more than store.LateRuns: if the last purge was longer
// ago than a day, that shows.
const runsBack = 26 * time.Hour

// runsOf removes the runs of one database. kept has the shortest retention first. Of the runs, only those that are older than the
// longest retention are all removed; each shorter one leaves others among its own, which are many. So only those that a purge of
// yesterday has not seen are read, and all if one of them should have been removed yesterday.
func (w *walk) runsOf(ctx context.Context, database int, kept []store.Kept) error {
	if len(kept) == 0 {
		return nil
	}
	longest, late := len(kept)-1, false
	for i := longest; i >= 0 && !late && !w.cfg.DryRun; i-- {
		after := uint64(0)
		if i < longest {
			var err error
			if after, err = w.cfg.Runs.RunsBefore(ctx, w.server, database, kept[i].Since-runsBack.Milliseconds()); err != nil {
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
func (w *walk) someRuns(ctx context.Context, database int, kept []store.Kept, after uint64, until int64, late *bool) error {
	return w.pages(ctx, after, func(after uint64) (int, uint64, error) {
		page := store.RunsPage{Server: w.server, Database: database, After: after, Limit: w.cfg.Batch, Until: until}
		done, err := w.cfg.Runs.PurgeRuns(ctx, page, kept, w.cfg.DryRun)
		w.result.Runs += done.Removed
		*late = *late || done.Late
		return done.Removed, done.Next, err
	})
}

// databases removes rows of each database. One that can't be purged costs itself only, and is reported to failed.
func (w *walk) databases(databases []int, purge func(database int) error, failed func(database int, err error)) error {
	for _, database := range databases {
		err := purge(database)
		switch {
		case err != nil && ofServer(err):
			return err
		case err != nil:
			failed(database, err)
		}
	}
	return nil
}

// pages removes rows behind an id, page by page, and pauses after each as batch does. page returns how many, and where to go on; 0:
// nowhere.
func (w *walk) pages(ctx context.Context, after uint64, page func(after uint64) (removed int, next uint64, err error)) error {
	for more := true; more; {
		start := time.Now()
		removed, next, err := page(after)
		if err != nil {
			return err
		}
		if removed > 0 && !w.cfg.DryRun {
			w.result.Batches++
		}
		if err := wait.For(ctx, time.Since(start)); err != nil {
			return err
		}
		after, more = next, next > 0
	}
	return nil
}

// ofServer reports whether an error ends the work on the server, not on a table.
func ofServer(err error) bool {
	class := mysql.ClassOf(err)
	return class == mysql.Canceled || class.OfServer()
}
