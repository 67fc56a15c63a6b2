package store

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/duequeue"
)

func TestPeekFindsPendingRowsOfItsTypesWithinBounds(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	const at = 1_800_000_000_000
	b.add(task{id: id(0, 1), action: at}, task{id: id(0, 2), action: at - 1}, task{id: id(0, 3), action: at + 5, kind: 2},
		task{id: id(0, 4), action: at + 6}, task{id: id(0, 5), action: at + 2, kind: 3}, task{id: id(0, 6), action: at + 3, status: tocsin.Claimed},
		task{id: id(3, 7), action: at + 1, kind: 2}, task{id: id(3, 8), action: at + 1, kind: 1}, task{id: id(3, 9), action: at + 1, kind: 1})
	page, err := b.Peek(t.Context(), PeekQuery{Tables: []int{0, 1, 2, 3}, Types: []uint64{1, 2}, From: at, Until: at + 5, Limit: 10})
	if err != nil || page.Failed != nil || page.Full != nil {
		t.Fatalf("%v, %v, full %v", err, page.Failed, page.Full)
	}
	want := []duequeue.Entry{{JobID: id(0, 1), Type: 1, Due: at}, {JobID: id(0, 3), Type: 2, Due: at + 5},
		{JobID: id(3, 8), Type: 1, Due: at + 1}, {JobID: id(3, 9), Type: 1, Due: at + 1}, {JobID: id(3, 7), Type: 2, Due: at + 1}}
	if !slices.Equal(page.Entries, want) {
		t.Errorf("found %v\nwant %v", page.Entries, want)
	}
}

func TestPeekOfNothingAsksNobody(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Peek(ctx, PeekQuery{Tables: []int{0}, Limit: 10}); err != nil {
		t.Error(err)
	}
	if _, err := b.Peek(ctx, PeekQuery{Tables: []int{0}, Types: []uint64{1}, Limit: 10}); err == nil {
		t.Error("a cancelled peek succeeded")
	}
}

// Page by page, every entry comes once and in order, whatever the limit and the
// ties.
func TestPeekGoesOnBehindAFullPage(t *testing.T) {
	t.Parallel()
	b := open(t, tocsin.Layout{Databases: 1, Tables: 1})
	rapid.Check(t, func(rt *rapid.T) {
		b.exec("DELETE FROM " + b.layout.Table(0))
		n := rapid.IntRange(0, 40).Draw(rt, "rows")
		var tasks []task
		for i := range n {
			due := 1_800_000_000_000 + rapid.Int64Range(0, 3).Draw(rt, "due")
			tasks = append(tasks, task{id: id(0, i), action: due, kind: rapid.Uint64Range(1, 3).Draw(rt, "type")})
		}
		b.add(tasks...)
		q := PeekQuery{Tables: []int{0}, Types: []uint64{1, 2, 3}, Until: 1_900_000_000_000, Limit: rapid.IntRange(1, 12).Draw(rt, "limit")}
		all, err := b.peekAll(q)
		if err != nil {
			rt.Fatal(err)
		}
		sorted := slices.IsSortedFunc(all, func(a, b duequeue.Entry) int {
			return slices.Compare([]uint64{uint64(a.Due), a.Type, uint64(a.JobID)}, []uint64{uint64(b.Due), b.Type, uint64(b.JobID)})
		})
		if len(all) != n || !sorted {
			rt.Fatalf("%d of %d, sorted %t: %v", len(all), n, sorted, all)
		}
	})
}

// peekAll reads one table to its end, page by page.
func (b *bench) peekAll(q PeekQuery) (all []duequeue.Entry, err error) {
	for {
		page, err := b.Peek(b.tb.Context(), q)
		if all = append(all, page.Entries...); err != nil || len(page.Full) == 0 {
			return all, err
		}
		q.After = page.Full[0].Last
	}
}

func TestPeekTellsWhichTablesAreFull(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	for i := range 3 {
		b.add(task{id: id(0, i)}, task{id: id(2, i)})
	}
	b.add(task{id: id(1, 1)}, task{id: id(1, 2)})
	page, err := b.Peek(t.Context(), PeekQuery{Tables: []int{0, 1, 2, 3}, Types: []uint64{1}, Until: b.clock(), Limit: 3})
	if err != nil || len(page.Entries) != 8 || !slices.Equal(page.Full, []FullTable{{0, b.entry(id(0, 2))}, {2, b.entry(id(2, 2))}}) {
		t.Errorf("%v, page %+v", err, page)
	}
}

