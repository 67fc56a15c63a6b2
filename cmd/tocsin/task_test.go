package main

import (
	"cmp"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
	"github.com/tocsinhq/tocsin/operator"
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
	s.run("task", "get", id).says(t, "job_id       "+id, "biz type     order.close", `dedup key    close`, `payload      {"order":42}`, "status       pending", "(in 1h")
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
	again := decode[taskJSON](t, s.run("task", "add", "--json", "--type", "order.close", "--biz-id", "42", "--in", "3h", "--dedup", "close"))
	if again.JobID != added.JobID || !again.Existing || s.rows() != 1 {
		t.Errorf("with the same dedup key: %+v, %d rows", again, s.rows())
	}
	s.run("task", "add", "--type", "order.close", "--biz-id", "42", "--in", "3h", "--dedup", "close").says(t, id, "it was there already")
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

func TestTaskBuryListAndRedrive(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id, pending := s.add(1), s.add(9)
	s.run("task", "redrive", id.String()).refused(t, exitFailed, "task "+id.String()+" is pending: only a dead task can be redriven")
	s.run("task", "bury", id.String(), "--reason", "the order is void").says(t, "status       dead", "last error   the order is void", "attempts     0")
	s.run("task", "bury", id.String()).refused(t, exitFailed, "task "+id.String()+" is dead: only a task that is not final can be buried")
	s.set(id, "attempts = 16, crashes = 1, last_error = 'no\nluck'")
	for args, want := range map[string][]tocsin.JobID{
		"--status dead": {id}, "--status dead --type order.close --limit 2": {id}, "--status dead --type coupon.remind": nil, "--status pending": {pending}, "--status claimed": nil,
	} {
		var got []tocsin.JobID
		for _, task := range decode[[]taskJSON](t, s.run(append([]string{"task", "list", "--json"}, strings.Fields(args)...)...)) {
			got = append(got, task.JobID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", args, got, want)
		}
	}
	s.run("task", "list", "--status", "dead").says(t, id.String()+"  order.close  biz_id 1  dead", "attempts 16  crashes 1  last error: no luck")
	s.run("task", "list", "--status", "done").says(t, "no done tasks")
	got := decode[taskJSON](t, s.run("task", "redrive", "--json", id.String()))
	if got.Status != "pending" || got.Attempts != 0 || got.Version != 1 || time.Since(got.ActionTime).Abs() > 10*time.Minute {
		t.Errorf("got %+v", got)
	}
	if got := decode[tocsin.Info](t, s.run("task", "bury", id.String(), "--json")); got.LastError != "buried by hand" || got.Status != tocsin.Dead {
		t.Errorf("got %+v", got)
	}
	s.run("task", "redrive", id.String()).says(t, "status       pending", "version      2")
}

func TestTaskListTakesATimeAndLeavesPayloadsOut(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var ids []tocsin.JobID
	for n, ago := range []string{"1 MINUTE", "2 HOUR", "2 DAY"} {
		ids = append(ids, s.settled(n+1, tocsin.Dead, ago))
	}
	s.exec("UPDATE " + s.layout.Table(ids[0].Table()) + " SET attribute = 'the payload' WHERE job_id = " + ids[0].String())
	day := time.Now().Add(-24 * time.Hour).Format(time.RFC3339)
	for args, want := range map[string][]tocsin.JobID{
		"": ids, "--from 1h": ids[:1], "--from 24h --to 1h": ids[1:2], "--to " + day: ids[2:], "--from " + day + " --type order.close": ids[:2],
	} {
		var got []tocsin.JobID
		for _, task := range decode[[]taskJSON](t, s.run(strings.Fields("task list --json --status dead "+args)...)) {
			got = append(got, task.JobID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", args, got, want)
		}
	}
	s.run("task", "list", "--biz-id", "1", "--from", "1h").says(t, ids[0].String())
	s.run("task", "list", "--biz-id", "1", "--to", "1h").says(t, "no tasks of biz_id 1")
	for flags, want := range map[string]string{"": "the payload", " --no-payload": ""} {
		if got := decode[[]taskJSON](t, s.run(strings.Fields("task list --json --status dead --from 1h"+flags)...)); len(got) != 1 || got[0].Payload != want {
			t.Errorf("%s: %+v", flags, got)
		}
	}
}

func TestTaskRedriveTakesFlagsThatLimitIt(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var ids []tocsin.JobID
	for n, ago := range []string{"1 MINUTE", "1 MINUTE", "3 HOUR", "3 HOUR", "1 MINUTE"} {
		ids = append(ids, s.settled(n+1, tocsin.Dead, ago))
	}
	s.set(ids[1], "last_error = 'no route'")
	s.set(ids[4], "last_error = '"+layoutrow.RestoredError+"yesterday'")
	left := "1 left, as they may have been delivered before a restore: --restored redrives them"
	for args, want := range map[string]string{
		"": "4 dead tasks would be redriven", "--since 1h": "2 dead tasks would be redriven", "--until 1h": "2 dead tasks would be redriven",
		"--since 4h --until 2h --limit 1": "1 dead tasks would be redriven", "--error route": "1 dead tasks would be redriven",
		"--since " + time.Now().Add(-2*time.Hour).Format(time.RFC3339): "2 dead tasks would be redriven", "--restored": "1 dead tasks would be redriven",
	} {
		s.run(append(strings.Fields("task redrive --all --dry-run"), strings.Fields(args)...)...).says(t, want)
	}
	s.run("task", "redrive", "--all", "--error", "route", "--same-key").says(t, "1 dead tasks redriven")
	s.run("task", "redrive", "--type", "order.close", "--per-second", "100").says(t, "3 dead tasks redriven", left)
	if got := decode[operator.Redriven](t, s.run("task", "redrive", "--all", "--restored", "--same-key", "--limit", "5", "--json")); got != (operator.Redriven{Tasks: 1}) {
		t.Errorf("%+v", got)
	}
	for i, version := range []int{1, 0, 1, 1, 0} {
		if got := decode[taskJSON](t, s.run("task", "get", ids[i].String(), "--json")); got.Status != "pending" || got.Version != version {
			t.Errorf("%+v, want version %d", got, version)
		}
	}
	s.run("task", "bury", ids[0].String()).ok(t)
	s.run("task", "redrive", ids[0].String(), "--same-key").says(t, "status       pending", "version      1")
}

func TestTasksOfAKey(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	number := strconv.FormatUint(tocsin.KeyID("ord_1"), 10)
	ofKey := decode[tocsin.Info](t, s.run("task", "add", "--json", "--type", "order.close", "--key", "ord_1", "--in", "1h", "--header", "tenant=shop=7", "--header", "b="))
	if ofKey.BizKey != "ord_1" || ofKey.Header("tenant") != "shop=7" || ofKey.Headers != `{"b":"","tenant":"shop=7"}` {
		t.Errorf("added %+v", ofKey)
	}
	ofNumber := decode[tocsin.Info](t, s.run("task", "add", "--json", "--type", "order.close", "--biz-id", number, "--in", "1h"))
	if ofNumber.BizKey != "" || ofNumber.Headers != "" || ofNumber.BizID != ofKey.BizID {
		t.Errorf("added %+v", ofNumber)
	}
	s.run("task", "get", ofKey.JobID.String()).says(t, "biz_id       "+number, "key          ord_1", `headers      {"b":"","tenant":"shop=7"}`)
	s.run("task", "list", "--key", "ord_1").says(t, "job_id "+ofKey.JobID.String()+"  order.close  key ord_1  pending")
	for flag, want := range map[string]tocsin.JobID{"--key=ord_1": ofKey.JobID, "--biz-id=" + number: ofNumber.JobID} {
		if got := decode[[]tocsin.Info](t, s.run("task", "list", flag, "--json")); len(got) != 1 || got[0].JobID != want {
			t.Errorf("%s: %+v", flag, got)
		}
	}
	s.run("task", "list", "--key", "ord_2").says(t, `no tasks of key "ord_2"`)
	s.run("task", "reschedule", "--type", "order.close", "--key", "ord_1", "--in", "2h").says(t, "1 rescheduled, of these 0 in delivery, 0 finished before")
	s.run("task", "cancel", "--type", "order.close", "--key", "ord_1").says(t, "1 cancelled, of these 0 in delivery, 0 finished before")
	if got := decode[tocsin.Info](t, s.run("task", "get", ofNumber.JobID.String(), "--json")); got.Status != tocsin.Pending || got.Version != 0 {
		t.Errorf("the task of the number is %+v", got)
	}
	for line, want := range map[string]string{
		"add --biz-id 1 --key k --type order.close --in 1h":    "one of --biz-id and --key are needed",
		"add --biz-id 1 --type order.close --in 1h --header a": "want NAME=TEXT",
		"add --key= --type order.close --in 1h":                "biz_key is empty",
		"cancel --biz-id 1 --key k --type order.close":         "one of --biz-id and --key",
		"list --biz-id 1 --key k":                              "name the tasks",
	} {
		s.run(strings.Fields("task "+line)...).refused(t, exitUsage, want)
	}
	if n := s.rows(); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
	for key, shown := range map[string]string{"a\tb": `\x610962`, "a\u00a0b": `\x61c2a062`, "a\u200bb": `\x61e2808b62`, "a b": "a b", `\x61`: `\x5c783631`} {
		added := decode[tocsin.Info](t, s.run("task", "add", "--json", "--type", "order.close", "--key", cmp.Or(map[string]string{`\x61`: shown}[key], key), "--in", "1h"))
		s.run("task", "get", added.JobID.String()).says(t, "key          "+shown+"\n")
		s.run("task", "list", "--key", shown).says(t, "job_id "+added.JobID.String()+"  order.close  key "+shown+"  pending")
		s.run("task", "cancel", "--type", "order.close", "--key", shown).says(t, "1 cancelled, ")
	}
}

// historySite has a biz type with a history, whose callbacks are answered with a long text: 200 to those of biz_id 1, 500 to
// others.
func historySite(t *testing.T) *site {
	s := bareSite(t)
	s.applyDDL()
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Tocsin-Node") == "" {
			t.Error("no node")
		}
		text := new(strings.Builder)
		_, _ = fmt.Fprint(text, "accepted ", strings.Repeat("é", 2000))
		if r.URL.Path == "/bad" {
			w.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = w.Write([]byte(text.String()))
	}))
	t.Cleanup(receiver.Close)
	biz := func(name string, number int, path string) string {
		return fmt.Sprintf("  - name: %s\n    number: %d\n    history: true\n    attempts: 1\n    webhook: {url: %s%s, allow: [127.0.0.0/8]}\n", name, number, receiver.URL, path)
	}
	s.applyBiz("biz_types:\n" + biz("coupon.remind", 2, "/good") + biz("order.close", 1, "/bad"))
	return s
}

