package store

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tocsinhq/tocsin"
)

// named stores a schedule.
func (b *bench) named(id tocsin.JobID, name, app string, kind int) {
	b.tb.Helper()
	b.exec(`INSERT INTO `+b.layout.Database(b.RunsIn(id))+`.schedule (schedule_id, gmt_create, gmt_modified, name, app, table_no, biz_type, biz_id, cron, zone,
    start_within_ms, missed, missed_most, overlap, state, revision, anchor, made_until, attribute)
VALUES (?, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), ?, ?, ?, ?, 7, '@daily', 'UTC', 600000, 'once', 100, 'allow', 'active', 1, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), '')`,
		uint64(id), name, app, id.Table(), kind)
}

func (b *bench) recentRuns(q RecentQuery) Recent {
	b.tb.Helper()
	if q.Limit == 0 {
		q.Limit = 5000
	}
	found, err := b.RecentRuns(b.tb.Context(), 0, q)
	if err != nil {
		b.tb.Fatal(err)
	}
	return found
}

const firstStart = 1_800_000_000_000

func TestTheNewestRunsOfEachDatabaseAreLookedAt(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	const n = MaxRecent + 3
	var runs []*Run
	for i := range n {
		runs = append(runs, run(id(0, i), func(r *Run) { r.Started = firstStart + int64(i) }))
	}
	b.record(runs...)
	b.record(run(id(3, 1), func(r *Run) { r.Started = firstStart - 7000 }))
	got := b.recentRuns(RecentQuery{})
	if len(got.Runs) != MaxRecent+1 || got.Complete != firstStart+2+17 {
		t.Fatalf("%d runs, complete from %d", len(got.Runs), got.Complete)
	}
	if first, last := got.Runs[0], got.Runs[MaxRecent-1]; first.Started != firstStart+n-1 || last.Started != firstStart+3 || got.Runs[MaxRecent].JobID != id(3, 1) {
		t.Errorf("%+v\n%+v", first, last)
	}
	if got := b.recentRuns(RecentQuery{From: firstStart + 100, Limit: 30}); len(got.Runs) != 30 {
		t.Errorf("%d runs of a limit of 30", len(got.Runs))
	}

	before := b.counted("Handler_read_prev") + b.counted("Handler_read_next") + b.counted("Handler_read_key")
	b.recentRuns(RecentQuery{Outcome: "none", App: "none", Limit: 10})
	if read := b.counted("Handler_read_prev") + b.counted("Handler_read_next") + b.counted("Handler_read_key") - before; read > 2*MaxRecent+100 {
		t.Errorf("%d rows and entries were read", read)
	}

	b.exec("RENAME TABLE " + b.layout.Database(1) + ".run TO " + b.layout.Database(1) + ".run_aside")
	left, err := b.RecentRuns(t.Context(), 0, RecentQuery{Limit: 10})
	if err == nil || len(left.Runs) != 10 || left.Complete == 0 {
		t.Errorf("beside a database without runs: %d, %v", len(left.Runs), err)
	}
}

func TestTheNewestRunsComeInPages(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	for i := range 9 { // three starts, each in both databases
		for table := range 4 {
			b.record(run(id(table, i), func(r *Run) { r.Started = firstStart + int64(i/3) }))
		}
	}
	all := b.recentRuns(RecentQuery{})
	if len(all.Runs) != 36 || all.Complete != 0 || !slices.IsSortedFunc(all.Runs, b.CompareRecent) {
		t.Fatalf("%+v", all)
	}
	for _, limit := range []int{1, 5, 36} {
		var seen []Run
		for q := (RecentQuery{Limit: limit}); ; {
			page := b.recentRuns(q).Runs
			if seen = append(seen, page...); len(page) == 0 {
				break
			}
			last := page[len(page)-1]
			q.After = &RecentPlace{last.Started, b.RunsIn(last.JobID), last.ID}
		}
		if !slices.Equal(seen, all.Runs) {
			t.Errorf("pages of %d: %d runs", limit, len(seen))
		}
	}
}

