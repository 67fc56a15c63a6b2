package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/api"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/tocsintest"
)

func TestSchedulesAreFoundByAPartOfTheirNameAndSorted(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for i, cron := range []string{"@yearly", "30 * * * *", "@daily", "@monthly", "30 * * * *", "@every 3h"} {
		s.create(strings.Replace(hourly(fmt.Sprint("report.", i), ""), "30 * * * *", cron, 1))
	}
	s.create(strings.Replace(hourly("report.foreign", ""), "order.close", "coupon.remind", 1))
	s.create(hourly("other_name", ""))
	want[api.Schedule](s, http.StatusOK, post("/schedules/report.5:deactivate", ""))
	for query, names := range map[string][]string{
		"q=report": {"report.0", "report.1", "report.2", "report.3", "report.4", "report.5"}, "q=RT.3": {"report.3"}, "q=%25": nil, "q=_": {"other_name"}, "q=foreign": nil,
		"q=%00": nil, "q=&app=none": nil, "q=%F0%9F%98%80": nil, "q=%27": nil, "q=report&state=inactive": {"report.5"},
	} {
		for _, limit := range []string{"&limit=2", "&limit=100"} {
			if got, _ := s.names("read", query+limit); !slices.Equal(got, names) {
				t.Errorf("%s: %q, want %q", query+limit, got, names)
			}
		}
	}
	all := want[api.Schedules](s, http.StatusOK, get("/schedules?sort=next_fire&q=report").by("read")).Schedules
	if len(all) != 5 || !slices.IsSortedFunc(all, func(a, b api.Schedule) int { return a.NextFire.Compare(b.NextFire.Time) }) {
		t.Errorf("%+v", all)
	}
	for _, one := range all { // by the hour, or less often
		if one.Fires == nil || one.Fires.Before(time.Now().Add(-time.Minute)) || one.Fires.After(one.NextFire.Time) {
			t.Errorf("%+v fires at %v", one, one.Fires)
		}
	}
	sorted := make([]string, len(all))
	for i, one := range all {
		sorted[i] = one.Definition.Name
	}
	if got, pages := s.names("read", "sort=next_fire&q=report&limit=2"); !slices.Equal(got, sorted) || pages != 3 {
		t.Errorf("%d pages of %q, want %q", pages, got, sorted)
	}
	first := want[api.Schedules](s, http.StatusOK, get("/schedules?limit=2"))
	for _, query := range []string{"q=r&", "sort=next_fire&", "q=report&sort=next_fire&"} {
		if got := s.do(get("/schedules?" + query + "cursor=" + first.NextCursor)); got.status != http.StatusBadRequest || got.Code != "cursor" {
			t.Errorf("%s: %d %s", query, got.status, got.text)
		}
	}
}

func TestAListOfSchedulesHasTheirLastRuns(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for i := range 52 {
		s.create(strings.Replace(hourly(fmt.Sprintf("s.%02d", i), ""), "30 * * * *", "@yearly", 1))
	}
	made := want[api.Schedule](s, http.StatusOK, get("/schedules/s.01"))
	id := s.taskOf(made)
	s.record(&store.Run{JobID: id, Schedule: uint64(id), Type: 1, Outcome: store.RunCompleted})
	s.record(&store.Run{JobID: id, Schedule: uint64(id), Type: 1, Outcome: store.RunBuried, Lateness: 7, Took: 12, Output: secret})
	other := s.taskOf(want[api.Schedule](s, http.StatusOK, get("/schedules/s.02")))
	s.record(&store.Run{JobID: other, Schedule: uint64(other), Type: 2, Outcome: store.RunCompleted}) // when its runs were of another biz type
	page := s.do(get("/schedules?last=true").by("read"))
	var read api.Schedules
	if err := json.Unmarshal([]byte(page.text), &read); err != nil || len(read.Schedules) != 50 || read.NextCursor == "" || strings.Contains(page.text, secret) {
		t.Fatalf("%v: %.300s", err, page.text)
	}
	if r := read.Schedules[1].LastRun; r == nil || r.Outcome != "buried" || r.LatenessMS != 7 || r.DurationMS != 12 || r.JobID != made.ID || time.Since(r.Started.Time) > time.Minute {
		t.Errorf("%+v", r)
	}
	if strings.Count(page.text, "last_run") != 1 {
		t.Errorf("%.300s", page.text)
	}
	if all := want[api.Schedules](s, http.StatusOK, get("/schedules?last=true&limit=3").by("all")).Schedules; len(all) != 3 || all[2].LastRun == nil {
		t.Errorf("%+v", all)
	}
	if got, pages := s.names("read", "last=true"); len(got) != 52 || pages != 2 {
		t.Errorf("%d pages of %d", pages, len(got))
	}
	if got := s.do(get("/schedules?limit=3").by("all")); strings.Contains(got.text, "last_run") {
		t.Error(got.text)
	}
	lost := s.Client.Layout().Database(0) + ".run"
	if _, err := s.DB.ExecContext(t.Context(), "RENAME TABLE "+lost+" TO "+lost+"_aside"); err != nil {
		t.Fatal(err)
	}
	if left := want[api.Schedules](s, http.StatusOK, get("/schedules?last=true").by("read")); len(left.Schedules) != 50 || len(left.Incomplete) != 1 {
		t.Errorf("%d schedules without a history, incomplete %q", len(left.Schedules), left.Incomplete)
	}
}

