package api_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/api"
	"github.com/tocsinhq/tocsin/internal/store"
)

func TestATaskIsAddedFoundRescheduledAndCancelled(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	text := `{"biz_type": "order.close", "biz_id": "42", "delay_ms": 3600000, "dedup_key": "close", "payload": "{\"order\":42} <ü> \ud83d\ude00", "headers": {"tenant": "shop-7"}}`
	first := s.do(post("/tasks", text))
	if first.status != http.StatusCreated {
		t.Fatalf("%d: %s", first.status, first.text)
	}
	path := first.header.Get("Location")
	task := want[api.Task](s, http.StatusOK, request{method: "GET", path: path})
	if task.Payload != `{"order":42} <ü> 😀` || task.Headers["tenant"] != "shop-7" || task.BizID != "42" || task.Status != "pending" || task.DedupKey != "close" || task.Table == "" {
		t.Errorf("%+v", task)
	}
	if left := time.Until(task.DueTime.Time); left < 50*time.Minute || left > time.Hour {
		t.Errorf("due in %s", left)
	}
	again := s.do(post("/tasks", text))
	if again.status != http.StatusOK || !strings.Contains(again.text, `"existing":true`) || again.header.Get("Location") != path {
		t.Errorf("added again: %d %s", again.status, again.text)
	}
	moved := want[api.Task](s, http.StatusOK, request{method: "POST", path: path + ":reschedule", body: `{"due_time": "2031-01-02T03:04:05.6789+01:00"}`})
	if moved.DueTime.Format(time.RFC3339Nano) != "2031-01-02T02:04:05.679Z" || moved.Version != task.Version+1 {
		t.Errorf("%+v", moved)
	}
	if got := s.do(request{method: "GET", path: path}); !strings.Contains(got.text, `"due_time":"2031-01-02T02:04:05.679Z"`) {
		t.Error(got.text)
	}
	for range 2 { // the second time it is cancelled already
		if task = want[api.Task](s, http.StatusOK, request{method: "POST", path: path + ":cancel"}); task.Status != "cancelled" {
			t.Errorf("%+v", task)
		}
	}
	if late := s.do(request{method: "POST", path: path + ":reschedule", body: `{"delay_ms": 0}`}); late.status != http.StatusConflict || late.Code != "wrong_status" {
		t.Errorf("%d %s", late.status, late.text)
	}
}

func TestABatchTellsOfEachTask(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	s.add(closing.New(1, "", tocsin.In(time.Hour)).Dedup("k"))
	got := want[api.AddedMany](s, http.StatusOK, post("/tasks:batch", `{"tasks": [
		{"biz_type": "order.close", "biz_id": "1", "delay_ms": 0, "dedup_key": "k"},
		{"biz_type": "order.close", "biz_id": "2", "delay_ms": 60000},
		{"biz_type": "order.none", "biz_id": "2", "delay_ms": 60000},
		{"biz_type": "coupon.remind", "biz_id": "2", "delay_ms": 60000},
		{"biz_type": "order.close", "delay_ms": 60000},
		{"biz_type": "order.close", "biz_id": "3", "due_time": "2060-01-01T00:00:00Z"},
		{"biz_type": "order.close", "biz_id": "18446744073709551615", "delay_ms": 60000},
		{"biz_type": "order.close", "biz_id": 7, "delay_ms": 60000},
		"order.close",
		{"biz_type": "order.close", "biz_id": "8", "delay_ms": 60000, "payload_version": 1e18},
		{"biz_type": "order.close", "biz_id": "8", "delay_ms": 1e400}
	]}`))
	if got.Added != 2 || got.Existing != 1 || got.Failed != 8 || len(got.Results) != 11 {
		t.Fatalf("%+v", got)
	}
	var codes []string
	for _, r := range got.Results {
		code := "-"
		if r.Problem != nil {
			code = fmt.Sprintf("%d %s", r.Problem.Status, r.Problem.Code)
		}
		codes = append(codes, code)
	}
	if want := []string{"-", "-", "404 unknown_biz_type", "404 unknown_biz_type", "422 invalid", "422 invalid", "-", "422 invalid", "422 invalid", "422 invalid", "422 invalid"}; !slices.Equal(codes, want) {
		t.Errorf("%q", codes)
	}
	for i, want := range map[int]string{4: "body.tasks[4].biz_id", 7: "body.tasks[7].biz_id", 8: "body.tasks[8]", 9: "body.tasks[9].payload_version", 10: "body.tasks[10]"} {
		if p := got.Results[i].Problem; len(p.Errors) != 1 || p.Errors[0].Location != want {
			t.Errorf("%+v, want it at %s", p, want)
		}
	}
	unknown, foreign := got.Results[2].Problem.Detail, got.Results[3].Problem.Detail
	if strings.Replace(foreign, "coupon.remind", "order.none", 1) != unknown {
		t.Errorf("a foreign biz type can be told from an unknown one:\n%s\n%s", unknown, foreign)
	}
}