func TestTheNewestRunsAreFiltered(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	b.named(id(0, 1), "orders", "shop", 1)
	b.named(id(2, 1), "mails", "it's", 2)
	for i, r := range []*Run{
		run(id(0, 10), func(r *Run) { r.Schedule = uint64(id(0, 1)) }),
		run(id(0, 11), func(r *Run) { r.Schedule, r.Outcome = uint64(id(0, 1)), RunMissed }),
		run(id(0, 12), func(r *Run) { r.Schedule = uint64(id(0, 9)) }), // which was deleted
		run(id(0, 13), func(r *Run) { r.Type = 3 }),
		run(id(2, 10), func(r *Run) { r.Schedule, r.Type = uint64(id(2, 1)), 2 }),
		run(id(2, 11), func(r *Run) { r.Schedule = uint64(id(2, 1)) }), // when it was of another biz type
	} {
		r.Started = firstStart - int64(i)
		b.record(r)
	}
	for what, c := range map[string]struct {
		RecentQuery
		want string
	}{
		"all":                  {RecentQuery{}, "10 orders 11 orders 12  13  10 mails 11 mails "},
		"an outcome":           {RecentQuery{Outcome: RunMissed}, "11 orders "},
		"what failed":          {RecentQuery{Outcome: RunFailed}, "11 orders "},
		"a biz type":           {RecentQuery{Types: []uint64{1}}, "10 orders 11 orders 12  11 mails "},
		"no biz type":          {RecentQuery{Types: []uint64{}}, ""},
		"an app":               {RecentQuery{App: "shop"}, "10 orders 11 orders "},
		"an app with a quote":  {RecentQuery{App: "it's"}, "10 mails 11 mails "},
		"a schedule":           {RecentQuery{Schedule: "mails"}, "10 mails 11 mails "},
		"all together":         {RecentQuery{Schedule: "orders", App: "shop", Outcome: RunCompleted, Types: []uint64{1, 2}, Named: []uint64{1}, From: firstStart - 9}, "10 orders "},
		"a start":              {RecentQuery{From: firstStart - 2}, "10 orders 11 orders 12  "},
		"what some may see":    {RecentQuery{Types: []uint64{1}, Named: []uint64{1}}, "10 orders 11 orders 12  11  "},
		"an app of others":     {RecentQuery{Types: []uint64{1}, Named: []uint64{1}, App: "it's"}, ""},
		"a schedule of others": {RecentQuery{Types: []uint64{1}, Named: []uint64{1}, Schedule: "mails"}, ""},
	} {
		got := ""
		for _, r := range b.recentRuns(c.RecentQuery).Runs {
			got += fmt.Sprint(uint64(r.JobID)>>22-1, " ", r.Name, " ")
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}

func TestTheLastRunsOfSchedules(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	schedules := []tocsin.JobID{id(0, 1), id(1, 1), id(2, 1), id(3, 1), id(0, 2)}
	for i := range 3 {
		for _, of := range schedules[:4] {
			b.record(run(of+tocsin.JobID(i+1)<<22, func(r *Run) { r.Schedule, r.Attempt = uint64(of), i+1 }))
		}
	}
	got, err := b.LastRuns(t.Context(), 0, schedules)
	if err != nil || len(got) != 4 || slices.ContainsFunc(got, func(r Run) bool { return r.Attempt != 3 }) {
		t.Errorf("%+v, %v", got, err)
	}
	b.exec("DROP TABLE " + b.layout.Database(1) + ".run")
	if got, err := b.LastRuns(t.Context(), 0, schedules); err == nil || len(got) != 2 {
		t.Errorf("beside a database without runs: %+v, %v", got, err)
	}
}

func TestPlansOfRecentRuns(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	var runs []*Run
	for i := range 2 * MaxRecent {
		runs = append(runs, run(id(0, i), func(r *Run) { r.Schedule = uint64(id(0, i%50)) }))
	}
	b.record(runs...)
	for i := range 50 {
		b.named(id(0, i), fmt.Sprint("s", i), "shop", 1)
	}
	for _, analysed := range []bool{false, true} {
		if analysed {
			b.exec("ANALYZE TABLE " + b.layout.Database(0) + ".run")
			b.exec("ANALYZE TABLE " + b.layout.Database(0) + ".schedule")
		}
		all := RecentQuery{Types: []uint64{1}, Named: []uint64{1}, Outcome: "x", App: "x", Schedule: "x", From: firstStart, After: &RecentPlace{firstStart, 0, 7}, Limit: 10}
		texts := map[string]string{
			"before":    string(recentBefore.render(nil, b.ofDatabase(0, slots{"looked": MaxRecent}))),
			"last runs": string(b.lastText(nil, 0, []tocsin.JobID{id(0, 1), id(0, 2)})),
		}
		for name, q := range map[string]RecentQuery{"all": {Limit: 10}, "some": all, "of a schedule": {Schedule: "x", Limit: 10}, "what failed": {Outcome: RunFailed, To: firstStart, Limit: 10}} {
			texts[name] = string(recentRuns.render(nil, b.ofDatabase(0, q.slots(0, MaxRecent))))
		}
		b.wantPlans(t, texts, func(p plan) bool {
			switch p.table {
			case "r":
				return p.access == "range" && p.key == "PRIMARY"
			case "s":
				return p.access == "eq_ref" && p.key == "PRIMARY"
			case "run":
				return p.key == "PRIMARY" && p.access == "index" || p.key == "idx_schedule" && (p.access == "ref" || p.access == "range")
			}
			return p.table == "" || p.table[0] == '<'
		})
	}
}
