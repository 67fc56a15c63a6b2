package store

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"

	"github.com/tocsinhq/tocsin/internal/duequeue"
)

// How work that belongs to no owner, such as a sweep, a purge, an audit or a redrive, goes over all tables of a cluster:
//
//	every server at once --> its clock --> 64 tables together, a page of each
//	                                           \--> the next page of a table alone
//
// Walk decides which tables are looked at together, a Cursor how they are read page by page. The user decides what is read
// and what a failure means.

// Together is how many tables are looked at together: as many as one statement reads.
const Together = maxTables

// EachServer calls work for each of n servers concurrently, and returns when all calls have returned.
func EachServer(n int, work func(server int)) {
	var all sync.WaitGroup
	for server := range n {
		all.Go(func() { work(server) })
	}
	all.Wait()
}

// Join joins errors, each text once: all tables of a database that must not be used fail alike.
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

// Walk calls look for all tables of a server, at most Together at once. The first error ends it, as does the end of ctx.
func Walk(ctx context.Context, tables []int, look func(tables []int) error) error {
	for chunk := range slices.Chunk(tables, Together) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := look(chunk); err != nil {
			return err
		}
	}
	return nil
}

// Step is the next page to read: of several tables from their beginning, or of one
// table after an entry.
type Step struct {
	Tables []int
	After  duequeue.Entry // zero: from the beginning
}

// Alone reports whether the step is a further page of one table.
func (s Step) Alone() bool { return s.After.JobID != 0 }

// Cursor is the position in tables that are read page by page: first Together at
// once, then each table whose page came back full, alone. It is for one goroutine.
type Cursor struct {
	full []Step // further pages of tables, mostly; they come first
	rest []int  // tables that were not read yet
}

// Over returns a cursor at the beginning of the tables.
func Over(tables []int) *Cursor { return &Cursor{rest: tables} }

// Fork returns another cursor at the same place.
func (c *Cursor) Fork() *Cursor { return &Cursor{full: slices.Clone(c.full), rest: c.rest} }

// Next takes the next step; false: all pages are read.
func (c *Cursor) Next() (step Step, ok bool) {
	switch {
	case len(c.full) > 0:
		step, c.full = c.full[0], c.full[1:]
	case len(c.rest) > 0:
		n := min(len(c.rest), Together)
		step.Tables, c.rest = c.rest[:n:n], c.rest[n:]
	default:
		return step, false
	}
	return step, true
}

// Back puts back a step that could not be taken: it is the next one again.
func (c *Cursor) Back(step Step) { c.full = slices.Insert(c.full, 0, step) }

// Left returns how many tables are not read to their end.
func (c *Cursor) Left() int {
	n := len(c.rest)
	for _, step := range c.full {
		n += len(step.Tables)
	}
	return n
}

// Steps yields all steps, including those that More adds meanwhile.
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

// More records that the page of a table was full; last was its last entry.
func (c *Cursor) More(table int, last duequeue.Entry) {
	c.full = append(c.full, Step{Tables: []int{table}, After: last})
}
