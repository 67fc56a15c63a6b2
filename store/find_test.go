package store

import (
	"slices"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/duequeue"
)

func TestFindGivesTheEarliestOrTheLatestOfAllTables(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	now := b.clock()
	for i := range 20 {
		b.add(task{id: id(i%4, i), kind: uint64(i%2 + 1), status: tocsin.Dead, action: now - int64(1000*i)})
	}
	b.add(task{id: id(0, 77), action: 1}, task{id: id(0, 78), status: tocsin.Done, action: 1})
	for name, c := range map[string]struct {
		q     FindQuery
		first int64 // its action time before now, in seconds
		n     int
	}{
		"the latest":             {FindQuery{Latest: true, Limit: 6}, 0, 6},
		"the earliest":           {FindQuery{Limit: 6}, 19, 6},
		"all":                    {FindQuery{Limit: 100}, 19, 20},
		"the latest of a type":   {FindQuery{Latest: true, Types: []uint64{2}, Limit: 100}, 1, 10},
		"none of no types":       {FindQuery{Types: []uint64{}, Limit: 100}, 0, 0},
		"none of an absent type": {FindQuery{Types: []uint64{9}, Limit: 100}, 0, 0},
	} {
		c.q.Status = tocsin.Dead
		found, err := b.Find(t.Context(), c.q)
		if err != nil || len(found) != c.n || c.n > 0 && found[0].Due != now-1000*c.first {
			t.Errorf("%s: %d entries, %v, %v", name, len(found), found, err)
		}
	}
	b.exec("DROP TABLE " + b.layout.Table(1))
	found, err := b.Find(t.Context(), FindQuery{Status: tocsin.Dead, Limit: 100})
	if len(found) != 15 || err == nil || !strings.Contains(err.Error(), b.layout.Table(1)) {
		t.Errorf("with a table missing: %d entries, %v", len(found), err)
	}
}

// Entries with the same time and type are told apart by their id.
func TestFindGoesOnAfterThePageBefore(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	now := b.clock()
	for i := range 20 {
		b.add(task{id: id(i%4, i), kind: uint64(i%2 + 1), status: tocsin.Dead, action: now - int64(1000*(i/8))})
	}
	for _, latest := range []bool{false, true} {
		q := FindQuery{Status: tocsin.Dead, Latest: latest, Limit: 100}
		all, err := b.Find(t.Context(), q)
		if err != nil || len(all) != 20 {
			t.Fatalf("%d entries, %v", len(all), err)
		}
		q.Limit = 3
		for at := 0; at < len(all); at += 3 {
			page, err := b.Find(t.Context(), q)
			if want := all[at:min(at+3, len(all))]; err != nil || !slices.Equal(page, want) {
				t.Fatalf("latest %t, from %d: %v, want %v, %v", latest, at, page, want, err)
			}
			q.After = &page[len(page)-1]
		}
		if page, err := b.Find(t.Context(), q); len(page) > 0 || err != nil {
			t.Errorf("after the last: %v, %v", page, err)
		}
	}
}

func TestFindIsAnsweredFromTheIndexUnsorted(t *testing.T) {
	t.Parallel()
	b := filled(t, 6000)
	after := &duequeue.Entry{Due: b.clock(), Type: 1, JobID: id(0, 1)}
	for _, q := range []FindQuery{
		{Limit: 100}, {Limit: 100, Latest: true}, {Limit: 100, Latest: true, Types: []uint64{1, 2}}, {Limit: 100, After: after}, {Limit: 100, After: after, Latest: true},
	} {
		q.Status = tocsin.Done
		for _, p := range b.explain(string(b.findText([]int{0, 1}, q))) {
			if p.key != "idx_due" || !strings.Contains(p.extra, "Using index") || strings.Contains(p.extra, "filesort") {
				t.Errorf("%+v: %+v", q, p)
			}
		}
	}
}

func TestLookReadsRowsOfAnyStatus(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	var ids []tocsin.JobID
	for i := range 5 {
		b.add(task{id: id(i%4, i), status: tocsin.Status(i), payload: "p"})
		ids = append(ids, id(i%4, i))
	}
	rows, err := b.Look(t.Context(), 0, append(ids, id(0, 99), id(8000, 1)))
	if err != nil || len(rows) != 5 || rows[0].Payload != "p" || rows[0].Table == "" {
		t.Errorf("%+v, %v", rows, err)
	}
	if rows, err := b.Look(t.Context(), 0, nil); rows != nil || err != nil {
		t.Errorf("%v, %v", rows, err)
	}
}

