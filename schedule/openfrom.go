package schedule

import (
	"context"
	"slices"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/runkey"
	"github.com/tocsinhq/tocsin/store"
)

// pageSettled is how many runs are read at once. A schedule's row notes how far they are settled after as many.
const pageSettled = 5000

// openFrom returns a key below which all runs of a schedule are settled. A change looks for pending runs from there on: a
// schedule that fires each second may have millions of settled runs that are not purged, and reading them with the row
// locked would take seconds. Keys only grow, and a settled run stays settled unless it is redriven; a judge drops such a
// run later. After an error, openFrom returns the first key.
func (m *Maker) openFrom(ctx context.Context, id tocsin.JobID) string {
	from, _ := runkey.Range(uint64(id))
	row, found, err := m.tables.Judged(ctx, id)
	if err != nil || !found {
		return from
	}
	by := store.RunRange{
		Table: id.Table(), BizID: row.BizID, Type: row.BizType, From: max(from, row.OpenFrom),
		Until: runkey.First(uint64(id), runkey.MaxRevision+1), Limit: pageSettled,
	}
	for far := false; ; far = true {
		sets, err := m.tables.RunsFrom(ctx, by)
		if err != nil {
			return by.From
		}
		runs := sets[0]
		open := slices.IndexFunc(runs, func(r store.RunRow) bool { return !r.Status.Final() })
		switch {
		case open >= 0:
			by.From = runs[open].Key
		case len(runs) > 0:
			by.From = runs[len(runs)-1].Key + "\x00"
		}
		if open < 0 && len(runs) == pageSettled {
			continue
		}
		if far {
			_ = m.tables.OpenFrom(ctx, id, by.From) // the next change reads them again
		}
		return by.From
	}
}
