package auditor

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/tablewalk"
	"github.com/tocsinhq/tocsin/internal/wait"
	"github.com/tocsinhq/tocsin/store"
)

// walk is one audit of one server, by one goroutine.
type walk struct {
	*Auditor
	server int
	tally  tally
	tables int          // read without an error
	found  found        // in schedules and runs
	failed map[int]bool // by table
	cost   Cost
	errs   []error

	unscheduled map[int]bool // databases whose schedules are not known
}

func (w *walk) run(ctx context.Context) {
	err := w.schedules(ctx)
	if err == nil {
		err = w.tasks(ctx)
	}
	if err == nil {
		err = w.runs(ctx)
	}
	if err != nil {
		w.errs = append(w.errs, err)
	}
}

// tasks checks the rows of all task tables.
func (w *walk) tasks(ctx context.Context) error {
	way := tablewalk.Walk{
		Server: w.server, Tables: w.cfg.TablesOf(w.server), Measure: w.cfg.Tables.Measure, Progress: w.cfg.Progress,
	}
	return way.Run(ctx, func(tables []int) error {
		before := len(w.failed)
		for _, status := range store.AuditStatuses {
			if err := w.rows(ctx, tables, status); err != nil {
				return err
			}
		}
		w.tables += len(tables) - (len(w.failed) - before)
		return nil
	})
}

// rows checks the rows of one status, page by page.
func (w *walk) rows(ctx context.Context, tables []int, status tocsin.Status) error {
	q := store.AuditQuery{
		Server: w.server, Status: status, From: w.from(status),
		Grace: w.cfg.Grace, Types: w.types, Paused: w.paused, Attempts: w.attempts, Unscheduled: w.unscheduled,
	}
	pages := tablewalk.Over(w.well(tables))
	for step := range pages.Steps() {
		q.Tables, q.After, q.Limit = step.Tables, step.After, rowsAtOnce/tablewalk.Together
		if step.Alone() {
			q.Limit = rowsOfTable
		}
		page, err := w.page(ctx, q)
		if err != nil {
			return err
		}
		for _, full := range page.Full {
			pages.More(full.Table, full.Last)
		}
	}
	return nil
}

// well leaves out the tables that failed before.
func (w *walk) well(tables []int) []int {
	return slices.DeleteFunc(slices.Clone(tables), func(table int) bool { return w.failed[table] })
}

// from is the earliest action_time to be read, 0 for all.
func (w *walk) from(status tocsin.Status) int64 {
	if !status.Final() || w.cfg.Settled < 0 {
		return 0
	}
	return w.cfg.Now(w.server) - w.cfg.Settled.Milliseconds()
}

// page reads one page, and then pauses for as long as that took: an audit takes
// half of a server's time at most.
func (w *walk) page(ctx context.Context, q store.AuditQuery) (store.AuditPage, error) {
	start := time.Now()
	page, err := w.cfg.Tables.Audit(ctx, q)
	took := time.Since(start)
	w.cost.plus(Cost{Statements: page.Statements, Rows: page.Rows, Busy: took})
	for _, group := range page.Groups {
		w.tally.add(group)
	}
	for _, table := range slices.Sorted(maps.Keys(page.Failed)) {
		w.failed[table] = true
		w.errs = append(w.errs, page.Failed[table])
	}
	if err != nil {
		return page, err
	}
	return page, wait.For(ctx, took)
}
