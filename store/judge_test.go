package store

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
)

// runKey is a key of runs in these tests: a zero byte, a schedule, a number.
func runKey(schedule tocsin.JobID, n int) string { return fmt.Sprintf("\x00%08d%012d", schedule, n) }

// addRuns adds runs of a schedule to table 1, numbered from 0, with these statuses.
func (b *bench) addRuns(schedule tocsin.JobID, statuses ...tocsin.Status) (ids []tocsin.JobID) {
	b.tb.Helper()
	for i, status := range statuses {
		job := id(1, 100_000+int(schedule>>22)*1000+i)
		b.add(task{id: job, status: status, by: strings.Repeat("n", int(status)&1)})
		b.exec("UPDATE "+b.layout.Table(1)+" SET dedup_key = ? WHERE job_id = ?", []byte(runKey(schedule, i)), uint64(job))
		ids = append(ids, job)
	}
	return ids
}

func (b *bench) addSchedule(schedule tocsin.JobID) {
	b.tb.Helper()
	b.exec("INSERT INTO "+b.layout.Database(b.layout.DatabaseOf(schedule.Table()))+`.schedule (schedule_id, gmt_create, gmt_modified, name, table_no,
		biz_type, biz_id, cron, zone, start_time, jitter_ms, start_within_ms, missed, missed_most, overlap, pause_after, state, revision, anchor,
		made_until, failures, attribute) VALUES (?, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), ?, ?, 1, 7, '0 4 * * *', 'Europe/Berlin',
		'2026-02-03 04:05:06.789', 1500, 60000, 'all', 100, 'queue', 5, 'active', 3, '2026-01-01 00:00:00.5', UTC_TIMESTAMP(3), 2, '')`,
		uint64(schedule), "s"+schedule.String(), schedule.Table())
}

func TestJudgedReadsASchedule(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	b.addSchedule(id(3, 1))
	got, found, err := b.Judged(t.Context(), id(3, 1))
	want := Judged{
		Name: "s" + id(3, 1).String(), BizType: 1, BizID: 7, Cron: "0 4 * * *", Zone: "Europe/Berlin", Start: time.Date(2026, 2, 3, 4, 5, 6, 789e6, time.UTC),
		Anchor: time.Date(2026, 1, 1, 0, 0, 0, 5e8, time.UTC), Jitter: 1500 * time.Millisecond, StartWithin: time.Minute, Missed: "all",
		MissedMost: 100, Overlap: "queue", PauseAfter: 5, Failures: 2, Revision: 3,
	}
	if err != nil || !found || got != want {
		t.Errorf("got %+v, %v, %v\nwant %+v", got, found, err, want)
	}
	if _, found, err := b.Judged(t.Context(), id(3, 2)); found || err != nil {
		t.Errorf("a schedule that is not there: %v, %v", found, err)
	}
	if _, _, err := b.Judged(t.Context(), id(4, 1)); err == nil {
		t.Error("a schedule of a table that is not there has no error")
	}
}

func TestRunsAreReadInOrderOfTheirKeys(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	ids := b.addRuns(id(1, 0), tocsin.Done, tocsin.Claimed, tocsin.Pending, tocsin.Dead, tocsin.Pending)
	b.addRuns(id(1, 5), tocsin.Pending, tocsin.Pending)
	page := RunRange{Table: 1, BizID: 7, Type: 1, From: runKey(id(1, 0), 0), Until: runKey(id(1, 0), 4), Limit: 3}
	open := page
	open.Open, open.Limit = true, 9
	other := page
	other.Type = 2
	got, err := b.RunsFrom(t.Context(), page, open, other)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]tocsin.JobID{ids[:3], ids[1:3], nil} {
		var found []tocsin.JobID
		for _, r := range got[i] {
			found = append(found, r.JobID)
		}
		if !slices.Equal(found, want) {
			t.Errorf("range %d: %v, want %v", i, found, want)
		}
	}
	row := b.row(ids[1])
	want := RunRow{JobID: ids[1], Status: tocsin.Claimed, Action: row.Action, Due: row.DueTime.UnixMilli(), Created: row.Created.UnixMilli(), Key: runKey(id(1, 0), 1)}
	if got[0][1] != want {
		t.Errorf("got %+v, want %+v", got[0][1], want)
	}
}

func TestReplacedRunsAreCancelledUnlessTheyAreSettled(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	ids := b.addRuns(id(1, 0), tocsin.Pending, tocsin.Claimed, tocsin.Done, tocsin.Dead, tocsin.Pending)
	before := make([]Row, len(ids))
	for i := range ids {
		before[i] = b.row(ids[i])
	}
	if err := b.Replace(t.Context(), []tocsin.JobID{ids[3], ids[1], ids[0], ids[2]}, "replaced"); err != nil {
		t.Fatal(err)
	}
	for i, raised := range map[int]uint32{0: 0, 1: 1} {
		r := b.row(ids[i])
		if r.Status != tocsin.Cancelled || r.Version != raised || r.DedupKey != "" || r.LastError != "replaced" || r.Action < before[i].Action {
			t.Errorf("run %d is %+v", i, r)
		}
		if f := b.settleOne(Outcome{JobID: ids[i], Verb: tocsin.Completed, Version: before[i].Version}); f != Cancelled {
			t.Errorf("run %d: a success is %s", i, f)
		}
	}
	for _, i := range []int{2, 3, 4} {
		if r := b.row(ids[i]); r != before[i] {
			t.Errorf("run %d is %+v", i, r)
		}
	}
}

func TestOpenFromNeverGoesBack(t *testing.T) {
	t.Parallel()
	b := open(t, small)
	b.addSchedule(id(1, 0))
	for _, key := range []string{"\x00b", "\x00a", "\x00c"} {
		if err := b.OpenFrom(t.Context(), id(1, 0), key); err != nil {
			t.Fatal(err)
		}
		if j, _, err := b.Judged(t.Context(), id(1, 0)); j.OpenFrom != max(key, "\x00b") {
			t.Errorf("after %q it is %q, %v", key, j.OpenFrom, err)
		}
	}
}

// TestRunsAreFoundByTheirKeys: whatever stands before the range costs nothing.
func TestRunsAreFoundByTheirKeys(t *testing.T) {
	t.Parallel()
	b := filled(t, 2000)
	b.addRuns(id(1, 0), slices.Repeat([]tocsin.Status{tocsin.Done}, 300)...)
	b.exec("ANALYZE TABLE " + b.layout.Table(1))
	r := RunRange{Table: 1, BizID: 7, Type: 1, From: runKey(id(1, 0), 290), Until: runKey(id(1, 0), 300), Limit: 500}
	for _, r.Open = range []bool{false, true} {
		for _, p := range b.explain(string(b.runsFromText(nil, r))) {
			rows, err := strconv.Atoi(p.rows) // MySQL estimates 1
			if p.key != "uk_biz" || p.access != "range" || rows > 10 || err != nil || strings.Contains(p.extra, "filesort") {
				t.Errorf("open %v: %+v", r.Open, p)
			}
		}
	}
	b.addSchedule(id(1, 0))
	for name, text := range map[string][]byte{
		"judged":  judged.render(nil, b.fillSchedule(id(1, 0))),
		"replace": replaced.render(nil, b.fill(byTable([]tocsin.JobID{id(1, 1)})[0])),
	} {
		for _, p := range b.explain(string(text)) {
			if p.key != "PRIMARY" || p.access != "const" && p.access != "range" {
				t.Errorf("%s: %+v", name, p)
			}
		}
	}
}
