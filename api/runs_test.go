package api_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/api"
	"github.com/tocsinhq/tocsin/store"
)

func TestRunsOfATaskArePagedAndOutliveItsRow(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	db, err := store.Connect(t.Context(), s.Config)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	record := func(task tocsin.NewTask, number uint64) string {
		text := s.add(task)
		id, err := tocsin.ParseJobID(text)
		if err != nil {
			t.Fatal(err)
		}
		for attempt := range 3 {
			run := store.Run{JobID: id, Type: number, Attempt: attempt + 1, Node: "host-1", Started: time.Now().UnixMilli(), Took: 7, Outcome: "retried", Output: "no answer"}
			if _, err := db.RecordRuns(t.Context(), 0, []*store.Run{&run}); err != nil {
				t.Fatal(err)
			}
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
