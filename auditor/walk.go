package auditor

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/wait"
	"github.com/tocsinhq/tocsin/store"
)

// walk is one audit of one server, by one goroutine.
type walk struct {
	*Auditor
	server int
	tally  tally
	tables int          // read without an error
	failed map[int]bool // by table
	cost   Cost
	errs   []error
}

func (w *walk) run(ctx context.Context) {
	if _, err := w.cfg.Tables.Measure(ctx, w.server); err != nil {
		w.errs = append(w.errs, err)
		return
	}
	for tables := range slices.Chunk(w.cfg.TablesOf(w.server), tablesAtOnce) {
		before := len(w.failed)
		for _, status := range store.AuditStatuses {
			if err := w.rows(ctx, tables, status); err != nil {
				w.errs = append(w.errs, err)
				return
			}
		}
		w.tables += len(tables) - (len(w.failed) - before)
		w.cfg.Progress(w.server, len(tables))
	}
}

// rows checks the rows of one status: a page of each table together first, then
// each table whose page came back full on its own.
func (w *walk) rows(ctx context.Context, tables []int, status tocsin.Status) error {
	first := store.AuditQuery{
		Server: w.server, Tables: w.well(tables), Status: status, From: w.from(status), Limit: rowsAtOnce / tablesAtOnce,
		Grace: w.cfg.Grace, Types: w.types, Paused: w.paused, Attempts: w.attempts,
	}
	for todo := []store.AuditQuery{first}; len(todo) > 0; {
		q := todo[0]
		todo = todo[1:]
		page, err := w.page(ctx, q)
		if err != nil {
			return err
		}
		for _, full := range page.Full {
			q.Tables, q.After, q.Limit = []int{full.Table}, full.Last, rowsOfTable
			todo = append(todo, q)
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
