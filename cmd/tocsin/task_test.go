package main

import (
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
)

func TestTaskAddGetList(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	at := time.Now().Add(90 * time.Minute).UTC().Truncate(time.Millisecond)
	added := decode[taskJSON](t, s.run("task", "add", "--json", "--type", "order.close", "--biz-id", "42",
		"--at", at.In(time.FixedZone("", 8*3600)).Format(time.RFC3339Nano), "--dedup", "close", "--payload", `{"order":42}`))
	want := taskJSON{
		JobID: added.JobID, BizID: "42", BizType: "order.close", Status: "pending",
		ActionTime: at, DueTime: at, DedupKey: "close", Payload: `{"order":42}`,
	}
	if added != want {
		t.Errorf("added %+v\nwant  %+v", added, want)
	}
	id := added.JobID.String()
	s.run("task", "get", id).says(t, "job_id       "+id, "biz type     order.close", `dedup key    "close"`, `payload      {"order":42}`, "status       pending", "(in 1h")
	if got := decode[tocsin.Info](t, s.run("task", "get", id, "--json")); got.JobID != added.JobID || !got.DueTime.Equal(at) {
		t.Errorf("get: %+v", got)
	}
	s.run("task", "list", "--biz-id", "42").says(t, "job_id "+id+"  order.close  biz_id 42  pending  due "+at.Format("2006-01-02 15:04:05"), "(in 1h", "attempts 0")
	if got := decode[[]taskJSON](t, s.run("task", "list", "--biz-id", "42", "--json")); len(got) != 1 || got[0] != want {
		t.Errorf("list: %+v", got)
	}
	if out := s.run("task", "list", "--biz-id", "7", "--json").ok(t); strings.TrimSpace(out) != "[]" {
		t.Errorf("no tasks as JSON: %s", out)
	}
	s.run("task", "list", "--biz-id", "7").says(t, "no tasks of biz_id 7")
}

func TestTaskAddInThePastIsDueAtOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	got := decode[taskJSON](t, s.run("task", "add", "--json", "--type", "order.close", "--biz-id", "1", "--at", "2020-01-02T03:04:05Z"))
	if got.DueTime.Year() != 2020 || time.Since(got.ActionTime).Abs() > 10*time.Minute {
		t.Errorf("got %+v", got)
	}
	s.run("task", "add", "--type", "order.close", "--biz-id", "1", "--in", "-5m").says(t, "pending", " ago)")
}

func TestTaskAddWithADedupKeyShowsTheTaskThatIsThere(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first := s.add(5, "--dedup", "k")
	again := decode[taskJSON](t, s.run("task", "add", "--json", "--type", "order.close", "--biz-id", "5", "--in", "3h", "--dedup", "k"))
	if again.JobID != first || !again.Existing || s.rows() != 1 {
		t.Errorf("got %+v, %d rows", again, s.rows())
	}
	s.run("task", "add", "--type", "order.close", "--biz-id", "5", "--in", "3h", "--dedup", "k").says(t, first.String(), "it was there already")
}

func TestTaskAddTakesThePayloadAsItIs(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	text := " ünïcode 🔔\t\"x\"\n"
	s.write("payload", text)
	args := []string{"task", "add", "--json", "--type", "order.close", "--biz-id", "9", "--in", "1h", "--payload"}
	fromFile := decode[taskJSON](t, s.run(append(args, "@payload")...))
	fromStdin := decode[taskJSON](t, callIn(t, s.dir, text, append(args, "-")...))
	literal := decode[taskJSON](t, s.run(append(args, text)...))
	for name, got := range map[string]string{"file": fromFile.Payload, "stdin": fromStdin.Payload, "text": literal.Payload} {
		if got != text {
			t.Errorf("from %s: %q, want %q", name, got, text)
		}
	}
	out := s.run("task", "get", literal.JobID.String()).ok(t)
	if !strings.Contains(out, "🔔") || strings.Count(out, "\n") != strings.Count(s.run("task", "get", s.add(8, "--payload", "x").String()).ok(t), "\n") {
		t.Errorf("the payload breaks the lines:\n%s", out)
	}
}

func TestTaskCancel(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.add(1)
	s.run("task", "cancel", id.String()).says(t, "1 cancelled, of these 0 in delivery, 0 finished before")
	s.run("task", "get", id.String()).says(t, "status       cancelled")
	s.run("task", "cancel", id.String()).refused(t, exitFailed, "nothing was cancelled: it is done, cancelled or dead already")
	s.add(2)
	claimed := s.add(2)
	s.add(2)
	s.set(claimed, "status = 1")
	got := decode[tocsin.Change](t, s.run("task", "cancel", "--json", "--type", "order.close", "--biz-id", "2"))
	if want := (tocsin.Change{Changed: 3, InDelivery: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	s.set(claimed, "status = 1")
	for n := range s.layout.Databases {
		s.exec("UPDATE " + s.layout.Database(n) + `.biz_type SET policy = JSON_SET(policy, '$.strict', TRUE)`)
	}
	s.run("task", "cancel", "--json", claimed.String()).refused(t, exitFailed, "1 of 1 tasks are in delivery, and their biz type is strict: nothing is changed")
	s.run("task", "reschedule", claimed.String(), "--in", "1m").refused(t, exitFailed, "nothing is changed")
	s.run("task", "bury", claimed.String()).refused(t, exitFailed, "nothing is changed")
	s.run("task", "get", claimed.String()).says(t, "status       claimed")
	s.run("task", "cancel", "--type", "order.close", "--biz-id", "77").says(t, "0 cancelled, of these 0 in delivery, 0 finished before")
}

func TestTaskReschedule(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.add(1)
	s.set(id, "attempts = 2")
	s.run("task", "reschedule", id.String(), "--at", "2031-02-03T04:05:06.789Z").says(t, "1 rescheduled, of these 0 in delivery, 0 finished before")
	got := decode[taskJSON](t, s.run("task", "get", "--json", id.String()))
	if want := time.Date(2031, 2, 3, 4, 5, 6, 789e6, time.UTC); !got.ActionTime.Equal(want) || got.Attempts != 0 || got.Version != 1 {
		t.Errorf("got %+v", got)
	}
	if got := decode[tocsin.Change](t, s.run("task", "reschedule", "--json", "--type", "order.close", "--biz-id", "1", "--in", "1m")); got.Changed != 1 {
		t.Errorf("got %+v", got)
	}
	s.set(id, "status = 2")
	s.run("task", "reschedule", id.String(), "--in", "1m").refused(t, exitFailed, "nothing was rescheduled: it is done")
}

func TestTaskRedrive(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.add(1)
	s.run("task", "redrive", id.String()).refused(t, exitFailed, "task "+id.String()+" is pending: only a dead task can be redriven")
	s.set(id, "status = 4, attempts = 16, crashes = 1, last_error = 'no\nluck'")
	s.run("task", "list", "--biz-id", "1").says(t, "dead", "attempts 16  crashes 1  last error: no luck")
	got := decode[taskJSON](t, s.run("task", "redrive", "--json", id.String()))
	if got.Status != "pending" || got.Attempts != 0 || got.Version != 1 || time.Since(got.ActionTime).Abs() > 10*time.Minute {
		t.Errorf("got %+v", got)
	}
	s.set(id, "status = 4")
	s.run("task", "redrive", id.String()).says(t, "status       pending", "version      2")
}