func TestRedriveDeadGoesInBatchesAndRings(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	now := b.clock()
	for i := range 9 {
		b.add(task{id: id(i%4, i), kind: uint64(i%2 + 1), status: tocsin.Dead, action: now - 1000, attempts: 16, crashes: 5, version: 2})
	}
	b.add(task{id: id(0, 20), status: tocsin.Dead, action: now + 60_000, kind: 1}, task{id: id(0, 21), status: tocsin.Done, kind: 1})
	q := DeadQuery{Tables: []int{0, 1, 2, 3}, Types: []uint64{1}, Until: now, Limit: 3}
	for _, want := range []int{3, 2, 0} {
		if n, err := b.RedriveDead(t.Context(), q); n != want || err != nil {
			t.Errorf("%d, %v, want %d", n, err, want)
		}
	}
	if r := b.row(id(0, 0)); r.Status != tocsin.Pending || r.Attempts != 0 || r.Crashes != 0 || r.Version != 3 || r.Action < now {
		t.Errorf("redriven as %+v", r)
	}
	for _, not := range []tocsin.JobID{id(1, 1), id(0, 20), id(0, 21)} {
		if r := b.row(not); r.Status == tocsin.Pending {
			t.Errorf("redrove %+v", r)
		}
	}
	rung, err := b.Bells(t.Context(), 0, nil, 10)
	if err != nil || len(rung[0])+len(rung[1]) != 5 {
		t.Errorf("bells %v, %v", rung, err)
	}
	q.Types = nil
	if n, err := b.RedriveDead(t.Context(), q); n != 3 || err != nil {
		t.Errorf("of all types: %d, %v", n, err)
	}
	b.exec("DROP TABLE " + b.layout.Table(1))
	n, err := b.RedriveDead(t.Context(), q)
	if n != 1 || err == nil || !strings.Contains(err.Error(), b.layout.Table(1)) { // 7 is in table 3
		t.Errorf("with a table missing: %d, %v", n, err)
	}
}

// Between the finding and the write a task may complete, be redriven or purged.
func TestRedriveDeadChecksAgainWhenItWrites(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	now := b.clock()
	b.add(task{id: id(0, 1)}, task{id: id(0, 2), status: tocsin.Done}, task{id: id(0, 3), status: tocsin.Dead, action: now + 60_000})
	text, _, _ := strings.Cut(string(b.redriveText(byTable([]tocsin.JobID{id(0, 1), id(0, 2), id(0, 3), id(0, 4)}), now)), ";")
	res, err := b.db.Exec(text)
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := res.RowsAffected(); n != 0 {
		t.Errorf("redrove %d rows that are not dead, or died since", n)
	}
}

func TestBuryMakesAPendingTaskDeadWithAReason(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	b.add(task{id: id(3, 1), attempts: 2, version: 1}, task{id: id(3, 3), status: tocsin.Done})
	loaded := b.outcome(id(3, 1), tocsin.Retried)
	before := b.clock()
	for _, want := range []bool{true, false} {
		if hit, err := b.Bury(t.Context(), id(3, 1), "poison: "+strings.Repeat("ä", 300)); hit != want || err != nil {
			t.Errorf("%t, %v, want %t", hit, err, want)
		}
	}
	r := b.row(id(3, 1))
	if r.Status != tocsin.Dead || r.Attempts != 2 || r.Version != 1 || r.Action < before || !strings.HasPrefix(r.LastError, "poison: ää") {
		t.Errorf("buried as %+v", r)
	}
	if fate := b.settleOne(loaded); fate != Settled {
		t.Errorf("a retry of the attempt that was under way: %s", fate)
	}
	if fate := b.settleOne(Outcome{JobID: id(3, 1), Version: 1}); fate != Stored {
		t.Errorf("its success: %s", fate)
	}
	for _, not := range []tocsin.JobID{id(3, 3), id(3, 9)} {
		if hit, err := b.Bury(t.Context(), not, "x"); hit || err != nil {
			t.Errorf("%s: %t, %v", not, hit, err)
		}
	}
	if _, err := b.Bury(t.Context(), id(4, 1), "x"); err == nil {
		t.Error("a table beyond the layout")
	}
}
