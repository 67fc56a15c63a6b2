package store

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin"
)

func TestDeathsAreCountedBetweenTwoInstants(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	now := b.clock()
	dead := func(id tocsin.JobID, kind uint64, ago int64) task {
		return task{id: id, kind: kind, action: now - ago, status: tocsin.Dead}
	}
	var tasks []task
	for i := range 30 {
		tasks = append(tasks, dead(id(1, i), 1, 60_000-int64(i)))
	}
	b.add(append(tasks,
		dead(id(1, 100), 2, 5_000),
		dead(id(3, 0), 2, 90_000),
		dead(id(3, 1), 3, 60_000),  // another biz type
		dead(id(3, 2), 1, 100_000), // before
		dead(id(3, 3), 1, 1_000),   // later
		task{id: id(3, 4), kind: 1, action: now - 50_000},
		task{id: id(3, 5), kind: 1, action: now - 50_000, status: tocsin.Done},
	)...)
	for name, c := range map[string]struct {
		limit int
		want  []Deaths
	}{
		"all":                            {100, []Deaths{{1, 1, 30, id(1, 29)}, {1, 2, 1, id(1, 100)}, {3, 2, 1, id(3, 0)}}},
		"the latest of each table alone": {20, []Deaths{{1, 1, 19, id(1, 29)}, {1, 2, 1, id(1, 100)}, {3, 2, 1, id(3, 0)}}},
	} {
		got, err := b.Deaths(t.Context(), DeathsQuery{Tables: b.TablesOf(0), Types: []uint64{1, 2}, From: now - 100_000, Until: now - 5_000, Limit: c.limit})
		slices.SortFunc(got, func(a, b Deaths) int { return cmp.Or(a.Table-b.Table, int(a.Type)-int(b.Type)) })
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, %v, want %v", name, got, err, c.want)
		}
	}
}

func TestTheHighestKeyIsThatOfItsBizIDTypeAndPrefix(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	if found, err := b.LatestKey(t.Context(), 7, 1, "dead since "); err != nil || found != nil {
		t.Errorf("of none: %+v, %v", found, err)
	}
	table := small.TableOf(7)
	keys := []string{"dead since 2026-01-02", "dead since 2026-01-03", "missed since 2027", "dead since 2028", "dead since 2029"}
	for i, key := range keys {
		b.add(task{id: id(table, i), kind: uint64(1 + i/3)}) // the last two are of another biz type
		b.exec("UPDATE "+b.layout.Table(table)+" SET dedup_key = ? WHERE job_id = ?", key, id(table, i))
	}
	found, err := b.LatestKey(t.Context(), 7, 1, "dead since ")
	if err != nil || found == nil || found.JobID != id(table, 1) || found.DedupKey != keys[1] {
		t.Errorf("got %+v, %v", found, err)
	}
}

func (b *bench) figurePlans(t *testing.T) {
	in := slots{"from": instant(1), "until": instant(maxMilli), "types": []uint64{1}, "limit": 1, "biz_id": 7, "type": 1}
	for name, c := range map[string]struct{ text, key, index string }{
		"overdue":     {b.union(overdue, in, 0), "idx_due", "Using index"},
		"live_counts": {b.union(liveCounts, nil, 0), "idx_due", "Using index"},
		"deaths":      {b.union(deaths, in, 0), "idx_due", "Using index"},
		"latest_key":  {strings.Replace(strings.Replace(b.union(latestKey, in, 0), "?", "'dead'", 1), "?", "'deae'", 1), "uk_biz", ""},
	} {
		for _, p := range b.wantRange(name, c.text, c.key, c.index) {
			if strings.Contains(p.extra, "filesort") && name != "live_counts" {
				t.Errorf("%s sorts: %+v", name, p)
			}
		}
	}
}
