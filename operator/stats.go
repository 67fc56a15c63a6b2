package operator

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/store"
)

// Stats counts the tasks of one biz type in all tables.
type Stats struct {
	BizType   string `json:"biz_type"` // "#7" where no policy has number 7
	Pending   int    `json:"pending"`
	Claimed   int    `json:"claimed"`
	Done      int    `json:"done"` // purged ones are not counted
	Cancelled int    `json:"cancelled"`
	Dead      int    `json:"dead"`
	// Overdue is how long ago the earliest pending task was due, by its server's clock, in seconds; 0: none is due.
	Overdue float64 `json:"overdue_seconds"`
}

// Stats counts all tasks by biz type and status, in the order of the names; biz types without tasks are included. It
// reads a whole index of each table, which takes seconds for millions of rows. Nodes export most of these counts as
// metrics, at less cost. progress is that of RedriveAll. If some tables can't be counted, it returns the counts it has beside
// an error, a Partial; none if no server could be read in full and nothing was found.
func (o *Operator) Stats(ctx context.Context, progress func(tables int)) ([]Stats, error) {
	return o.stats(ctx, progress, o.tables.Counts)
}

// StatsUpTo is Stats of some statuses, which reads about 10,000 rows of each at most, or 20 of each table. If there may be more
// tasks in a status than it has counted, of whatever biz type, the status is in more.
func (o *Operator) StatsUpTo(ctx context.Context, statuses ...tocsin.Status) (all []Stats, more []tocsin.Status, err error) {
	most := max(countedUpTo/o.tables.Layout().Total(), countedOfTable)
	var mu sync.Mutex
	all, err = o.stats(ctx, nil, func(ctx context.Context, server int, tables []int) ([]store.Count, error) {
		counts, full, err := o.tables.CountsUpTo(ctx, server, tables, most, statuses...)
		mu.Lock()
		defer mu.Unlock()
		more = append(more, full...)
		return counts, err
	})
	slices.Sort(more)
	return all, slices.Compact(more), err
}

// What StatsUpTo counts.
const (
	countedUpTo    = 10_000
	countedOfTable = 20
)

func (o *Operator) stats(ctx context.Context, progress func(tables int), count func(ctx context.Context, server int, tables []int) ([]store.Count, error)) ([]Stats, error) {
	policies, _, err := o.policies(ctx)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	sums := map[uint64]*Stats{} // by the number of the biz type; guarded by mu
	errs := o.tables.Everywhere(ctx, func(server int) error {
		var failed []error
		err := store.Walk(ctx, o.tables.TablesOf(server), func(tables []int) error {
			counts, err := count(ctx, server, tables)
			failed = append(failed, err)
			mu.Lock()
			for _, c := range counts {
				into(sums, c.Type).add(c, o.tables.Now(server))
			}
			mu.Unlock()
			if progress != nil {
				progress(len(tables))
			}
			if mysql.Unanswered(err) {
				return err
			}
			return nil
		})
		return store.Join(append(failed, err)...)
	})
	failed := store.Lacking(o.tables.Servers(), errs)
	if partial := (*Partial)(nil); errors.As(failed, &partial) && partial.All && len(sums) == 0 {
		return nil, failed
	}
	for _, p := range policies {
		into(sums, p.Number)
	}
	all := make([]Stats, 0, len(sums))
	for number, s := range sums {
		s.BizType = biztype.NameOf(policies, number)
		all = append(all, *s)
	}
	slices.SortFunc(all, func(a, b Stats) int { return cmp.Compare(a.BizType, b.BizType) })
	return all, failed
}

func into(sums map[uint64]*Stats, number uint64) *Stats {
	if sums[number] == nil {
		sums[number] = &Stats{}
	}
	return sums[number]
}

// add adds what a table holds. now is the clock of its server, in Unix ms.
func (s *Stats) add(c store.Count, now int64) {
	s.Pending += c.Pending
	s.Claimed += c.Claimed
	s.Done += c.Done
	s.Cancelled += c.Cancelled
	s.Dead += c.Dead
	s.Overdue = max(s.Overdue, overdue(c, now))
}
