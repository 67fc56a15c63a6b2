package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/operator"
)

// historySite has a biz type with a history, whose callbacks are answered with a long text: 200 to those of biz_id 1, 500 to
// others.
func historySite(t *testing.T) *site {
	s := bareSite(t)
	s.run("ddl", "apply", "--json").ok(t) // which shows no progress
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
	s.write("biz.yaml", "biz_types:\n"+biz("coupon.remind", 2, "/good")+biz("order.close", 1, "/bad"))
	s.run("biz", "apply", "biz.yaml").ok(t)
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
	s.run("task", "runs", good.String(), "--limit", "0").refused(t, exitUsage, "limit 0: use 1 to 1000")
	s.run("task", "runs", "x").refused(t, exitUsage, "x")
	s.run("task", "runs", "9223372036854775807").refused(t, exitFailed, "names table")

	s.exec("DELETE FROM "+s.layout.Table(good.Table())+" WHERE job_id = ?", uint64(good))
	s.run("task", "get", good.String()).refused(t, exitFailed, "no task")
	s.run("task", "runs", good.String()).says(t, "completed")
}
