package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/api"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/tocsintest"
)

// act is a request that acts on tasks, with further fields.
func act(what, fields string, ids ...string) request {
	list, _ := json.Marshal(ids)
	return post("/tasks:act", fmt.Sprintf(`{"act": %q, "job_ids": %s, "reason": "the shop was away"%s}`, what, list, fields))
}

// words are the codes of the problems of an act, or the status of the tasks.
func words(m api.ActedMany) (all []string) {
	for _, r := range m.Results {
		word := string(r.Status)
		if r.Problem != nil {
			word = r.Problem.Code
		}
		all = append(all, word)
	}
	return all
}

func TestAnActTellsOfEachTask(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	var ids []string
	for n := range 3 {
		ids = append(ids, s.add(closing.New(uint64(n+1), "", tocsin.In(time.Hour))))
	}
	foreign, gone := s.add(remind.New(9, "", tocsin.In(time.Hour))), s.add(closing.New(9, "", tocsin.In(time.Hour)))
	if _, err := s.DB.ExecContext(t.Context(), "DELETE FROM "+s.Client.Layout().Table(s.Client.Layout().TableOf(9))+" WHERE job_id = ?", gone); err != nil {
		t.Fatal(err)
	}
	all := []string{ids[1], foreign, "18446744073709551615", ids[0], gone, "99999999999999999999", ids[2]}
	for _, c := range []struct {
		request
		words  []string
		failed int
	}{
		{act("bury", "", all...), []string{"dead", "not_found", "not_found", "dead", "not_found", "not_found", "dead"}, 4},
		{act("bury", "", all...), []string{"wrong_status", "not_found", "not_found", "wrong_status", "not_found", "not_found", "wrong_status"}, 7},
		{act("redrive", `, "same_key": true`, all[0], all[1]), []string{"pending", "not_found"}, 1},
		{act("redrive", "", all...), []string{"wrong_status", "not_found", "not_found", "pending", "not_found", "not_found", "pending"}, 5},
		{act("reschedule", `, "due_time": "2031-01-02T03:04:05Z"`, all...), []string{"pending", "not_found", "not_found", "pending", "not_found", "not_found", "pending"}, 4},
		{act("cancel", "", ids...), []string{"cancelled", "cancelled", "cancelled"}, 0},
		{act("cancel", "", ids...), []string{"cancelled", "cancelled", "cancelled"}, 0},
		{act("reschedule", `, "delay_ms": 5`, ids[0]), []string{"wrong_status"}, 1},
	} {
		got := want[api.ActedMany](s, http.StatusOK, c.by("operate"))
		if !slices.Equal(words(got), c.words) || got.Failed != c.failed || got.Done != len(got.Results)-c.failed {
			t.Errorf("%s: %d done, %d failed, %q, want %q", c.body, got.Done, got.Failed, words(got), c.words)
		}
		for _, r := range got.Results {
			if r.Problem != nil && !strings.Contains(r.Problem.Detail, "task "+string(r.JobID)) || (r.BizType == "") != (r.Problem != nil && r.Problem.Code == "not_found") {
				t.Errorf("%s: %+v", c.body, r)
			}
		}
	}
	if task := want[api.Task](s, http.StatusOK, get("/tasks/"+ids[1])); task.Version != 1 || task.LastError != "the shop was away" || task.DueTime.Year() != 2031 {
		t.Errorf("%+v", task)
	}
	if task := want[api.Task](s, http.StatusOK, get("/tasks/"+foreign).by("all")); task.Status != "pending" || task.Version != 0 {
		t.Errorf("a task of others: %+v", task)
	}
	if log := s.log.String(); !strings.Contains(log, `operation=act_on_tasks object="7 tasks, `+ids[1]+` the first" outcome="3 done, 4 failed" status=200 reason="the shop was away"`) {
		t.Error(log)
	}
}

