package operator

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/store"
)

// MaxFound is the largest number of tasks that Find returns.
const MaxFound = 10_000

// Query names tasks of all tables.
type Query struct {
	Status  tocsin.Status
	BizType string            // "": all
	Sees    func(string) bool // the biz types that may be found, by name; nil: all, also those without a name
	After   *Place            // where a former page ended; nil: from the first task on
	Limit   int               // 1 to MaxFound

	From, To  time.Time // of their action times, both inclusive; zero: any
	NoPayload bool      // read no payloads and headers: they are empty, and so is PayloadVersion
}

// Place is a task's place in the order of Find.
type Place struct {
	ActionTime time.Time // in whole milliseconds
	Type       uint64    // number of the biz type
	JobID      tocsin.JobID
}

// Page is some of the tasks that a Query names.
type Page struct {
	Tasks []tocsin.Info
	Next  *Place // where the page ended; nil: there is no more
}

// Find returns tasks in a status: pending and claimed ones by action time, the earliest first; done, cancelled and dead
// ones from the latest on. It reads one entry of an index of each table, and on each server a few for each of Limit tasks, then the rows that it returns.
// With BizType or Sees it also passes over the entries of other biz types: of millions, From and To name fewer. A server ends a
// statement that takes longer than 5 s. A task that leaves the status meanwhile is left out. If not all servers answer, it returns
// what it found beside an error, a Partial.
func (o *Operator) Find(ctx context.Context, q Query) ([]tocsin.Info, error) {
	page, err := o.FindPage(ctx, q)
	return page.Tasks, err
}

// FindPage is Find, and also returns where the next page begins. A page may be short, or empty, though more follow: tasks
// leave the status meanwhile. A task that enters it, or gets another time, may be in no page or in two.
func (o *Operator) FindPage(ctx context.Context, q Query) (Page, error) {
	if q.Limit < 1 || q.Limit > MaxFound {
		return Page{}, client.Refuse(tocsin.ErrInvalid, "limit %d: use 1 to %d", q.Limit, MaxFound)
	}
	if err := client.CheckSpan("from", q.From, "to", q.To); err != nil {
		return Page{}, err
	}
	policies, only, err := o.types(ctx, q.BizType, q.Sees)
	if err != nil {
		return Page{}, err
	}
	of := q.entries(only)
	entries, errs := o.entries(ctx, of)
	page := Page{}
	if len(entries) == q.Limit {
		last := entries[len(entries)-1]
		page.Next = &Place{time.UnixMilli(last.Due).UTC(), last.Type, last.JobID}
	}
	rows := o.rows(ctx, q, entries, errs)
	slices.SortFunc(rows, func(a, b store.Row) int { return of.Compare(entryOf(a), entryOf(b)) })
	for _, row := range rows {
		page.Tasks = append(page.Tasks, o.info(policies, row))
	}
	return page, store.Lacking(o.tables.Servers(), errs)
}

// entries names the entries of the tasks, of some biz types by number; nil: all.
func (q *Query) entries(types []uint64) store.FindQuery {
	of := store.FindQuery{Status: q.Status, Latest: q.Status.Final(), After: q.After.entry(), Limit: q.Limit, Types: types, Until: math.MaxInt64}
	if !q.From.IsZero() {
		of.From = q.From.Add(time.Millisecond - 1).UnixMilli() // a part of a millisecond before From is outside
	}
	if !q.To.IsZero() {
		of.Until = q.To.UnixMilli()
	}
	return of
}

// entry is a place as the store knows it; nil for none.
func (p *Place) entry() *duequeue.Entry {
	if p == nil {
		return nil
	}
	return &duequeue.Entry{JobID: p.JobID, Type: p.Type, Due: p.ActionTime.UnixMilli()}
}

func entryOf(row store.Row) duequeue.Entry {
	return duequeue.Entry{JobID: row.JobID, Type: row.Type, Due: row.ActionTime.UnixMilli()}
}

// entries asks all servers at once, and returns the first entries of all of them, and what went wrong by server.
func (o *Operator) entries(ctx context.Context, q store.FindQuery) ([]duequeue.Entry, []error) {
	found := make([][]duequeue.Entry, len(o.tables.Servers()))
	errs := o.tables.Everywhere(ctx, func(server int) (err error) {
		one := q
		one.Server = server
		found[server], err = o.tables.Find(ctx, one)
		return err
	})
	all := slices.Concat(found...)
	slices.SortFunc(all, q.Compare)
	return all[:min(len(all), q.Limit)], errs
}

// lookAtOnce is how many rows are read at once.
const lookAtOnce = 500

// rows reads the rows of entries that are still in the status, from all servers at once. It adds what goes wrong to errs.
func (o *Operator) rows(ctx context.Context, q Query, entries []duequeue.Entry, errs []error) []store.Row {
	look := o.tables.Look
	if q.NoPayload {
		look = o.tables.LookBare
	}
	ids := make([][]tocsin.JobID, len(errs))
	for _, e := range entries {
		if server := o.tables.ServerOf(e.JobID.Table()); server >= 0 {
			ids[server] = append(ids[server], e.JobID)
		}
	}
	found := make([][]store.Row, len(errs))
	store.EachServer(len(errs), func(server int) {
		for chunk := range slices.Chunk(ids[server], lookAtOnce) {
			rows, err := look(ctx, server, chunk)
			if err != nil {
				errs[server] = errors.Join(errs[server], err)
				return
			}
			found[server] = append(found[server], rows...)
		}
	})
	return slices.DeleteFunc(slices.Concat(found...), func(row store.Row) bool { return row.Status != q.Status })
}

// info is a row as users see it.
func (o *Operator) info(policies []biztype.Policy, row store.Row) tocsin.Info {
	_, row.FireTime = runOfKey(row.DedupKey)
	row.BizType, row.Table = biztype.NameOf(policies, row.Type), o.tables.Layout().Table(row.JobID.Table())
	return row.Info
}