// A preview needs no database: here there is none.
func TestADefinitionIsPreviewed(t *testing.T) {
	t.Parallel()
	s := over(t, &tocsintest.Cluster{Config: tocsin.Config{
		Layout: tocsin.Layout{Databases: 1, Tables: 1}, Servers: []tocsin.Server{{Name: "away", DSN: "root@tcp(" + devtest.FreeAddress() + ")/"}},
	}}, nil)
	good := want[api.Preview](s, http.StatusOK, post("/schedules:preview?n=3", hourly("report.daily", `, "zone": "Asia/Kolkata", "jitter": "5m"`)).by("read"))
	if len(good.Faults) != 0 || len(good.Times) != 3 || good.Times[0].Before(time.Now()) || good.Times[0].Minute() != 0 || good.Times[2].Sub(good.Times[0].Time) != 2*time.Hour {
		t.Errorf("%+v", good)
	}
	for name, c := range map[string]struct {
		body   string
		faults []string
		times  int
	}{
		"all wrong":      {`{"name": "A", "app": "b c", "biz_type": "coupon.remind", "biz_id": "18446744073709551616", "cron": "@every 1ms", "jitter": "x", "start_within": "1ms"}`, []string{"biz_id", "jitter", "name", "app", "cron", "start_within", "biz_type"}, 0},
		"without a name": {`{"biz_type": "order.close", "cron": "@daily"}`, []string{"name"}, 10},
		"wrong headers":  {hourly("a", `, "headers": {"a": "`+strings.Repeat("x", 1100)+`"}`), []string{"headers"}, 10},
		"in no zone":     {hourly("a", `, "zone": "Mars"`), []string{"zone"}, 0},
		"that ends":      {`{"name": "a", "biz_type": "order.close", "cron": "@daily", "end": "2020-01-01T00:00:00Z"}`, nil, 0},
		"never":          {strings.Replace(hourly("a", ""), "30 * * * *", "0 0 30 2 *", 1), []string{"cron"}, 0},
	} {
		got := want[api.Preview](s, http.StatusOK, post("/schedules:preview", c.body).by("read"))
		var fields []string
		for _, f := range got.Faults {
			fields = append(fields, strings.TrimPrefix(f.Location, "body."))
		}
		if !slices.Equal(fields, c.faults) || len(got.Times) != c.times {
			t.Errorf("%s: %q and %d times, want %q and %d", name, fields, len(got.Times), c.faults, c.times)
		}
	}
	s.refuses(map[string]bad{
		"a preview of nothing":  {post("/schedules:preview", ""), 400, "malformed", "this operation needs a body of JSON"},
		"a preview of a number": {post("/schedules:preview", hourly("a", `, "app": 7`)), 422, "invalid", "body.app: expected string"},
		"too many fire times":   {post("/schedules:preview?n=101", hourly("a", "")), 422, "invalid", "query.n: expected number <= 100"},
		"an unknown field":      {post("/schedules:preview", hourly("a", `, "payload": "`+secret+`", "corn": ""`)), 422, "invalid", "body.corn: unexpected property"},
		"no token":              {post("/schedules:preview", hourly("a", "")).by("-"), 401, "token", "send a token"},
	})
}

