package upkeep

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/store"
)

// walk is the walk over the tables of one server, by one goroutine.
type walk struct {
	store    *store.Store
	server   int
	progress func(tables int) // called after each chunk of tables; nil: not called
	tables   int              // that were walked without an error
	failed   map[int]bool     // tables that are left out from now on
	errs     []error
}

func newWalk(s *store.Store, server int, progress func(tables int)) walk {
	return walk{store: s, server: server, progress: progress, failed: map[int]bool{}}
}

// overTables measures the server's clock and calls look for all tables. Its error is the server's as a whole.
func (w *walk) overTables(ctx context.Context, look func(tables []int) error) error {
	if _, err := w.store.Measure(ctx, w.server); err != nil {
		return err
	}
	return store.Walk(ctx, w.store.TablesOf(w.server), func(tables []int) error {
		before := len(w.failed)
		if err := look(tables); err != nil {
			return err
		}
		w.tables += len(tables) - (len(w.failed) - before)
		if w.progress != nil {
			w.progress(len(tables))
		}
		return nil
	})
}

// overDatabases calls work for each database of the server. An error that is not the server's as a whole costs the database
// only, and is given to failed.
func (w *walk) overDatabases(work func(database int) error, failed func(database int, err error)) error {
	for _, database := range w.store.DatabasesOf(w.server) {
		switch err := work(database); {
		case mysql.Unanswered(err):
			return err
		case err != nil:
			failed(database, err)
		}
	}
	return nil
}

// well leaves out the tables that failed before.
func (w *walk) well(tables []int) []int {
	return slices.DeleteFunc(slices.Clone(tables), func(table int) bool { return w.failed[table] })
}

func (w *walk) fail(err error) { w.errs = append(w.errs, err) }

// failTable leaves a table out; the others go on.
func (w *walk) failTable(table int, err error) {
	w.failed[table] = true
	w.fail(err)
}

// failure returns what failed on the server, nil if nothing did. verb names the work.
func (w *walk) failure(verb string) error {
	if err := store.Join(w.errs...); err != nil {
		return fmt.Errorf("%s server %s: %w", verb, w.store.Servers()[w.server], err)
	}
	return nil
}

// paged calls page until there is no more, and pauses after each page for as long as it took.
func paged(ctx context.Context, page func() (more bool, err error)) error {
	for {
		began := time.Now()
		more, err := page()
		if err != nil {
			return err
		}
		if err := pauseAfter(ctx, began); err != nil || !more {
			return err
		}
	}
}

// pauseAfter pauses for as long as a statement took that began at a time: a walk takes half of a server's time at most.
func pauseAfter(ctx context.Context, began time.Time) error { return loop.Wait(ctx, time.Since(began)) }
