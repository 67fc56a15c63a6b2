package operator

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/duequeue"
	"github.com/tocsinhq/tocsin/internal/tablewalk"
	"github.com/tocsinhq/tocsin/store"
)

// MaxFound is the most tasks that Find returns.
const MaxFound = 10_000

// Query names tasks of all tables.
type Query struct {
	Status  tocsin.Status
	BizType string // "": all
	Limit   int    // 1 to MaxFound
}

// Find returns tasks in a status: pending and claimed ones by action time, the earliest first; done, cancelled and dead ones
// from the latest on. It reads an index of each table, then the rows that it returns. A task that leaves the status
// meanwhile is left out. The tasks that were found stand beside an error.
func (o *Operator) Find(ctx context.Context, q Query) ([]tocsin.Info, error) {
	if q.Limit < 1 || q.Limit > MaxFound {
		return nil, refuse(tocsin.ErrInvalid, "limit %d: use 1 to %d", q.Limit, MaxFound)
	}
	policies, err := biztype.Load(ctx, o.cfg)
	if err != nil {
		return nil, err
	}
	only, err := numbers(policies, q.BizType)
	if err != nil {
		return nil, err
	}
	of := store.FindQuery{Status: q.Status, Latest: q.Status.Final(), Limit: q.Limit, Types: only}
	found := make([][]tocsin.Info, len(o.tables.Servers()))
	errs := make([]error, len(found))
	tablewalk.Servers(len(found), func(server int) {
		one := of
		one.Server = server
		found[server], errs[server] = o.findOn(ctx, policies, one)
	})
	infos := slices.Concat(found...)
	slices.SortFunc(infos, func(a, b tocsin.Info) int {
		if of.Latest {
			a, b = b, a
		}
		return cmp.Or(a.ActionTime.Compare(b.ActionTime), cmp.Compare(a.JobID, b.JobID))
	})
	return infos[:min(len(infos), q.Limit)], errors.Join(errs...)
}

// lookAtOnce is how many rows are read at once.
const lookAtOnce = 500

// findOn gives the tasks of one server that are still in the status.
func (o *Operator) findOn(ctx context.Context, policies []biztype.Policy, q store.FindQuery) ([]tocsin.Info, error) {
	entries, failed := o.tables.Find(ctx, q)
	var infos []tocsin.Info
	for chunk := range slices.Chunk(entries, lookAtOnce) {
		rows, err := o.tables.Look(ctx, q.Server, jobIDs(chunk))
		if err != nil {
			return infos, errors.Join(failed, err)
		}
		for _, row := range rows {
			if row.Status == q.Status {
				infos = append(infos, o.info(policies, row))
			}
		}
	}
	return infos, failed
}

// info is a row as users see it.
func (o *Operator) info(policies []biztype.Policy, row store.Row) tocsin.Info {
	row.BizType, row.Table = biztype.NameOf(policies, row.Type), o.tables.Layout().Table(row.JobID.Table())
	return row.Info
}

func jobIDs(entries []duequeue.Entry) []tocsin.JobID {
	ids := make([]tocsin.JobID, len(entries))
	for i, e := range entries {
		ids[i] = e.JobID
	}
	return ids
}
