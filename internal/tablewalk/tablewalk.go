// Package tablewalk is the way through all tables of a cluster, for work that
// belongs to no owner: sweep, purge, audit, redrive.
//
//	every server at once --> its clock --> 64 tables together, a page of each
//	                                           \--> the next page of a table alone
//
// A Walk decides which tables are looked at together, a Cursor how they are read
// page by page. What is read, and what a failure means, is its user's to decide.
package tablewalk

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"

	"github.com/tocsinhq/tocsin/duequeue"
	"github.com/tocsinhq/tocsin/store"
)

// Together is how many tables are looked at together: as many as one statement
// reads.
const Together = 64

// Servers calls work for each of n servers, all at the same time, and returns
// when all calls have returned.
func Servers(n int, work func(server int)) {
	var all sync.WaitGroup
	for server := range n {
		all.Go(func() { work(server) })
	}
	all.Wait()
}

// Join joins errors, those with the same text once: all tables of a database that
// must not be used fail alike.
func Join(errs ...error) error {
	said := make(map[string]bool, len(errs))
	return errors.Join(slices.DeleteFunc(slices.Clone(errs), func(err error) bool {
		if err == nil || said[err.Error()] {
			return true
		}
		said[err.Error()] = true
		return false
	})...)
}

// Walk is the way through the tables of one server.
type Walk struct {
	Server   int
	Tables   []int // of the server, by number
	Measure  func(ctx context.Context, server int) (store.Offset, error)
	Progress func(server, tables int) // told after each chunk of tables; nil: nobody
}

// Run measures the server's clock and calls look for all tables, at most Together
// at once. The first error ends it, also that of ctx.
func (w Walk) Run(ctx context.Context, look func(tables []int) error) error {
	if _, err := w.Measure(ctx, w.Server); err != nil {
		return err
	}
	for tables := range slices.Chunk(w.Tables, Together) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := look(tables); err != nil {
			return err
		}
		if w.Progress != nil {
			w.Progress(w.Server, len(tables))
		}
	}
	return nil
}

// Step is the next page to read: of several tables from their beginning, or of one
// table behind an entry.
type Step struct {
	Tables []int
	After  duequeue.Entry // zero: from the beginning
}

// Alone reports whether the step is a further page of one table.
func (s Step) Alone() bool { return s.After.JobID != 0 }

// Cursor is how far tables are read page by page: together first, then each whose
// page came back full, alone. It is for one goroutine.
type Cursor struct{ todo []Step }

// Over gives a cursor at the beginning of the tables.
func Over(tables []int) *Cursor {
	c := &Cursor{}
	if len(tables) > 0 {
		c.todo = []Step{{Tables: tables}}
	}
	return c
}

// Next takes the next step; false: all pages are read.
func (c *Cursor) Next() (Step, bool) {
	if len(c.todo) == 0 {
		return Step{}, false
	}
	step := c.todo[0]
	c.todo = c.todo[1:]
	return step, true
}

// Steps takes all steps, also those that More adds meanwhile.
func (c *Cursor) Steps() iter.Seq[Step] {
	return func(yield func(Step) bool) {
		for {
			step, ok := c.Next()
			if !ok || !yield(step) {
				return
			}
		}
	}
}

// More says that the page of a table was full: last was its last entry.
func (c *Cursor) More(table int, last duequeue.Entry) {
	c.todo = append(c.todo, Step{Tables: []int{table}, After: last})
}
