package store

import (
	"testing"
	"time"
)

// purged purges the runs of database 0 in pages of so many, and returns how many were removed in how many pages.
func (b *bench) purged(kept []Kept, limit int, dry bool) (removed, pages int) {
	b.tb.Helper()
	for after, more := uint64(0), true; more; pages++ {
		n, next, err := b.PurgeRuns(b.tb.Context(), 0, 0, kept, after, limit, dry)
		if err != nil {
			b.tb.Fatal(err)
		}
		removed += n
		after, more = next, next > 0
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
	left := map[uint64]int{}
	for _, r := range b.runs(RunsQuery{JobID: id(0, 0), Limit: 1000}) {
		left[r.Type]++
	}
	if left[1] != 10 || left[2] != 28 || left[3] != 10 {
		t.Errorf("left %v", left)
	}
}

func TestNoPageOfYoungRunsIsReadBehindTheFirst(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	for i := range 30 {
		b.record(run(id(0, i), func(r *Run) { r.Started = time.Now().UnixMilli() }))
	}
	if n, pages := b.purged([]Kept{{Types: []uint64{1}, Since: time.Now().UnixMilli() - hour}}, 10, false); n != 0 || pages != 1 {
		t.Errorf("%d removed in %d pages", n, pages)
	}
}

func TestAPurgeOfRunsInTablesOfAnOlderVersionDoesNothing(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	b.exec("DROP TABLE " + b.layout.Database(0) + ".run")
	if n, pages := b.purged([]Kept{{Types: []uint64{1}, Since: time.Now().UnixMilli()}}, 10, false); n != 0 || pages != 1 {
		t.Errorf("%d removed in %d pages", n, pages)
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
	for name, st := range map[string]statement{"page": oldRuns, "delete": purgeRuns} {
		text := st.render(nil, func(b2 []byte, slot string) []byte {
			switch slot {
			case "after", "latest":
				return append(b2, '7')
			case "last", "limit":
				return append(b2, "400"...)
			case "expired":
				return appendExpired(b2, kept)
			}
			return b.fillDatabase(b2, slot, 0)
		})
		for _, p := range b.explain(string(text)) {
			if p.table != "<derived2>" && (p.key != "PRIMARY" || p.access != "range") {
				t.Errorf("%s: %+v", name, p)
			}
		}
	}
}