// only returns the one task of a type.
func (s *site) only(name string) tocsin.JobID {
	s.t.Helper()
	for _, status := range []string{"done", "dead"} {
		for _, task := range decode[[]taskJSON](s.t, s.run("task", "list", "--status", status, "--type", name, "--json")) {
			return task.JobID
		}
	}
	s.t.Fatalf("no finished task of %s", name)
	return 0
}

func TestTaskRunsShowsWhatBecameOfEachAttempt(t *testing.T) {
	t.Parallel()
	s := historySite(t)
	s.run("biz", "show", "order.close").says(t, "history: true")
	s.overdue("coupon.remind", 1)
	s.overdue("order.close", 1)
	s.run("sweep", "--once")
	good, bad := s.only("coupon.remind"), s.only("order.close")

	runs := decode[[]operator.Run](t, s.run("task", "runs", good.String(), "--json"))
	if len(runs) != 1 || runs[0].JobID != good || runs[0].BizType != "coupon.remind" || runs[0].Outcome != "completed" || runs[0].Attempt != 1 ||
		runs[0].LatenessMS < 600_000 || runs[0].Started.IsZero() || runs[0].Node == "" || runs[0].Output != "accepted "+strings.Repeat("é", tocsin.MaxOutput-9) {
		t.Errorf("%+v", runs)
	}
	s.run("task", "runs", good.String()).says(t, "OUTCOME", "completed", "accepted ééé", "é...\n")
	s.run("task", "runs", bad.String()).says(t, "buried", "callback answered 500 Internal Server Error: accepted ")

	s.run("task", "runs", "1536").says(t, `no runs of task 1536: its biz type has no "history: true"`)
	if got := s.run("task", "runs", "1536", "--json"); got.stdout != "[]\n" {
		t.Errorf("JSON of none: %q", got.stdout)
	}
	s.run("task", "runs", good.String(), "--limit", "0").refused(t, exitUsage, "--limit 0: use 1 to 1000")
	s.run("task", "runs", "x").refused(t, exitUsage, "x")
	s.run("task", "runs", "9223372036854775807").refused(t, exitFailed, "names table")

	s.exec("DELETE FROM "+s.layout.Table(good.Table())+" WHERE job_id = ?", uint64(good))
	s.run("task", "get", good.String()).refused(t, exitFailed, "no task")
	s.run("task", "runs", good.String()).says(t, "completed")
}
