package store

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// run is one as a test wants it.
func run(id tocsin.JobID, change func(*Run)) *Run {
	r := &Run{JobID: id, Type: 1, Attempt: 1, Node: "shop-1-abc", Started: 1_800_000_000_123, Lateness: 4, Took: 17, Outcome: RunCompleted}
	if change != nil {
		change(r)
	}
	return r
}

func (b *bench) record(runs ...*Run) {
	b.tb.Helper()
	if sent, err := b.RecordRuns(b.tb.Context(), 0, runs); err != nil || !sent {
		b.tb.Fatalf("sent %t, %v", sent, err)
	}
}

func (b *bench) runs(q RunsQuery) []Run {
	b.tb.Helper()
	if q.Limit == 0 {
		q.Limit = 100
	}
	runs, err := b.Runs(b.tb.Context(), q)
	if err != nil {
		b.tb.Fatal(err)
	}
	return runs
}

func TestRunsAreReadAsTheyWereRecorded(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	cut := client.CutOutput(strings.Repeat("a", 1023) + "😀😀")
	texts := []string{"", "done", "two\nlines\tof \"text\"", "it's a \\ and a \"?\"", "a\x00b", "ÄÖ 😀", cut, "\\' OR 1=1; --"}
	var want []*Run
	for i, text := range texts {
		want = append(want, run(id(1, 7), func(r *Run) {
			r.Version, r.Attempt, r.Outcome, r.Output = 3, i+1, RunRetried, text
			r.Node = []string{"shop-1", "it's", ""}[i%3]
		}))
	}
	b.record(want...)
	b.record(run(id(1, 8), nil), run(id(3, 7), nil)) // another task of the table, and one of another database
	got := b.runs(RunsQuery{JobID: id(1, 7)})
	before := uint64(math.MaxUint64)
	for i := range got {
		if got[i].ID == 0 || got[i].ID >= before {
			t.Errorf("run_id %d after %d", got[i].ID, before)
		}
		before, got[i].ID = got[i].ID, 0
	}
	slices.Reverse(want)
	if !slices.EqualFunc(got, want, func(a Run, b *Run) bool { return a == *b }) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if n := len(b.runs(RunsQuery{JobID: id(3, 7)})); n != 1 {
		t.Errorf("%d runs in the other database", n)
	}
}

func TestRunsOfAScheduleComeInPages(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	schedule := uint64(id(1, 3))
	for i := range 7 {
		b.record(run(id(1, 10+i), func(r *Run) { r.Schedule, r.Attempt = schedule, i+1 }), run(id(0, 10+i), func(r *Run) { r.Schedule = uint64(id(0, 3)) }))
	}
	var attempts []int
	q := RunsQuery{Schedule: schedule, Limit: 3}
	for {
		page := b.runs(q)
		for _, r := range page {
			if attempts = append(attempts, r.Attempt); r.Schedule != schedule {
				t.Errorf("%+v", r)
			}
		}
		if len(page) < q.Limit {
			break
		}
		q.Before = page[len(page)-1].ID
	}
	if !slices.Equal(attempts, []int{7, 6, 5, 4, 3, 2, 1}) {
		t.Errorf("%v", attempts)
	}
}

func TestRunsOfManyDatabasesAreOnePacket(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	var runs []*Run
	for i := range 2*maxIDs + 7 {
		runs = append(runs, run(id(i%4, i), nil))
	}
	before := b.counted("Com_insert")
	b.record(runs...)
	if n := b.counted("Com_insert") - before; n != 4 { // two statements a database: 503 and 504 runs
		t.Errorf("%d statements", n)
	}
	for _, i := range []int{0, 1, 2, 3, 2 * maxIDs} {
		if n := len(b.runs(RunsQuery{JobID: id(i%4, i)})); n != 1 {
			t.Errorf("run %d is there %d times", i, n)
		}
	}
}

// counted is a counter of the pool's own session: all statements of the test go over one connection.
func (b *bench) counted(name string) (n int) {
	b.tb.Helper()
	b.db.SetMaxOpenConns(1)
	var ignored string
	if err := b.db.QueryRow("SHOW SESSION STATUS LIKE '"+name+"'").Scan(&ignored, &n); err != nil {
		b.tb.Fatal(err)
	}
	return n
}

func TestARefusedRunLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	for name, bad := range map[string]*Run{
		"too long":     run(id(3, 1), func(r *Run) { r.Output = strings.Repeat("x", client.MaxOutput+1) }),
		"no UTF-8":     run(id(3, 1), func(r *Run) { r.Output = "\xff" }),
		"a bad node":   run(id(3, 1), func(r *Run) { r.Node = "\xff" }),
		"out of range": run(id(3, 1), func(r *Run) { r.Attempt = 70_000 }),
	} {
		sent, err := b.RecordRuns(t.Context(), 0, []*Run{run(id(0, 1), nil), bad})
		if sent || err == nil || !mysql.RowRefused(err) {
			t.Errorf("%s: sent %t, %v", name, sent, err)
		}
	}
	if n := len(b.runs(RunsQuery{JobID: id(0, 1)})); n != 0 {
		t.Errorf("%d runs of a batch that was refused", n)
	}
}

func TestPlansOfRuns(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	var runs []*Run
	for i := range 2000 {
		runs = append(runs, run(id(0, i/10), func(r *Run) { r.Schedule = uint64(id(0, i%3)) }))
	}
	b.record(runs...)
	for _, analysed := range []bool{false, true} {
		if analysed {
			b.exec("ANALYZE TABLE " + b.layout.Database(0) + ".run")
		}
		for name, q := range map[string]RunsQuery{
			"idx_job":      {JobID: id(0, 4), Before: 1000, Limit: 5},
			"idx_schedule": {Schedule: uint64(id(0, 1)), Before: 1000, Limit: 5},
		} {
			in := slots{"of": strings.Replace(name, "idx_", "", 1) + "_id", "index": name, "id": q.id(), "before": q.Before, "limit": q.Limit}
			b.wantPlans(t, map[string]string{fmt.Sprintf("%s, analysed %t", name, analysed): b.union(runsOf, in, 0)}, func(p plan) bool {
				return p.key == name && !strings.Contains(p.extra, "filesort")
			})
		}
	}
}
