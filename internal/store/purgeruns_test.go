package store

import (
	"testing"
	"time"
)

// purged purges the runs of database 0 in pages of so many, and returns how many were removed in how many pages.
func (b *bench) purged(kept []Kept, limit int, dry bool) (removed, pages int) {
	b.tb.Helper()
	for after, more := uint64(0), true; more; pages++ {
		until := int64(0)
		for _, k := range kept {
			until = max(until, k.Since)
		}
		done, err := b.PurgeRuns(b.tb.Context(), RunsPage{After: after, Until: until, Limit: limit}, kept, dry)
		if err != nil {
			b.tb.Fatal(err)
		}
		removed += done.Removed
		after, more = done.Next, done.Next > 0
	}
	return removed, pages
}

func TestRunsArePurgedByTheirBizTypesRetention(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	const day = 24 * hour
	now := time.Now().UnixMilli()
	var runs []*Run
	for age := int64(9); age >= 0; age-- { // ten runs a day: five of type 1, four of type 2, one of a type without a policy
		for i := range 10 {
			runs = append(runs, run(id(0, 0), func(r *Run) {
				r.Started, r.Type = now-age*day-1, uint64(1+i%2)
				if i == 9 {
					r.Type = 3
				}
			}))
		}
	}
	for _, r := range runs { // in the order of their times
		b.record(r)
	}
	kept := []Kept{{Types: []uint64{1}, Since: now - 2*day}, {Types: []uint64{2}, Since: now - 7*day}}
	if n, _ := b.purged(kept, 7, true); n != 8*5+3*4 {
		t.Errorf("a dry purge counts %d", n)
	}
	if n, pages := b.purged(kept, 7, false); n != 8*5+3*4 || pages > 13 { // 80 of 100 runs are older than 2 days
		t.Errorf("%d removed in %d pages", n, pages)
	}
	if n, pages := b.purged(kept, 500, false); n != 0 || pages != 2 {
		t.Errorf("again: %d removed in %d pages", n, pages)
	}
	if n, pages := b.purged([]Kept{{Types: []uint64{1}, Since: now - 20*day}}, 10, false); n != 0 || pages != 1 {
		t.Errorf("of young ones: %d removed in %d pages, want none behind the first", n, pages)
	}
	left := map[uint64]int{}
	for _, r := range b.runs(RunsQuery{JobID: id(0, 0), Limit: 1000}) {
		left[r.Type]++
	}
	if left[1] != 10 || left[2] != 28 || left[3] != 10 {
		t.Errorf("left %v", left)
	}
}

// Runs stand in the order in which they were written, not in that in which they began.
func TestWhereTheRunsOfATimeBegin(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	before := func(milli int64) int {
		t.Helper()
		n, err := b.RunsBefore(t.Context(), 0, 0, milli)
		if err != nil {
			t.Fatal(err)
		}
		return int(n)
	}
	const from = 1_800_000_000_000
	if n := before(from); n != 0 {
		t.Errorf("%d without any run", n)
	}
	for i := range 100 {
		b.record(run(id(0, i), func(r *Run) {
			if r.Took = 0; i%3 == 0 {
				r.Took = 50_000
			}
			r.Started = from + int64(i)*1000 - r.Took
		}))
	}
	b.exec("DELETE FROM " + b.layout.Database(0) + ".run WHERE run_id BETWEEN 20 AND 60 OR run_id IN (1, 90)")
	for milli, want := range map[int64]int{from: 1, from + 2000: 2, from + 2001: 3, from + 70_000: 70, from + 88_500: 89, from + 500_000: 99} {
		if n := before(milli); n != want {
			t.Errorf("behind %d, want %d, for those from %d s on", n, want, (milli-from)/1000)
		}
	}
	if n := before(from + 30_000); n < 19 || n > 60 {
		t.Errorf("behind %d, in a gap", n)
	}
	b.exec("DROP TABLE " + b.layout.Database(0) + ".run")
	if n := before(from); n != 0 {
		t.Errorf("%d without a table", n)
	}
	if n, pages := b.purged([]Kept{{Types: []uint64{1}, Since: from}}, 10, false); n != 0 || pages != 1 {
		t.Errorf("%d removed in %d pages without a table", n, pages)
	}
	if _, err := b.RecordRuns(t.Context(), 0, []*Run{run(id(0, 1), nil)}); err == nil {
		t.Error("recorded without a table")
	}
}

func TestPlansOfPurgingRuns(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	var runs []*Run
	for i := range 2000 {
		runs = append(runs, run(id(0, i), nil))
	}
	b.record(runs...)
	kept := []Kept{{Types: []uint64{1, 2}, Since: 1}, {Types: []uint64{3}, Since: 2}}
	for name, st := range map[string]statement{"page": oldRuns, "delete": purgeRuns, "after": runAfter} {
		text := st.render(nil, b.ofDatabase(0, slots{
			"after": 7, "until": instant(7), "id": 7, "last": 400, "limit": 400, "expired": appendExpired(nil, kept, 0), "late": appendExpired(nil, kept, 0),
		}))
		b.wantPlans(t, map[string]string{name: string(text)}, func(p plan) bool {
			return p.table == "<derived2>" || p.key == "PRIMARY" && p.access == "range"
		})
	}
}
