package api_test

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/api"
)

func TestTasksAreChangedByWhatTheyAreAbout(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for range 2 {
		s.add(closing.New(5, "", tocsin.In(time.Hour)))
	}
	keyed := s.add(closing.NewKey("ord_1", "", tocsin.In(time.Hour)))
	foreign := s.add(remind.New(5, "", tocsin.In(time.Hour)))
	for _, c := range []struct {
		path, body string
		want       api.Changed
	}{
		{"/tasks:reschedule", `{"biz_type": "order.close", "biz_id": "5", "delay_ms": 7200000}`, api.Changed{Changed: 2}},
		{"/tasks:reschedule", `{"biz_type": "order.close", "biz_key": "ord_1", "due_time": "2031-01-02T03:04:05Z"}`, api.Changed{Changed: 1}},
		{"/tasks:cancel", `{"biz_type": "order.close", "biz_id": "5"}`, api.Changed{Changed: 2}},
		{"/tasks:cancel", `{"biz_type": "order.close", "biz_id": "5"}`, api.Changed{Final: 2}},
		{"/tasks:cancel", `{"biz_type": "order.close", "biz_id": "6"}`, api.Changed{}},
	} {
		if got := want[api.Changed](s, http.StatusOK, post(c.path, c.body)); got != c.want {
			t.Errorf("%s %s: %+v", c.path, c.body, got)
		}
	}
	if task := want[api.Task](s, http.StatusOK, get("/tasks/"+keyed)); task.Status != "pending" || task.DueTime.Year() != 2031 {
		t.Errorf("%+v", task)
	}
	if got := s.do(post("/tasks:cancel", `{"biz_type": "coupon.remind", "biz_id": "5"}`)); got.status != http.StatusNotFound || got.Code != "unknown_biz_type" {
		t.Errorf("%d %s", got.status, got.text)
	}
	if task := want[api.Task](s, http.StatusOK, get("/tasks/"+foreign).by("all")); task.Status != "pending" {
		t.Errorf("%+v", task)
	}
}

func TestAUniqueKeyIsTakenWhileItsTaskWaits(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	add := func(more string) reply { return s.do(post("/tasks", task(`"unique_key": "u"`+more))) }
	first := add("")
	if first.status != http.StatusCreated {
		t.Fatalf("%d %s", first.status, first.text)
	}
	if again := add(""); again.status != http.StatusOK || strings.Contains(again.text, "rescheduled") || again.header.Get("Location") != first.header.Get("Location") {
		t.Errorf("%d %s", again.status, again.text)
	}
	if moved := add(`, "on_conflict": "reschedule"`); moved.status != http.StatusOK || !strings.Contains(moved.text, `"rescheduled":true`) {
		t.Errorf("%d %s", moved.status, moved.text)
	}
	s.do(request{method: "POST", path: first.header.Get("Location") + ":cancel"})
	if free := add(`, "unique_while": ["pending", "claimed", "done"], "on_conflict": "keep"`); free.status != http.StatusCreated {
		t.Errorf("%d %s", free.status, free.text)
	}
	batch := want[api.AddedMany](s, http.StatusOK, post("/tasks:batch", `{"tasks": [`+task(`"unique_key": "u", "on_conflict": "reschedule"`)+`]}`))
	if batch.Existing != 1 || !batch.Results[0].Added.Rescheduled {
		t.Errorf("%+v", batch)
	}
}

// A payload that is left out is JSON's null: a Go handler could not decode an empty text, and its task would die.
func TestAMissingPayloadIsNull(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for fields, text := range map[string]string{`"headers": {}`: "null", `"payload": null`: "null", `"payload": ""`: "", `"payload": "{}"`: "{}"} {
		got := s.do(post("/tasks", task(fields)))
		if stored := want[api.Task](s, http.StatusOK, request{method: "GET", path: got.header.Get("Location")}); stored.Payload != text {
			t.Errorf("%s: %q", fields, stored.Payload)
		}
	}
	made := want[api.Schedule](s, http.StatusCreated, post("/schedules", hourly("empty", "")))
	if made.Definition.Payload == nil || *made.Definition.Payload != "null" {
		t.Errorf("%+v", made.Definition)
	}
}

