package purger

import (
	"context"
	"time"

	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/wait"
	"github.com/tocsinhq/tocsin/store"
)

// runs removes runs of every database that began longer ago than the retention of their biz type. A database that can't be
// purged costs itself only. A user that has no right to its runs, as before an upgrade, is no failure: finished tasks are removed.
func (w *walk) runs(ctx context.Context) error {
	now := w.cfg.Now(w.server)
	kept := make([]store.Kept, len(w.rounds))
	for i, r := range w.rounds {
		kept[i] = store.Kept{Types: r.types, Since: now - r.retention.Milliseconds()}
	}
	for _, database := range w.cfg.Runs.DatabasesOf(w.server) {
		err := w.runsOf(ctx, database, kept)
		switch {
		case err != nil && ofServer(err):
			return err
		case mysql.ClassOf(err) == mysql.Denied:
			w.result.Lacking = append(w.result.Lacking, database)
		case err != nil:
			w.fail(err)
		}
	}
	return nil
}

// runsOf goes through the runs of one database from the first on, until it meets none that is old enough.
func (w *walk) runsOf(ctx context.Context, database int, kept []store.Kept) error {
	for after, more := uint64(0), true; more; {
		start := time.Now()
		removed, next, err := w.cfg.Runs.PurgeRuns(ctx, w.server, database, kept, after, w.cfg.Batch, w.cfg.DryRun)
		if err != nil {
			return err
		}
		w.result.Runs += removed
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
