package auditor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/wait"
	"github.com/tocsinhq/tocsin/store"
)

// rest is a table beside the task tables.
type rest struct {
	name string
	read func(ctx context.Context, q store.AuditRest) (store.AuditRestPage, bool, error)
}

// schedules checks all schedules, and notes the databases whose schedules can't be read, or that have no table for them. It comes
// before the tasks, which are compared with them. The error is the server's as a whole.
func (w *walk) schedules(ctx context.Context) error {
	return w.eachDatabase(ctx, rest{"schedule", w.cfg.Tables.AuditSchedules}, store.AuditRest{})
}

// runs checks the runs of the history that began within Config.Settled. It comes after the tasks, since the server's clock is known.
func (w *walk) runs(ctx context.Context) error {
	q := store.AuditRest{}
	if w.cfg.Settled >= 0 {
		q.From = w.cfg.Now(w.server) - w.cfg.Settled.Milliseconds()
	}
	return w.eachDatabase(ctx, rest{"run", w.cfg.Tables.AuditRuns}, q)
}

func (w *walk) eachDatabase(ctx context.Context, of rest, q store.AuditRest) error {
	q.Server, q.Limit, q.Grace, q.Types = w.server, rowsAtOnce, w.cfg.Grace, w.types
	var databases []int
	for _, table := range w.cfg.TablesOf(w.server) {
		databases = append(databases, w.cfg.Layout.DatabaseOf(table))
	}
	slices.Sort(databases)
	for _, q.Database = range slices.Compact(databases) {
		there, err := w.whole(ctx, of, q)
		class := mysql.ClassOf(err)
		switch {
		case err != nil && (class == mysql.Canceled || class.OfServer()):
			return err
		case class == mysql.Denied:
			err = fmt.Errorf("%w: the role audit needs more rights, as `tocsin ddl grants --role audit` prints them", err)
		}
		if err != nil {
			w.errs = append(w.errs, err)
		}
		if of.name == "schedule" && (err != nil || !there) {
			w.unscheduled[q.Database] = true
		}
	}
	return nil
}

// whole reads one table page by page, and pauses after each for as long as it took.
func (w *walk) whole(ctx context.Context, of rest, q store.AuditRest) (there bool, err error) {
	for more := true; more; {
		start := time.Now()
		page, found, err := of.read(ctx, q)
		took := time.Since(start)
		w.cost.plus(Cost{Statements: 1, Rows: page.Rows, Busy: took})
		if err != nil {
			return false, err
		}
		for _, g := range page.Groups {
			w.found.add(w.cfg.Layout.Database(q.Database)+"."+of.name, w.name(g.Type), g)
		}
		if err := wait.For(ctx, took); err != nil {
			return found, err
		}
		there, more, q.Place = found, page.Next != 0, page.Next
	}
	return there, nil
}

// found are findings in schedules and runs.
type found []Finding

// add counts a group of rows under each of its faults.
func (f *found) add(table, bizType string, g store.AuditedRest) {
	for _, fault := range g.Faults {
		i := slices.IndexFunc(*f, func(old Finding) bool { return old.Table == table && old.Type == bizType && old.Fault == fault })
		if i < 0 {
			i = len(*f)
			*f = append(*f, Finding{Table: table, Type: bizType, Fault: fault})
		}
		at := &(*f)[i]
		at.Rows += g.Rows
		at.Names = append(at.Names, g.Examples[:min(len(g.Examples), maxExamples-len(at.Names))]...)
	}
}
