package api_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/api"
)

// noted waits until acts are written.
func (s *served) noted(path string, n int) (page api.Acts) {
	s.t.Helper()
	for late := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if page = want[api.Acts](s, http.StatusOK, get(path).by("all")); len(page.Acts) >= n {
			return page
		}
		if time.Now().After(late) {
			s.t.Fatalf("%s: %+v", path, page)
		}
	}
}

func TestChangesAreActs(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	id := s.add(closing.New(5, "", tocsin.In(time.Hour)))
	for _, r := range []request{
		post("/biz-types/order.close:pause", `{"reason": "the shop\n is away"}`).by("operate"),
		post("/tasks/"+id+":bury", `{"reason": "the order is void"}`).by("operate"),
		post("/schedules", hourly("here", "")),
		// These are none: reads, refusals, dry runs, and what programs do again and again.
		get("/biz-types"), post("/biz-types/order.close:resume", ""), post("/tasks:redrive", `{"all": true, "dry_run": true}`).by("operate"), post("/tasks", task(`"dedup_key": "k"`)),
	} {
		s.do(r)
	}
	r := httptest.NewRequest(http.MethodPost, "/v1/tasks", strings.NewReader(task(`"dedup_key": "l"`)))
	r = r.WithContext(api.ByConsole(r.Context(), "alice", nil))
	r.Header.Set("Authorization", "Bearer "+s.tokens["write"])
	r.Header.Set("Content-Type", "application/json")
	s.api.ServeHTTP(httptest.NewRecorder(), r)
	all := s.noted("/acts", 4)
	for i, want := range []api.PastAct{
		{Person: "alice", Via: "console", Operation: "add_task", Outcome: "added"},
		{Person: "write", Via: "api", Operation: "create_schedule", Object: "schedule here of order.close", Outcome: "created"},
		{Person: "operate", Via: "api", Operation: "bury_task", Object: "task " + id + " of order.close", Reason: "the order is void", Outcome: "buried"},
		{Person: "operate", Via: "api", Operation: "pause_biz_type", Object: "biz type order.close", Reason: "the shop;  is away", Outcome: "changed"},
	} {
		got := all.Acts[i]
		if time.Since(got.Time.Time).Abs() > time.Hour {
			t.Errorf("%+v", got)
		}
		if got.Time = (api.Time{}); i == 0 {
			got.Object = ""
		}
		if got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	if len(all.Acts) != 4 || all.NextCursor != "" || all.Incomplete != nil {
		t.Errorf("%+v", all)
	}
	for filter, n := range map[string]int{"person=operate": 2, "operation=bury_task": 1, "object=biz%20type": 1, "object=%25": 0, "object=here": 1, "object=" + id: 1, "object=of": 0, "from=2090-01-02T15:04:05Z": 0, "to=2026-01-02T15:04:05Z": 0} {
		if page := want[api.Acts](s, http.StatusOK, get("/acts?"+filter).by("all")); len(page.Acts) != n {
			t.Errorf("%s: %+v", filter, page)
		}
	}
	first := want[api.Acts](s, http.StatusOK, get("/acts?limit=3").by("all"))
	rest := want[api.Acts](s, http.StatusOK, get("/acts?limit=3&cursor="+first.NextCursor).by("all"))
	if len(first.Acts) != 3 || len(rest.Acts) != 1 || rest.Acts[0] != all.Acts[3] || rest.NextCursor != "" {
		t.Errorf("%+v, then %+v", first, rest)
	}
	if got := s.do(get("/acts?person=x&cursor=" + first.NextCursor).by("all")); got.Code != "cursor" {
		t.Errorf("%d %s", got.status, got.text)
	}
	if got := s.do(get("/acts").by("operate")); got.status != http.StatusForbidden || got.Code != "biz_types" {
		t.Errorf("%d %s", got.status, got.text)
	}
}

// An API that stops writes down what its requests have changed just before.
func TestActsOfTheLastRequestsAreWritten(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	first := over(t, s.Cluster, nil)
	first.do(post("/biz-types/order.close:pause", "").by("operate"))
	if err := first.api.Close(); err != nil {
		t.Fatal(err)
	}
	if all := want[api.Acts](s, http.StatusOK, get("/acts").by("all")); len(all.Acts) != 1 {
		t.Errorf("%+v", all)
	}
}

// Every change of a task's, a schedule's or a biz type's state takes a reason, which its act has.
func TestAReasonIsInTheActOfAChange(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	id := s.add(closing.New(5, "", tocsin.In(time.Hour)))
	s.do(post("/schedules", hourly("here", "")))
	paths := []string{
		"/biz-types/order.close:pause", "/biz-types/order.close:resume", "/tasks/" + id + ":bury", "/tasks/" + id + ":redrive",
		"/schedules/here:deactivate", "/schedules/here:activate",
	}
	for _, path := range paths {
		want[map[string]any](s, http.StatusOK, post(path, `{"reason": "why `+path+`"}`).by("all"))
	}
	want[map[string]any](s, http.StatusOK, post("/tasks:redrive", `{"biz_type": "order.close", "error": "answer\n503", "since": "2026-01-02T03:04:05.6Z", "until": "2026-01-02T04:04:05Z", "reason": "why /tasks:redrive"}`).by("all"))
	want[map[string]any](s, http.StatusOK, post("/schedules:deactivate", `{"names": ["here"], "reason": "why /schedules:deactivate"}`).by("all"))
	redrive := s.noted("/acts?object=order.close&operation=redrive_tasks", 1).Acts[0] // without the kind in front of the name
	if redrive.Object != "biz type order.close, dead tasks" || redrive.Outcome != "0 redriven, since 2026-01-02T03:04:05Z, until 2026-01-02T04:04:05Z, error answer; 503" {
		t.Errorf("%+v", redrive)
	}
	reasons := map[string]bool{}
	for _, act := range s.noted("/acts?person=all", len(paths)+2).Acts {
		reasons[act.Reason] = true
	}
	for _, path := range append(paths, "/tasks:redrive", "/schedules:deactivate") {
		if !reasons["why "+path] {
			t.Errorf("no act has the reason of %s: %v", path, reasons)
		}
		for body, status := range map[string]int{`{"reason": "` + strings.Repeat("x", 256) + `"}`: http.StatusUnprocessableEntity, `{"raeson": "x"}`: http.StatusUnprocessableEntity} {
			if got := s.do(post(path, body).by("all")); got.status != status {
				t.Errorf("%s: %d %s", path, got.status, got.text)
			}
		}
	}
}