// pages reads a list to its end.
func (s *served) pages(as, query string) (ids []string, pages int) {
	s.t.Helper()
	for cursor := ""; pages == 0 || cursor != ""; pages++ {
		page := want[api.Tasks](s, http.StatusOK, get("/tasks?"+query+cursor).by(as))
		for _, task := range page.Tasks {
			ids = append(ids, string(task.JobID))
		}
		if cursor = ""; page.NextCursor != "" {
			cursor = "&cursor=" + page.NextCursor
		}
	}
	return ids, pages
}

func TestListsArePaged(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	var of42, all []string
	at := time.Now().Add(time.Hour)
	for n := range 12 {
		id := s.add(closing.New(42, "", tocsin.At(at)))
		of42, all = append(of42, id), append(all, id)
		all = append(all, s.add(closing.New(uint64(100+n), "", tocsin.At(at))))
	}
	key := s.add(closing.NewKey("ord_1", "", tocsin.At(at)))
	foreign := s.add(remind.New(42, "", tocsin.At(at)))
	slices.Sort(of42)
	if ids, pages := s.pages("read", "biz_id=42&limit=5"); !slices.Equal(ids, of42) || pages != 3 {
		t.Errorf("%d pages: %v\nwant %v", pages, ids, of42)
	}
	for query, want := range map[string][]string{
		"status=pending&limit=7":                      append(slices.Clone(all), key),
		"status=pending&limit=1000":                   append(slices.Clone(all), key),
		"status=pending&biz_type=order.close&limit=6": append(slices.Clone(all), key),
		"biz_key=ord_1":                               {key},
		"biz_id=42&status=dead":                       {},
		"biz_id=42&biz_type=order.none":               {},
	} {
		ids, _ := s.pages("read", query)
		slices.Sort(ids)
		slices.Sort(want)
		if !slices.Equal(ids, want) {
			t.Errorf("%s: %v\nwant %v", query, ids, want)
		}
	}
	if ids, _ := s.pages("all", "status=pending&limit=7"); len(ids) != len(all)+2 || !slices.Contains(ids, foreign) {
		t.Errorf("%v", ids)
	}
	first := want[api.Tasks](s, http.StatusOK, get("/tasks?biz_id=42&limit=5"))
	for _, wrong := range []string{first.NextCursor[1:], first.NextCursor + "A", "B" + first.NextCursor[1:], "x", strings.Repeat("A", 43), "%20"} {
		if got := s.do(get("/tasks?biz_id=42&limit=5&cursor=" + wrong)); got.status != http.StatusBadRequest || got.Code != "cursor" {
			t.Errorf("cursor %s: %d %s", wrong, got.status, got.text)
		}
	}
	if got := s.do(get("/tasks?biz_id=43&cursor=" + first.NextCursor)); got.status != http.StatusBadRequest || !strings.Contains(got.Detail, "of another list") {
		t.Errorf("%d %s", got.status, got.text)
	}
}