// A row written by hand with a job_id of another table could never be loaded:
// it is reported, not offered, and does not hide what stands behind it.
func TestPeekReportsAMisplacedRow(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	b.add(task{id: id(1, 1)}, task{id: id(2, 1)})
	b.exec("INSERT INTO " + b.layout.Table(2) + " SELECT * FROM " + b.layout.Table(1))
	b.exec("UPDATE " + b.layout.Table(2) + " SET action_time = '2026-01-01' WHERE job_id = " + id(1, 1).String())
	b.add(task{id: id(2, 2), action: b.clock() - 10})
	q := PeekQuery{Tables: []int{2}, Types: []uint64{1}, Until: b.clock(), Limit: 2}
	page, err := b.Peek(t.Context(), q)
	if err != nil || !slices.Equal(page.Entries, []duequeue.Entry{b.entry(id(2, 1))}) || !slices.Equal(page.Full, []FullTable{{2, page.Entries[0]}}) ||
		!errors.Is(page.Failed[2], ErrMisplaced) || !strings.Contains(page.Failed[2].Error(), "belongs to table 1") {
		t.Fatalf("%v, page %+v", err, page)
	}
	want := []duequeue.Entry{b.entry(id(2, 1)), b.entry(id(2, 2))}
	for q.Limit = 2; q.Limit > 0; q.Limit-- { // a page of one row is all of that row
		if all, err := b.peekAll(q); err != nil || !slices.Equal(all, want) {
			t.Errorf("%d a page: %v, %v", q.Limit, all, err)
		}
	}
}

func TestLoadReadsWholePendingRows(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	b.add(task{id: id(0, 1), kind: 5, attempts: 2, crashes: 1, version: 3, payload: "鐘"}, task{id: id(3, 1)},
		task{id: id(3, 2), status: tocsin.Cancelled}, task{id: id(3, 3), status: tocsin.Claimed})
	b.exec("UPDATE "+b.layout.Table(0)+" SET dedup_key = ?, last_error = ?", []byte{0, 'a', ' '}, "no route")
	before := b.clock()
	loaded, err := b.Load(t.Context(), 0, []tocsin.JobID{id(3, 3), id(3, 1), id(0, 1), id(3, 1), id(1, 9), id(3, 2)})
	if err != nil || len(loaded.Rows) != 2 || loaded.Failed != nil {
		t.Fatalf("%v, %+v", err, loaded)
	}
	if r := loaded.Rows[0]; r != b.row(id(0, 1)) || r.Type != 5 || r.Payload != "鐘" || r.DedupKey != "\x00a " || r.LastError != "no route" ||
		r.Attempts != 2 || r.Crashes != 1 || r.Version != 3 || !r.DueTime.Equal(r.ActionTime) || r.Created.IsZero() {
		t.Errorf("row %+v", r)
	}
	if loaded.Now < before || loaded.Now > b.clock() || b.Now(0) < before {
		t.Errorf("clock %d, estimate %d", loaded.Now, b.Now(0))
	}
}

// Ids are cut into statements of bounded size; none is lost, doubled or put
// into another table's.
func TestIDsAreCutByTable(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		ids := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) tocsin.JobID {
			return id(rapid.IntRange(0, 5).Draw(rt, "table"), rapid.IntRange(0, 30).Draw(rt, "seq"))
		}), 0, 80).Draw(rt, "ids")
		want := make(map[tocsin.JobID]bool)
		for _, id := range ids {
			want[id] = true
		}
		last := -1
		for _, part := range byTable(sortIDs(ids)) {
			if part.table <= last || !slices.IsSorted(part.ids) {
				rt.Fatalf("part %+v after table %d", part, last)
			}
			last = part.table
			for _, id := range part.ids {
				if id.Table() != part.table || !want[id] {
					rt.Fatalf("id %s in part of table %d", id, part.table)
				}
				delete(want, id)
			}
		}
		if len(want) != 0 {
			rt.Fatalf("lost %v", want)
		}
	})
}

func TestLoadOfManyTables(t *testing.T) {
	t.Parallel()
	b := open(t, tocsin.Layout{Databases: 2, Tables: 70})
	var tasks []task
	var ids []tocsin.JobID
	for i := range 1300 {
		tasks = append(tasks, task{id: id(i%140, i)})
		ids = append(ids, tasks[i].id)
	}
	b.add(tasks...)
	start := time.Now()
	loaded, err := b.Load(t.Context(), 0, ids)
	if err != nil || len(loaded.Rows) != 1300 {
		t.Fatalf("%v, %d rows", err, len(loaded.Rows))
	}
	t.Logf("loaded 1300 rows of 140 tables in %v", time.Since(start))
	var outcomes []Outcome
	for _, r := range loaded.Rows {
		outcomes = append(outcomes, Outcome{JobID: r.JobID, Version: r.Version})
	}
	fates, err := b.Settle(t.Context(), 0, outcomes)
	if err != nil || slices.ContainsFunc(fates, func(f Fate) bool { return f != Stored }) {
		t.Errorf("%v, fates %v", err, fates)
	}
}