func TestManySchedulesAreTurned(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	foreign, _ := s.create(strings.Replace(hourly("foreign", ""), "order.close", "coupon.remind", 1))
	for i := range 3 {
		s.create(hourly(fmt.Sprint("s.", i), ""))
	}
	s.create(hourly("past", fmt.Sprintf(`, "end": %q`, time.Now().Add(2*time.Hour).UTC().Format(time.RFC3339))))
	turn := func(verb string, names ...string) api.TurnedSchedules {
		t.Helper()
		body, err := json.Marshal(api.ScheduleNames{Names: names})
		if err != nil {
			t.Fatal(err)
		}
		return want[api.TurnedSchedules](s, http.StatusOK, post("/schedules:"+verb, string(body)))
	}
	want[api.Schedule](s, http.StatusOK, post("/schedules/s.1:deactivate", ""))
	got := turn("deactivate", "s.0", "s.1", "foreign", "nothing", "No name\n", "s.2", "past")
	if got.Changed != 3 || got.Failed != 3 || len(got.Results) != 7 {
		t.Fatalf("%+v", got)
	}
	for i, name := range []string{"s.0", "s.1", "foreign", "nothing", "No name\n", "s.2", "past"} {
		r := got.Results[i]
		fails := i >= 2 && i <= 4
		if r.Name != name || r.Changed != (!fails && i != 1) || (r.State == "inactive") == fails || r.NextFire != nil || (r.Problem != nil) != fails {
			t.Errorf("%+v", r)
		}
	}
	if theirs, none := got.Results[2].Problem, got.Results[3].Problem; theirs.Code != "not_found" || strings.Replace(theirs.Detail, "foreign", "nothing", 1) != none.Detail {
		t.Errorf("%+v\n%+v", theirs, none)
	}
	if now := want[api.Schedule](s, http.StatusOK, get("/schedules/foreign").by("all")); now.Revision != foreign.Revision || now.State != "active" {
		t.Errorf("%+v", now)
	}
	if _, err := s.DB.ExecContext(t.Context(), "UPDATE "+s.Client.Layout().Database(s.Client.Layout().DatabaseOf(s.taskOf(want[api.Schedule](s, 200, get("/schedules/past"))).Table()))+
		".schedule SET end_time = '2026-01-01' WHERE name = 'past'"); err != nil {
		t.Fatal(err)
	}
	got = turn("activate", "past", "s.0", "s.0")
	if r := got.Results; got.Failed != 1 || got.Changed != 1 || r[0].Problem == nil || r[0].Problem.Code != "invalid" || r[1].State != "active" || r[2].NextFire == nil || r[1].Changed == r[2].Changed {
		t.Errorf("%+v", got)
	}
	if log := s.log.String(); !regexp.MustCompile(`operation=deactivate_schedules object="schedules s.0, s.1, foreign, nothing, No name; , s.2, past" outcome="3 deactivated, 3 failed" status=200`).MatchString(log) {
		t.Error(log)
	}
	many := `{"names": ["s.0"` + strings.Repeat(`, "s.0"`, 500) + `]}`
	s.refuses(map[string]bad{
		"nothing":            {post("/schedules:activate", ""), 400, "malformed", "this operation needs a body of JSON"},
		"no names":           {post("/schedules:activate", `{"names": []}`), 422, "invalid", "body.names: expected array length >= 1"},
		"too many names":     {post("/schedules:deactivate", many), 422, "invalid", "body.names: expected array length <= 500"},
		"a name of a number": {post("/schedules:deactivate", `{"names": [7]}`), 422, "invalid", "body.names[0]: expected string"},
		"a token that reads": {post("/schedules:deactivate", `{"names": ["s.0"]}`).by("read"), 403, "scope", "deactivate_schedules needs a token of scope write"},
	})
}
