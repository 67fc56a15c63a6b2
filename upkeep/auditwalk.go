package upkeep

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/store"
)

// auditWalk is one audit of one server, by one goroutine.
type auditWalk struct {
	walk
	*audit
	found findings
	cost  Cost

	unscheduled map[int]bool // databases whose schedules can't be read, or that have no table for them
}

// run checks the schedules first, since runs are compared with them, and the history last, when the server's clock is known.
func (w *auditWalk) run(ctx context.Context) {
	var err error
	if w.unscheduled, err = w.rest(ctx, "schedule", w.store.AuditSchedules, 0); err == nil {
		err = w.overTables(ctx, func(tables []int) error {
			for _, status := range store.AuditStatuses {
				if err := w.rows(ctx, tables, status); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err == nil {
		_, err = w.rest(ctx, "run", w.store.AuditRuns, w.since())
	}
	if err != nil {
		w.fail(err)
	}
}

// since is the earliest time from which on finished rows and runs are read, 0 for all.
func (w *auditWalk) since() int64 {
	if w.Settled < 0 {
		return 0
	}
	return w.store.Now(w.server) - w.Settled.Milliseconds()
}

// rows checks the rows of one status, page by page.
func (w *auditWalk) rows(ctx context.Context, tables []int, status tocsin.Status) error {
	q := store.AuditQuery{
		Server: w.server, Status: status,
		Grace: w.Grace, Types: w.types, Paused: w.paused, Attempts: w.attempts, Unscheduled: w.unscheduled,
	}
	if status.Final() {
		q.From = w.since()
	}
	pages := store.Over(w.well(tables))
	return paged(ctx, func() (bool, error) {
		step, more := pages.Next()
		if !more {
			return false, nil
		}
		q.Tables, q.After, q.Limit = step.Tables, step.After, rowsAtOnce/store.Together
		if step.Alone() {
			q.Limit = rowsOfTable
		}
		began := time.Now()
		page, err := w.store.Audit(ctx, q)
		w.cost.spent(page.Statements, page.Rows, began)
		for _, group := range page.Groups {
			w.count(group)
		}
		for _, table := range slices.Sorted(maps.Keys(page.Failed)) {
			w.failTable(table, page.Failed[table])
		}
		for _, full := range page.Full {
			pages.More(full.Table, full.Last)
		}
		return true, err
	})
}

// count counts a group of rows under each of its faults.
func (w *auditWalk) count(g store.Audited) {
	for _, fault := range g.Faults.Split() {
		f := w.found.at(place{
			number: g.Table, typeCode: g.Type, fault: fault,
			table: w.store.Layout().Table(g.Table), bizType: w.name(g.Type), word: fault.String(),
		})
		if f.Examples == nil {
			f.Examples = []tocsin.JobID{}
		}
		f.Rows += g.Rows
		f.Examples = append(f.Examples, g.Examples[:min(len(g.Examples), maxExamples-len(f.Examples))]...)
	}
}

// readRest checks a page of a table beside the task tables.
type readRest = func(context.Context, store.AuditRest) (page store.AuditRestPage, there bool, err error)

// rest checks a table that each database has beside its task tables: all of it, or what begins with a time. It returns the
// databases whose table can't be read, or is not there. The error is the server's as a whole.
func (w *auditWalk) rest(ctx context.Context, table string, read readRest, from int64) (without map[int]bool, err error) {
	without = map[int]bool{}
	q := store.AuditRest{Server: w.server, From: from, Limit: rowsAtOnce, Grace: w.Grace, Types: w.types}
	err = w.overDatabases(func(database int) error {
		q.Database = database
		there, err := w.whole(ctx, table, read, q)
		without[database] = !there
		return err
	}, func(database int, err error) {
		without[database] = true
		if mysql.ClassOf(err) == mysql.Denied {
			err = fmt.Errorf("%w: the role audit needs more rights, as `tocsin ddl grants --role audit` prints them", err)
		}
		w.fail(err)
	})
	return without, err
}

// whole checks a table of one database page by page, and reports whether it is there.
func (w *auditWalk) whole(ctx context.Context, table string, read readRest, q store.AuditRest) (there bool, err error) {
	name := w.store.Layout().Database(q.Database) + "." + table
	err = paged(ctx, func() (bool, error) {
		began := time.Now()
		page, exists, err := read(ctx, q)
		there, q.Place = exists, page.Next
		w.cost.spent(1, page.Rows, began)
		for _, g := range page.Groups {
			for _, fault := range g.Faults {
				f := w.found.at(place{number: w.store.Layout().Total(), table: name, bizType: w.name(g.Type), word: fault})
				f.Rows += g.Rows
				f.Names = append(f.Names, g.Examples[:min(len(g.Examples), maxExamples-len(f.Names))]...)
			}
		}
		return page.Next != 0, err
	})
	return there, err
}