// A task of others, one of others whose row somebody holds, and one that is not there, are the same.
func TestAnActOnForeignTasksIsAsOfNone(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	foreign, gone := s.add(remind.New(7, "", tocsin.In(time.Hour))), s.add(closing.New(7, "", tocsin.In(time.Hour)))
	table := s.Client.Layout().Table(s.Client.Layout().TableOf(7))
	if _, err := s.DB.ExecContext(t.Context(), "DELETE FROM "+table+" WHERE job_id = ?", gone); err != nil {
		t.Fatal(err)
	}
	tx, err := s.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), "SELECT job_id FROM "+table+" WHERE job_id = ? FOR UPDATE", foreign); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"cancel", "bury", "redrive"} {
		theirs, nobodys := s.do(act(what, "", foreign).by("operate")), s.do(act(what, "", gone).by("operate"))
		if nobodys.status != http.StatusOK || strings.ReplaceAll(theirs.text, foreign, gone) != nobodys.text {
			t.Errorf("%s: %s\n%s", what, theirs.text, nobodys.text)
		}
	}
}

func badActs() map[string]bad {
	many := make([]string, 501)
	for i := range many {
		many[i] = fmt.Sprint(i + 1)
	}
	body := func(text string) request { return post("/tasks:act", text).by("operate") }
	return map[string]bad{
		"an act by a reader":         {act("cancel", "", "1").by("read"), 403, "scope", "act_on_tasks needs a token of scope write"},
		"a redrive by a writer":      {act("redrive", "", "1").by("write"), 403, "scope", "act_on_tasks with act redrive needs a token of scope operate, and this one has scope write"},
		"a burial by a writer":       {act("bury", "", "1").by("write"), 403, "scope", "act_on_tasks with act bury needs a token of scope operate"},
		"an act of no kind":          {act("purge", "", "1").by("operate"), 422, "invalid", "body.act: expected value to be one of"},
		"an act on none":             {act("cancel", "", []string{}...), 422, "invalid", "body.job_ids: expected array length >= 1"},
		"an act on too many":         {act("cancel", "", many...), 422, "invalid", "body.job_ids: expected array length <= 500"},
		"an act on far too many":     {act("cancel", "", slices.Concat(many, many)...), 422, "invalid", "body.job_ids: expected array length <= 1000"},
		"an act on one twice":        {act("cancel", "", "7", "7"), 422, "invalid", "body.job_ids: expected array items to be unique"},
		"an act on letters":          {act("cancel", "", "7", secret+"x"), 422, "invalid", "body.job_ids[1]: expected a text with a decimal number"},
		"an act on a number":         {body(`{"act": "cancel", "job_ids": [7], "reason": "x"}`), 422, "invalid", "body.job_ids[0]: expected string"},
		"an act without a reason":    {body(`{"act": "cancel", "job_ids": ["7"]}`), 422, "invalid", `property "reason" is missing`},
		"an act with an empty one":   {body(`{"act": "cancel", "job_ids": ["7"], "reason": " \n"}`), 422, "invalid", "say why: the log has the reason"},
		"an act with a long one":     {body(`{"act": "cancel", "job_ids": ["7"], "reason": "` + strings.Repeat("x", 256) + `"}`), 422, "invalid", "body.reason: expected length <= 255"},
		"a cancel with a time":       {act("cancel", `, "delay_ms": 5`, "7"), 422, "invalid", "due_time and delay_ms are for reschedule"},
		"a cancel with a key":        {act("cancel", `, "same_key": true`, "7"), 422, "invalid", "same_key is for redrive"},
		"a reschedule without time":  {act("reschedule", "", "7"), 422, "invalid", "name one of due_time and delay_ms"},
		"a reschedule far away":      {act("reschedule", `, "due_time": "2090-01-02T15:04:05Z"`, "7"), 422, "invalid", "more than 10 years away"},
		"groups of no time":          {get("/tasks:deadgroups?since=yesterday"), 422, "invalid", "query.since: "},
		"groups of the future":       {get("/tasks:deadgroups?since=2099-01-02T15:04:05Z"), 422, "invalid", "is in the future"},
		"groups of a time backwards": {get("/tasks:deadgroups?since=2026-01-02T15:04:05Z&until=2026-01-01T15:04:05Z"), 422, "invalid", "is after until"},
		"groups of an unknown type":  {get("/tasks:deadgroups?biz_type=order.none"), 404, "unknown_biz_type", `no biz type "order.none"`},
		"groups without a token":     {get("/tasks:deadgroups").by("-"), 401, "token", "send a token"},
	}
}

func TestBadActsAreRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	s.refuses(badActs())
}

// What a reason says can't forge a line of the log.
func TestAReasonIsOneLineOfTheLog(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	id := s.add(closing.New(1, "", tocsin.In(time.Hour)))
	want[api.ActedMany](s, http.StatusOK, post("/tasks:act", `{"act": "bury", "job_ids": ["`+id+`"], "reason": "a\nlevel=INFO msg=\"API write\" outcome=forged\u202e"}`).by("operate"))
	for _, line := range strings.Split(s.log.String(), "\n") {
		if strings.Contains(line, "forged") && !strings.Contains(line, "operation=act_on_tasks") || strings.ContainsRune(line, '\u202e') {
			t.Errorf("%q", line)
		}
	}
}

// If the servers are away, the answer is that of one task; nothing has to be looked for in results.
func TestAnActWithoutServersIsOneProblem(t *testing.T) {
	t.Parallel()
	c := tocsintest.Start(t, closing)
	proxy, dsn := devtest.NewProxy(t, c.Config.Servers[0].DSN)
	s := over(t, c, func(cfg *api.Config) { cfg.Tables.Servers = []tocsin.Server{{Name: "test", DSN: dsn}} })
	ids := []string{s.add(closing.New(1, "", tocsin.In(time.Hour))), s.add(closing.New(2, "", tocsin.In(time.Hour)))}
	for text, code := range map[string]string{"tocsin fate": "unavailable", devtest.AtCommit: "outcome_unknown"} {
		proxy.BreakAt(text, false, 1)
		if got := s.do(act("reschedule", `, "delay_ms": 7200000`, ids...)); got.status != http.StatusServiceUnavailable || got.Code != code {
			t.Errorf("%q: %d %s", text, got.status, got.text)
		}
	}
	if log := s.log.String(); !strings.Contains(log, "an API request failed") {
		t.Error(log)
	}
}

func TestDeadTasksAreGrouped(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	if got := s.do(get("/tasks:deadgroups")); got.text != `{"groups":[],"tasks":0,"more":false}`+"\n" {
		t.Error(got.text)
	}
	bury := func(task tocsin.NewTask, reason string) string {
		id := s.add(task)
		want[api.Task](s, http.StatusOK, post("/tasks/"+id+":bury", fmt.Sprintf(`{"reason": %q}`, reason)).by("all"))
		return id
	}
	bury(closing.New(1, "", tocsin.In(time.Hour)), "order 1 is <locked>")
	last := bury(closing.New(2, "", tocsin.In(time.Hour)), "order 2 is <locked>")
	bury(remind.New(1, "", tocsin.In(time.Hour)), "no route")
	for as, groups := range map[string]int{"read": 1, "all": 2} {
		got := want[api.DeadGroups](s, http.StatusOK, get("/tasks:deadgroups?since=2026-01-02T03:04:05Z").by(as))
		if len(got.Groups) != groups || got.More || got.Tasks != groups+1 {
			t.Fatalf("%s: %+v", as, got)
		}
		if g := got.Groups[0]; g.Error != "order * is <locked>" || g.Part != "is <locked>" || g.Tasks != 2 || g.BizType != "order.close" || string(g.JobIDs[0]) != last || g.Last.Before(g.First.Time) {
			t.Errorf("%s: %+v", as, g)
		}
	}
	if got := s.do(get("/tasks:deadgroups?until=2026-01-02T03:04:05Z")); !strings.Contains(got.text, `"groups":[]`) {
		t.Error(got.text)
	}
}
