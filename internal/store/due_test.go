package store

import (
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tocsinhq/tocsin"
)

// Place by place, every due row of the biz type comes once and in order, whatever
// the limit and the ties, with all that Load would give.
func TestDueReadsWholeRowsPlaceByPlace(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	const at = 1_700_000_000_000
	rapid.Check(t, func(rt *rapid.T) {
		for table := range small.Total() {
			b.exec("DELETE FROM " + b.layout.Table(table))
		}
		var tasks []task
		want := make(map[int][]tocsin.JobID)
		for i := range rapid.IntRange(0, 40).Draw(rt, "rows") {
			tk := task{
				id: id(rapid.IntRange(0, 2).Draw(rt, "table"), i), action: at + rapid.Int64Range(0, 3).Draw(rt, "due"),
				kind: rapid.Uint64Range(1, 2).Draw(rt, "type"), status: tocsin.Status(rapid.IntRange(0, 2).Draw(rt, "status")),
			}
			tasks = append(tasks, tk)
		}
		b.add(tasks...)
		slices.SortStableFunc(tasks, func(x, y task) int { return int(x.action - y.action) }) // stable by id: ids ascend
		for _, tk := range tasks {
			if tk.kind == 2 && tk.status == tocsin.Pending && tk.action < at+3 {
				want[tk.id.Table()] = append(want[tk.id.Table()], tk.id)
			}
		}
		got := make(map[int][]tocsin.JobID)
		q := DueQuery{Type: 2, From: []Place{{Table: 0}, {Table: 1}, {Table: 2, Due: at}}, Until: at + 2, Limit: rapid.IntRange(1, 5).Draw(rt, "limit")}
		for len(q.From) > 0 {
			page, err := b.Due(t.Context(), q)
			if err != nil || page.Failed != nil {
				rt.Fatal(err, page.Failed)
			}
			ids, err := b.DueIDs(t.Context(), q)
			if err != nil || len(ids.Failed) > 0 || len(ids.Entries) != len(page.Rows) || !slices.Equal(ids.More, page.More) {
				rt.Fatalf("%v, %v, ids %+v of %+v", err, ids.Failed, ids, page)
			}
			for i, row := range page.Rows {
				got[row.JobID.Table()] = append(got[row.JobID.Table()], row.JobID)
				if row.entry() != ids.Entries[i] {
					rt.Fatalf("id %+v of %+v", ids.Entries[i], row)
				}
			}
			b.sameAsLoaded(rt, page.Rows)
			q.From = page.More
		}
		for table := range 3 {
			if !slices.Equal(got[table], want[table]) {
				rt.Fatalf("table %d: %v, want %v", table, got[table], want[table])
			}
		}
	})
}

func (b *bench) sameAsLoaded(t *rapid.T, rows []Row) {
	ids := make([]tocsin.JobID, len(rows))
	for i := range rows {
		ids[i] = rows[i].JobID
	}
	loaded, err := b.Load(b.tb.Context(), 0, ids)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if !slices.Contains(loaded.Rows, row) {
			t.Fatalf("read %+v, load gives %+v", row, loaded.Rows)
		}
	}
}

// Where the server's clock was set back, what was read from it before says that
// rows are due which are not.
func TestDueGoesByTheServersClock(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	now := b.clock()
	b.add(task{id: id(0, 1), action: now - 1}, task{id: id(0, 2), action: now + time.Hour.Milliseconds()})
	page, err := b.Due(t.Context(), DueQuery{Type: 1, From: []Place{{Table: 0}}, Until: now + 2*time.Hour.Milliseconds(), Limit: 10})
	if err != nil || len(page.Rows) != 1 || page.Rows[0].JobID != id(0, 1) {
		t.Errorf("%v, %v, want the first of two rows", err, page.Rows)
	}
}

func TestDueLeavesOutARowOfAnotherTable(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	b.add(task{id: id(0, 1), action: 5}, task{id: id(0, 2), action: 6}, task{id: id(0, 3), action: 7})
	b.exec("UPDATE " + b.layout.Table(0) + " SET job_id = " + id(1, 2).String() + " WHERE job_id = " + id(0, 2).String())
	q := DueQuery{Type: 1, From: []Place{{Table: 0}}, Until: 10, Limit: 2}
	ids, err := b.DueIDs(t.Context(), q)
	if err != nil || !errors.Is(ids.Failed[0], ErrMisplaced) || len(ids.Entries) != 1 || len(ids.More) != 1 {
		t.Errorf("ids: %+v, %v", ids, err)
	}
	page, err := b.Due(t.Context(), q)
	if err != nil || !errors.Is(page.Failed[0], ErrMisplaced) || len(page.Rows) != 1 || len(page.More) != 1 {
		t.Fatalf("%v, %v, %d rows, more %v", err, page.Failed, len(page.Rows), page.More)
	}
	q.From = page.More
	if page, err = b.Due(t.Context(), q); err != nil || page.Failed != nil || len(page.Rows) != 1 || page.Rows[0].JobID != id(0, 3) {
		t.Errorf("behind it: %v, %v, %v", err, page.Failed, page.Rows)
	}
}