func TestAListIsOfATimeAndWithoutPayloads(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	at := time.Date(2031, 1, 2, 3, 4, 5, 0, time.UTC)
	var ids []string
	for n := range 4 { // an hour apart, two of them of biz_id 7
		ids = append(ids, s.add(closing.New(uint64(7+n%2), "the payload", tocsin.At(at.Add(time.Duration(n)*time.Hour))).Header("tenant", "shop-7")))
	}
	second, third := "2031-01-02T04:04:05Z", "2031-01-02T06:04:05%2B01:00" // ids 1 and 2
	for query, want := range map[string][]string{
		"status=pending":                                              ids,
		"status=pending&from=" + second:                               ids[1:],
		"status=pending&to=" + second:                                 ids[:2],
		"status=pending&from=" + second + "&to=" + third:              ids[1:3],
		"status=pending&from=" + second + "&to=" + third + "&limit=1": ids[1:3],
		"status=pending&from=2031-01-02T04:04:05.0001Z":               ids[2:],
		"status=pending&to=2031-01-02T04:04:04.9999Z":                 ids[:1],
		"status=dead&from=" + second:                                  nil,
		"biz_id=7&from=" + second:                                     ids[2:3],
		"biz_id=7&to=" + third + "&payload=false":                     {ids[0], ids[2]},
		"biz_id=7&to=1970-01-01T00:00:00Z":                            nil,
		"status=pending&to=1970-01-01T00:00:00Z":                      nil,
	} {
		if got, _ := s.pages("read", query); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
	for query, text := range map[string]string{"": "the payload", "&payload=true": "the payload", "&payload=false": ""} {
		for _, of := range []string{"biz_id=7", "status=pending"} {
			page := want[api.Tasks](s, http.StatusOK, get("/tasks?"+of+query))
			if task := page.Tasks[0]; task.Payload != text || (task.Headers["tenant"] == "shop-7") != (text != "") || string(task.JobID) != ids[0] || task.BizType != "order.close" {
				t.Errorf("%s%s: %+v", of, query, task)
			}
		}
	}
	first := want[api.Tasks](s, http.StatusOK, get("/tasks?status=pending&limit=1&from="+second))
	if got := s.do(get("/tasks?status=pending&limit=1&from=" + third + "&cursor=" + first.NextCursor)); got.status != http.StatusBadRequest || !strings.Contains(got.Detail, "of another list") {
		t.Errorf("a cursor of another time: %d %s", got.status, got.text)
	}
}

func TestDeadTasksAreBuriedFoundAndRedriven(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	var ids []string
	for n := range 3 {
		ids = append(ids, s.add(closing.New(uint64(n+1), "", tocsin.In(time.Hour))))
	}
	foreign := s.add(remind.New(9, "", tocsin.In(time.Hour)))
	for _, id := range append(ids, foreign) {
		task := want[api.Task](s, http.StatusOK, post("/tasks/"+id+":bury", `{"reason": "the order is void"}`).by("all"))
		if task.Status != "dead" || task.LastError != "the order is void" {
			t.Errorf("%+v", task)
		}
	}
	if again := s.do(post("/tasks/"+ids[0]+":bury", "").by("operate")); again.status != http.StatusConflict || again.Code != "wrong_status" {
		t.Errorf("%d %s", again.status, again.text)
	}
	if task := want[api.Task](s, http.StatusOK, post("/tasks/"+ids[0]+":redrive", "").by("operate")); task.Status != "pending" || task.Version != 1 {
		t.Errorf("%+v", task)
	}
	dry := want[api.Redriven](s, http.StatusOK, post("/tasks:redrive", `{"all": true, "dry_run": true}`).by("operate"))
	if dry.Redriven != 2 || !dry.DryRun || !dry.Complete {
		t.Errorf("%+v", dry)
	}
	for body, n := range map[string]int{
		`{"all": true, "since": "2026-01-02T03:04:05Z", "limit": 1}`: 1, `{"all": true, "until": "2026-01-02T03:04:05Z"}`: 0,
		`{"all": true, "error": "order is"}`: 2, `{"all": true, "error": "no stock"}`: 0, `{"all": true, "restored": true, "per_second": 5}`: 0,
	} {
		body = strings.Replace(body, "{", `{"dry_run": true, `, 1)
		if dry := want[api.Redriven](s, http.StatusOK, post("/tasks:redrive", body).by("operate")); dry.Redriven != n {
			t.Errorf("%s: %+v", body, dry)
		}
	}
	if _, err := s.DB.ExecContext(t.Context(), "UPDATE "+s.Client.Layout().Table(s.Client.Layout().TableOf(2))+" SET last_error = 'the database was restored from a copy of yesterday' WHERE job_id = "+ids[1]); err != nil {
		t.Fatal(err)
	}
	if dry := want[api.Redriven](s, http.StatusOK, post("/tasks:redrive", `{"all": true, "dry_run": true}`).by("operate")); dry.Redriven != 1 || dry.Left != 1 {
		t.Errorf("%+v", dry)
	}
	if task := want[api.Task](s, http.StatusOK, post("/tasks/"+ids[1]+":redrive", `{"same_key": true}`).by("operate")); task.Status != "pending" || task.Version != 0 {
		t.Errorf("%+v", task)
	}
	want[api.Task](s, http.StatusOK, post("/tasks/"+ids[1]+":bury", "").by("operate"))
	if done := want[api.Redriven](s, http.StatusOK, post("/tasks:redrive", `{"all": true}`).by("operate")); done.Redriven != 2 || !done.Complete || done.DryRun {
		t.Errorf("%+v", done)
	}
	if left, _ := s.pages("all", "status=dead"); !slices.Equal(left, []string{foreign}) {
		t.Errorf("dead are %v, want %s", left, foreign)
	}
	stats := want[api.Stats](s, http.StatusOK, get("/stats").by("all"))
	if len(stats.BizTypes) != 2 || stats.BizTypes[0].Dead != 1 || stats.BizTypes[1].Pending != 3 {
		t.Errorf("%+v", stats)
	}
}

func TestBizTypesArePausedAndResumed(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for verb, paused := range map[string]bool{":pause": true, ":resume": false} {
		if b := want[api.BizType](s, http.StatusOK, post("/biz-types/order.close"+verb, "").by("operate")); b.Paused != paused || b.Name != "order.close" {
			t.Errorf("%+v", b)
		}
	}
	if all := want[api.BizTypes](s, http.StatusOK, get("/biz-types").by("all")); len(all.BizTypes) != 2 {
		t.Errorf("%+v", all)
	}
	if b := want[api.BizType](s, http.StatusOK, get("/biz-types/order.close")); b.Attempts != 16 || b.Group == "" || b.RetentionMS != 720*3600*1000 {
		t.Errorf("%+v", b)
	}
}

// hides wants the same answer to a request about what a token for order.* may not see as about what is not there. Both are pairs of a
// word in the request and what it stands for. It returns the answer.
func (s *served) hides(r request, foreign, none []string) reply {
	s.t.Helper()
	as := func(pairs []string) reply {
		r, back := r, slices.Clone(pairs)
		slices.Reverse(back)
		in := strings.NewReplacer(pairs...)
		r.path, r.body = in.Replace(r.path), in.Replace(r.body)
		got := s.do(r.by("operate"))
		got.text = strings.NewReplacer(back...).Replace(got.text)
		return got
	}
	theirs, nobodys := as(foreign), as(none)
	if theirs.status != http.StatusNotFound || nobodys.status != http.StatusNotFound || theirs.text != nobodys.text {
		s.t.Errorf("%s %s: %d %s\nwant %d %s", r.method, r.path, theirs.status, theirs.text, nobodys.status, nobodys.text)
	}
	return nobodys
}

// Whatever a token for order.* asks, it can't tell a task or biz type of others from one that does not exist.
func TestForeignBizTypesDoNotExist(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	id := s.add(remind.New(7, "secret payload", tocsin.In(time.Hour)))
	gone := s.add(closing.New(7, "", tocsin.In(time.Hour)))
	if _, err := s.DB.ExecContext(t.Context(), "DELETE FROM "+s.Client.Layout().Table(s.Client.Layout().TableOf(7))+" WHERE job_id = ?", gone); err != nil {
		t.Fatal(err)
	}
	for _, r := range []request{
		get("/tasks/ID"), get("/tasks/ID/why"), get("/tasks/ID/runs"), post("/tasks/ID:cancel", ""), post("/tasks/ID:reschedule", `{"delay_ms": 1}`), post("/tasks/ID:redrive", ""), post("/tasks/ID:bury", "{}"),
		get("/tasks?status=pending&biz_type=TYPE"), get("/tasks?biz_id=7&biz_type=TYPE"), get("/tasks:deadgroups?biz_type=TYPE"), post("/tasks:redrive", `{"biz_type": "TYPE"}`),
		post("/tasks:redrive", `{"biz_type": "TYPE", "dry_run": true}`), get("/biz-types/TYPE"), post("/biz-types/TYPE:pause", ""), post("/biz-types/TYPE:resume", ""),
		post("/tasks", `{"biz_type": "TYPE", "biz_id": "7", "delay_ms": 1}`),
	} {
		s.hides(r, []string{"ID", id, "TYPE", "coupon.remind"}, []string{"ID", gone, "TYPE", "coupon.nothing"})
	}
	for _, r := range []request{get("/tasks?biz_id=7"), get("/tasks?status=pending"), get("/stats"), get("/biz-types")} {
		if got := s.do(r); got.status != http.StatusOK || strings.Contains(got.text, "coupon") || strings.Contains(got.text, id) {
			t.Errorf("%s: %d %s", r.path, got.status, got.text)
		}
	}
	if task := want[api.Task](s, http.StatusOK, get("/tasks/"+id).by("all")); task.Status != "pending" || task.Payload != "secret payload" {
		t.Errorf("%+v", task)
	}
}

func TestRunsOfATaskArePagedAndOutliveItsRow(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	record := func(task tocsin.NewTask, number uint64) string {
		text := s.add(task)
		id, err := tocsin.ParseJobID(text)
		if err != nil {
			t.Fatal(err)
		}
		for attempt := range 3 {
			s.record(&store.Run{JobID: id, Type: number, Attempt: attempt + 1, Took: 7, Outcome: "retried", Output: "no answer"})
		}
		return text
	}
	id, foreign := record(closing.New(1, "", tocsin.In(time.Hour)), 1), record(remind.New(1, "", tocsin.In(time.Hour)), 2)
	none := s.add(closing.New(2, "", tocsin.In(time.Hour)))
	check := func() {
		t.Helper()
		first := want[api.Runs](s, http.StatusOK, get("/tasks/"+id+"/runs?limit=2"))
		if len(first.Runs) != 2 || first.Runs[0].Attempt != 3 || first.Runs[0].Output != "no answer" || first.Runs[0].DurationMS != 7 || first.NextCursor == "" {
			t.Fatalf("%+v", first)
		}
		second := want[api.Runs](s, http.StatusOK, get("/tasks/"+id+"/runs?limit=2&cursor="+first.NextCursor))
		if len(second.Runs) != 1 || second.Runs[0].Attempt != 1 || second.NextCursor != "" {
			t.Errorf("%+v", second)
		}
		for _, wrong := range []string{"/tasks/" + foreign + "/runs", "/tasks/1/runs", "/tasks/9223372036854775807/runs"} {
			if got := s.do(get(wrong)); got.status != http.StatusNotFound || got.Code != "not_found" {
				t.Errorf("%s: %d %s", wrong, got.status, got.text)
			}
		}
		if got := s.do(get("/tasks/" + none + "/runs?cursor=" + first.NextCursor)); got.status != http.StatusBadRequest {
			t.Errorf("a cursor of another task: %d %s", got.status, got.text)
		}
		theirs := want[api.Runs](s, http.StatusOK, get("/tasks/"+foreign+"/runs?limit=1").by("all"))
		told := want[api.Runs](s, http.StatusOK, get("/tasks/"+foreign+"/runs?limit=1&cursor="+theirs.NextCursor))
		if theirs.NextCursor == "" || len(told.Runs) != 0 || told.NextCursor != "" {
			t.Errorf("a cursor that is not theirs tells of runs: %+v", told)
		}
	}
	check()
	if runs := want[api.Runs](s, http.StatusOK, get("/tasks/"+none+"/runs")); runs.Runs == nil || len(runs.Runs) > 0 {
		t.Errorf("%+v", runs)
	}
	if _, err := s.DB.ExecContext(t.Context(), "DELETE FROM "+s.Client.Layout().Table(s.Client.Layout().TableOf(1))); err != nil { // purged
		t.Fatal(err)
	}
	check()
}