func TestAWholeNumberMayBeWrittenInAnyWay(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for number, ms := range map[string]int64{"3.6e6": 3_600_000, "36E5": 3_600_000, "3600000.0": 3_600_000, "3600000": 3_600_000} {
		got := s.do(post("/tasks", `{"biz_type": "order.close", "biz_id": "1", "delay_ms": `+number+`}`))
		if got.status != http.StatusCreated {
			t.Errorf("%s: %d %s", number, got.status, got.text)
			continue
		}
		stored := want[api.Task](s, http.StatusOK, request{method: "GET", path: got.header.Get("Location")})
		if after := stored.DueTime.Sub(stored.Created.Time); (after - time.Duration(ms)*time.Millisecond).Abs() > time.Minute {
			t.Errorf("%s: due after %s", number, after)
		}
	}
}

func TestARunByHandIsMadeOnceOfAKey(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	s.do(post("/schedules", hourly("here", "")))
	run := func(key string, status int) api.RunByHand {
		return want[api.RunByHand](s, status, with(post("/schedules/here:run", ""), "Idempotency-Key", key))
	}
	first, again, other := run("payout 1", http.StatusCreated), run("payout 1", http.StatusOK), run("payout 2", http.StatusCreated)
	if again.JobID != first.JobID || !again.Existing || first.Existing || other.JobID == first.JobID {
		t.Errorf("%+v, %+v, %+v", first, again, other)
	}
	want[api.Task](s, http.StatusOK, post("/tasks/"+string(first.JobID)+":cancel", ""))
	if after := run("payout 1", http.StatusCreated); after.JobID == first.JobID {
		t.Errorf("%+v after its run was cancelled", after)
	}
	if one, two := run("", http.StatusCreated), run("", http.StatusCreated); one.JobID == two.JobID {
		t.Errorf("%+v twice without a key", one)
	}
}

func TestTheAPIServesItsDescription(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	text, err := os.ReadFile(openAPIFile)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.do(get("/openapi.yaml").by("read")); got.status != http.StatusOK || got.text != string(text) || got.header.Get("Content-Type") != "application/yaml" {
		t.Errorf("%d %.200s", got.status, got.text)
	}
	if got := s.do(get("/openapi.yaml").by("-")); got.status != http.StatusUnauthorized {
		t.Errorf("without a token: %d", got.status)
	}
	doc, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		t.Fatal(err)
	}
	item := doc.Paths.Value("/v1/schedules/{name}")
	for _, op := range []*openapi3.Operation{item.Put, item.Delete} {
		if p := op.Parameters.GetByInAndName("header", "If-Match"); p == nil || !p.Required {
			t.Errorf("%s: If-Match is not required", op.OperationID)
		}
	}
	if created := doc.Components.Schemas["NewSchedule"]; created == nil || !slices.Contains(created.Value.Required, "name") {
		t.Error("a new schedule needs no name")
	}
}

// A refusal of what package tocsin refuses says too where the value stands.
func TestEachInvalidValueHasALocation(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for fields, at := range map[string]string{
		`"headers": {"": "x"}`: "body.headers", `"dedup_key": "` + strings.Repeat("ü", 33) + `"`: "body.dedup_key", `"on_conflict": "keep"`: "body.on_conflict",
		`"unique_key": "u", "dedup_key": "d"`: "body.unique_key", `"unique_key": "u", "unique_while": ["done"]`: "body.unique_while",
		`"unique_key": "` + strings.Repeat("ü", 33) + `"`: "body.unique_key",
	} {
		if got := s.do(post("/tasks", task(fields))); got.status != http.StatusUnprocessableEntity || len(got.Errors) == 0 || got.Errors[0].Location != at {
			t.Errorf("%s: %d %s", fields, got.status, got.text)
		}
		batch := s.do(post("/tasks:batch", `{"tasks": [`+task(fields)+`]}`))
		if !strings.Contains(batch.text, `"location":"`+strings.Replace(at, "body", "body.tasks[0]", 1)+`"`) {
			t.Errorf("%s: %s", fields, batch.text)
		}
	}
	late := s.do(post("/tasks", `{"biz_type": "order.close", "biz_id": "1", "due_time": "2090-01-02T15:04:05Z"}`))
	if len(late.Errors) != 1 || late.Errors[0].Location != "body.due_time" {
		t.Error(late.text)
	}
}
