package store

import (
	"cmp"
	"slices"
	"testing"

	"github.com/tocsinhq/tocsin"
)

func TestOverdueRowsAreCountedAndCapped(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	now := b.clock()
	var tasks []task
	for i := range 30 {
		tasks = append(tasks, task{id: id(1, i), kind: 1, action: now - 60_000 + int64(i)})
	}
	tasks = append(tasks,
		task{id: id(1, 100), kind: 2, action: now - 5_000},
		task{id: id(3, 0), kind: 2, action: now - 90_000},
		task{id: id(3, 1), kind: 2, action: now + 60_000},                         // not due
		task{id: id(3, 2), kind: 1, action: now - 90_000, status: tocsin.Done},    // settled
		task{id: id(3, 3), kind: 1, action: now - 90_000, status: tocsin.Claimed}, // claimed
	)
	b.add(tasks...)
	for name, c := range map[string]struct {
		limit int
		want  []Late
	}{
		"all": {100, []Late{{1, 1, 30, now - 60_000}, {1, 2, 1, now - 5_000}, {3, 2, 1, now - 90_000}}},
		"the oldest of each table alone, whatever their type": {20, []Late{{1, 1, 20, now - 60_000}, {3, 2, 1, now - 90_000}}},
	} {
		got, failed, err := b.Overdue(t.Context(), 0, b.TablesOf(0), now-1000, c.limit)
		slices.SortFunc(got, func(a, b Late) int { return cmp.Or(a.Table-b.Table, int(a.Type)-int(b.Type)) })
		if err != nil || len(failed) > 0 || !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, %v, %v, want %v", name, got, failed, err, c.want)
		}
	}
}
