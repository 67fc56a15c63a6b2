package api_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/api"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/schedule"
	"github.com/tocsinhq/tocsin/tocsintest"
)

// hourly is the body of a schedule with further fields.
func hourly(name, fields string) string {
	return `{"name": "` + name + `", "biz_type": "order.close", "cron": "30 * * * *"` + fields + `}`
}

// create stores a schedule, and returns it with its ETag.
func (s *served) create(body string) (made api.Schedule, tag string) {
	s.t.Helper()
	got := s.do(post("/schedules", body).by("all"))
	if err := json.Unmarshal([]byte(got.text), &made); err != nil || got.status != http.StatusCreated {
		s.t.Fatalf("%v: %d %s", err, got.status, got.text)
	}
	return made, got.header.Get("ETag")
}

func put(name, tag, body string) request {
	return with(request{method: "PUT", path: "/v1/schedules/" + name, body: body}, "If-Match", tag)
}

func drop(name, tag string) request {
	return with(request{method: "DELETE", path: "/v1/schedules/" + name}, "If-Match", tag)
}

// pending returns the pending tasks of a key.
func (s *served) pending(key string) []api.Task {
	s.t.Helper()
	return want[api.Tasks](s, http.StatusOK, get("/tasks?status=pending&limit=1000&biz_key="+key).by("all")).Tasks
}

// A proxy that compresses answers makes their ETags weak. What was read of a schedule before it was deleted does not count for another
// of its name.
func TestAScheduleIsCreatedReadChangedAndDeleted(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	daily := post("/schedules", hourly("report.daily", `, "app": "billing", "zone": "Europe/Berlin", "jitter": "90s", "payload": "p", "headers": {"tenant": "x"}, "start": "2031-01-02T03:04:05+01:00"`))
	first := s.do(daily)
	if other := s.do(post("/schedules", hourly("report.daily", ""))); other.status != http.StatusConflict || other.Code != "exists" || first.status != http.StatusCreated || first.header.Get("Location") != "/v1/schedules/report.daily" || !regexp.MustCompile(`^"\d+\.1"$`).MatchString(first.header.Get("ETag")) {
		t.Fatalf("%d %v %s, %d %s", first.status, first.header, first.text, other.status, other.text)
	}
	tag := first.header.Get("ETag")
	for _, same := range []reply{s.do(get("/schedules/report.daily").by("read")), s.do(daily)} {
		if same.status != http.StatusOK || same.text != first.text || same.header.Get("ETag") != tag {
			t.Errorf("%d %v\n%s\nwant\n%s", same.status, same.header, same.text, first.text)
		}
	}
	made := want[api.Schedule](s, http.StatusOK, get("/schedules/report.daily"))
	if d := made.Definition; d.Jitter != "1m30s" || d.StartWithin != "10m0s" || d.Key != "report.daily" || d.Missed != "once" || d.MissedMost != 100 || d.Overlap != "allow" ||
		d.Start.Format(time.RFC3339) != "2031-01-02T02:04:05Z" || d.Headers["tenant"] != "x" || made.State != "active" || made.Revision != 1 {
		t.Errorf("%+v", made)
	}
	made.Definition.Cron, made.Definition.Start = "*/5 * * * *", nil
	body, _ := json.Marshal(made.Definition)
	change := put("report.daily", tag, string(body))
	for range 2 {
		dry := change
		dry.path += "?dry_run=true"
		got := s.do(dry)
		if got.status != http.StatusOK || got.header.Get("ETag") != tag || !strings.Contains(got.text, `"changes":[{"field":"cron","old":"30 * * * *","new":"*/5 * * * *"},{"field":"start"`) {
			t.Errorf("%d %v %s", got.status, got.header, got.text)
		}
	}
	changed := s.do(change)
	next := changed.header.Get("ETag")
	if changed.status != http.StatusOK || !strings.HasSuffix(next, `.2"`) || !strings.Contains(changed.text, `"dry_run":false`) || len(s.pending("report.daily")) < 2 {
		t.Errorf("%d %v %s", changed.status, changed.header, changed.text)
	}
	for _, stale := range []request{put("report.daily", tag, strings.Replace(string(body), "*/5", "*/7", 1)), drop("report.daily", tag)} {
		if old := s.do(stale); old.status != http.StatusPreconditionFailed || old.Code != "changed" {
			t.Errorf("%d %s", old.status, old.text)
		}
	}
	for _, tag := range []string{tag, next} { // a change that is made already succeeds
		if same := s.do(put("report.daily", tag, string(body))); same.status != http.StatusOK || same.header.Get("ETag") != next || !strings.Contains(same.text, `"changes":[]`) {
			t.Errorf("%d %s", same.status, same.text)
		}
	}
	if gone := s.do(drop("report.daily", `"other", W/`+next)); gone.status != http.StatusNoContent || gone.text != "" {
		t.Errorf("%d %s", gone.status, gone.text)
	}
	if got := s.do(get("/schedules/report.daily")); got.status != http.StatusNotFound || got.Code != "not_found" || len(s.pending("report.daily")) > 0 {
		t.Errorf("%d %s", got.status, got.text)
	}
	if _, anew := s.create(hourly("report.daily", "")); anew == tag || s.do(drop("report.daily", tag)).status != http.StatusPreconditionFailed {
		t.Errorf("made anew, with its first revision, as %s, was %s", anew, tag)
	}
}

func TestOfChangesWithOneETagOneWins(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for round := range 3 {
		name := fmt.Sprintf("report.%d", round)
		_, tag := s.create(hourly(name, ""))
		answers := make([]reply, 8)
		var g sync.WaitGroup
		for i := range answers {
			g.Go(func() {
				answers[i] = s.do(put(name, tag, hourly(name, fmt.Sprintf(`, "payload": "of %d"`, i))))
			})
		}
		g.Wait()
		won := 0
		for _, got := range answers {
			switch {
			case got.status == http.StatusOK:
				won++
			case got.status != http.StatusPreconditionFailed || got.Code != "changed":
				t.Errorf("%d %s", got.status, got.text)
			}
		}
		if now := want[api.Schedule](s, http.StatusOK, get("/schedules/"+name)); won != 1 || now.Revision != 2 {
			t.Errorf("%d changes won, revision %d", won, now.Revision)
		}
	}
}

func TestSchedulesAreTurnedOffAndOn(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	s.create(hourly("report.hourly", `, "biz_id": "42", "jitter": "1m"`))
	for _, turn := range []struct{ verb, state, outcome string }{
		{"deactivate", "inactive", "deactivated"}, {"deactivate", "inactive", "inactive already"}, {"activate", "active", "activated"}, {"activate", "active", "active already"},
	} {
		got := s.do(post("/schedules/report.hourly:"+turn.verb, ""))
		if got.status != http.StatusOK || !strings.Contains(got.text, `"state":"`+turn.state+`"`) || got.header.Get("ETag") != s.do(get("/schedules/report.hourly")).header.Get("ETag") {
			t.Errorf("%s: %d %s", turn.verb, got.status, got.text)
		}
		line := `operation=` + turn.verb + `_schedule object="schedule report.hourly of order.close" outcome="?` + turn.outcome + `"? status=200`
		if !regexp.MustCompile(line).MatchString(s.log.String()) {
			t.Errorf("no line %s in\n%s", line, s.log)
		}
	}
	next := want[api.FireTimes](s, http.StatusOK, get("/schedules/report.hourly/next?n=3"))
	if next.State != "active" || len(next.Times) != 3 || next.Times[0].FireTime.Minute() != 30 || next.Times[1].FireTime.Sub(next.Times[0].FireTime.Time) != time.Hour || next.Times[0].DueTime.Before(next.Times[0].FireTime.Time) {
		t.Errorf("%+v", next)
	}
	want[api.Schedule](s, http.StatusOK, post("/schedules/report.hourly:deactivate", ""))
	if next := want[api.FireTimes](s, http.StatusOK, get("/schedules/report.hourly/next")); next.State != "inactive" || len(next.Times) != 10 {
		t.Errorf("%+v", next)
	}
}

func TestRunsAreMadeByHand(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	s.create(hourly("report.hourly", `, "payload": "p"`))
	want[api.Schedule](s, http.StatusOK, post("/schedules/report.hourly:deactivate", ""))
	run := s.do(post("/schedules/report.hourly:run", ""))
	if run.status != http.StatusCreated {
		t.Fatalf("%d %s", run.status, run.text)
	}
	if task := want[api.Task](s, http.StatusOK, request{method: "GET", path: run.header.Get("Location")}); task.Status != "pending" || task.Payload != "p" || task.BizKey != "report.hourly" || task.DedupKey != "" {
		t.Errorf("%+v", task)
	}
	to := time.Now().UTC().Truncate(time.Hour)
	span := fmt.Sprintf(`{"from": %q, "to": %q, "dry_run": DRY}`, to.Add(-5*time.Hour).Format(time.RFC3339), to.Format(time.RFC3339))
	for _, want := range []string{`"made":0,"there":0,"dry_run":true`, `"made":5,"there":0,"dry_run":false`, `"made":0,"there":5,"dry_run":false`} {
		got := s.do(post("/schedules/report.hourly:backfill", strings.Replace(span, "DRY", fmt.Sprint(strings.Contains(want, "true")), 1)).by("operate"))
		if got.status != http.StatusOK || !strings.Contains(got.text, want) || strings.Count(got.text, `"due_time"`) != 5 {
			t.Errorf("%d %s\nwant %s", got.status, got.text, want)
		}
	}
	if made := s.pending("report.hourly"); len(made) != 6 {
		t.Errorf("%d tasks", len(made))
	}
}

// names reads a list of schedules to its end.
func (s *served) names(as, query string) (names []string, pages int) {
	s.t.Helper()
	for cursor := ""; pages == 0 || cursor != ""; pages++ {
		page := want[api.Schedules](s, http.StatusOK, get("/schedules?"+query+cursor).by(as))
		for _, one := range page.Schedules {
			names = append(names, one.Definition.Name)
		}
		if cursor = ""; page.NextCursor != "" {
			cursor = "&cursor=" + page.NextCursor
		}
	}
	return names, pages
}

func TestSchedulesAreListed(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	if names, pages := s.names("read", ""); len(names) > 0 || pages != 1 {
		t.Errorf("%q", names)
	}
	for i := range 5 {
		s.create(hourly(fmt.Sprintf("b.%d", i), `, "app": "billing"`))
		s.create(strings.Replace(hourly(fmt.Sprintf("a.%d", i), `, "app": "crm"`), "order.close", "coupon.remind", 1))
	}
	want[api.Schedule](s, http.StatusOK, post("/schedules/b.2:deactivate", ""))
	orders, coupons := []string{"b.0", "b.1", "b.2", "b.3", "b.4"}, []string{"a.0", "a.1", "a.2", "a.3", "a.4"}
	for _, list := range []struct {
		as, query string
		want      []string
		pages     int
	}{
		{"read", "limit=2", orders, 3}, {"read", "limit=5", orders, 1}, {"all", "limit=4", slices.Concat(coupons, orders), 3},
		{"all", "biz_type=coupon.remind&limit=2", coupons, 3}, {"all", "app=billing&limit=3", orders, 2}, {"read", "app=crm", nil, 1},
		{"read", "state=inactive", []string{"b.2"}, 1}, {"read", "state=active&limit=3", []string{"b.0", "b.1", "b.3", "b.4"}, 2}, {"read", "biz_type=order.close&state=ended", nil, 1},
	} {
		if names, pages := s.names(list.as, list.query); !slices.Equal(names, list.want) || pages != list.pages {
			t.Errorf("%s %s: %d pages of %q, want %d of %q", list.as, list.query, pages, names, list.pages, list.want)
		}
	}
	first := want[api.Schedules](s, http.StatusOK, get("/schedules?limit=2"))
	for _, query := range []string{"limit=2&app=billing&cursor=" + first.NextCursor, "cursor=A" + first.NextCursor, "cursor=AAAA"} {
		if got := s.do(get("/schedules?" + query)); got.status != http.StatusBadRequest || got.Code != "cursor" {
			t.Errorf("%s: %d %s", query, got.status, got.text)
		}
	}
	lost := s.Client.Layout().Database(0) + ".schedule"
	if _, err := s.DB.ExecContext(t.Context(), "RENAME TABLE "+lost+" TO "+lost+"_aside"); err != nil {
		t.Fatal(err)
	}
	if got := s.do(get("/schedules/none")); got.status != http.StatusConflict || got.Code != "schema_too_old" {
		t.Errorf("%d %s", got.status, got.text)
	}
}

// Whatever a token for order.* asks, it can't tell a schedule of others from one that does not exist.
func TestForeignSchedulesDoNotExist(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	made, tag := s.create(strings.Replace(hourly("foreign", `, "payload": "`+secret+`"`), "order.close", "coupon.remind", 1))
	s.record(&store.Run{JobID: s.taskOf(made), Schedule: 1, Type: 2, Outcome: store.RunCompleted})
	to := time.Now().UTC().Truncate(time.Hour)
	span := fmt.Sprintf(`{"from": %q, "to": %q}`, to.Add(-time.Hour).Format(time.RFC3339), to.Format(time.RFC3339))
	for _, r := range []request{
		get("/schedules/NAME"), get("/schedules/NAME/next"), get("/schedules/NAME/runs"), post("/schedules/NAME:activate", ""), post("/schedules/NAME:deactivate", ""),
		post("/schedules/NAME:run", ""), post("/schedules/NAME:backfill", span), put("NAME", tag, hourly("NAME", "")), put("NAME", "*", hourly("NAME", "")),
		put("NAME", `"1.1"`, hourly("NAME", "")), drop("NAME", tag), drop("NAME", "*"),
	} {
		if none := s.hides(r, []string{"NAME", "foreign"}, []string{"NAME", "nothing"}); none.Code != "not_found" {
			t.Errorf("%s %s: %s", r.method, r.path, none.text)
		}
	}
	s.hides(get("/tasks/ID/runs"), []string{"ID", s.taskOf(made).String()}, []string{"ID", "7"})
	// A biz type that the token is not for is unknown in a definition too, and a schedule can't be given away to it.
	mine, tag := s.create(hourly("mine", ""))
	for _, r := range []request{post("/schedules", strings.Replace(hourly("new", ""), "order.close", "coupon.remind", 1)), put("mine", tag, strings.Replace(hourly("mine", ""), "order.close", "coupon.remind", 1))} {
		if got := s.do(r); got.status != http.StatusNotFound || got.Code != "unknown_biz_type" {
			t.Errorf("%s: %d %s", r.path, got.status, got.text)
		}
	}
	if now := want[api.Schedule](s, http.StatusOK, get("/schedules/foreign").by("all")); now.Revision != made.Revision || *now.Definition.Payload != secret || mine.Revision != 1 {
		t.Errorf("%+v", now)
	}
}

// taskOf is a task in the database of a schedule.
func (s *served) taskOf(of api.Schedule) tocsin.JobID {
	s.t.Helper()
	id, err := tocsin.ParseJobID(string(of.ID))
	if err != nil {
		s.t.Fatal(err)
	}
	return id
}

// record stores runs of the history.
func (s *served) record(runs ...*store.Run) {
	s.t.Helper()
	db, err := store.Open(s.Config)
	if err != nil {
		s.t.Fatal(err)
	}
	defer db.Close()
	for i := range runs {
		runs[i].Node, runs[i].Started, runs[i].Attempt = "host-1", time.Now().UnixMilli(), cmp.Or(runs[i].Attempt, 1)
	}
	if _, err := db.RecordRuns(s.t.Context(), 0, runs); err != nil {
		s.t.Fatal(err)
	}
}

func TestTheHistoryOfAScheduleIsListed(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	made, _ := s.create(hourly("report.hourly", ""))
	id := s.taskOf(made)
	for i := range 5 {
		s.record(&store.Run{JobID: id, Schedule: uint64(id), Type: 1, Version: 3, Lateness: 7, Took: 12, Outcome: store.RunRetried, Output: fmt.Sprintf("output %d é", i)})
	}
	s.record(&store.Run{JobID: id, Schedule: uint64(id), Type: 2, Outcome: store.RunCompleted}) // when its runs were of another biz type
	const path = "/schedules/report.hourly/runs"
	var outputs []string
	for cursor := ""; cursor != "end"; {
		page := want[api.Runs](s, http.StatusOK, get(path+"?limit=2"+cursor).by("read"))
		for _, r := range page.Runs {
			outputs = append(outputs, r.Output)
		}
		if cursor = "end"; page.NextCursor != "" {
			cursor = "&cursor=" + page.NextCursor
		}
	}
	if !slices.Equal(outputs, []string{"output 4 é", "output 3 é", "output 2 é", "output 1 é", "output 0 é"}) {
		t.Errorf("%s: %q", path, outputs)
	}
	all := want[api.Runs](s, http.StatusOK, get(path).by("all"))
	if len(all.Runs) != 6 || all.Runs[0].BizType != "coupon.remind" || all.NextCursor != "" {
		t.Errorf("%s: %+v", path, all)
	}
	if r := all.Runs[5]; r.JobID != made.ID || r.ScheduleID != made.ID || r.BizType != "order.close" || r.Version != 3 || r.LatenessMS != 7 || r.DurationMS != 12 || r.Outcome != "retried" || r.Node != "host-1" {
		t.Errorf("%s: %+v", path, r)
	}
	first := want[api.Runs](s, http.StatusOK, get(path+"?limit=1").by("all"))
	if got := s.do(get("/tasks/7/runs?cursor=" + first.NextCursor)); got.status != http.StatusBadRequest || got.Code != "cursor" {
		t.Errorf("%d %s", got.status, got.text)
	}
}

// Which hour did this run cover? Its task says so, and its history.
func TestARunNamesItsScheduleAndFireTime(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	made, _ := s.create(hourly("report.hourly", `, "start": "2026-01-01T00:00:00Z", "jitter": "10m"`))
	schedule, err := tocsin.ParseJobID(string(made.ID))
	if err != nil {
		t.Fatal(err)
	}
	want[api.Backfill](s, http.StatusOK, post("/schedules/report.hourly:backfill", `{"from": "2026-05-01T00:00:00Z", "to": "2026-05-01T01:00:00Z"}`).by("operate"))
	byHand := want[api.RunByHand](s, http.StatusCreated, post("/schedules/report.hourly:run", "")).JobID
	found := map[string]bool{}
	for _, open := range want[api.ScheduleRuns](s, http.StatusOK, get("/schedules/report.hourly/runs")).Unsettled {
		id, err := tocsin.ParseJobID(string(open.JobID))
		if err != nil {
			t.Fatal(err)
		}
		s.record(&store.Run{JobID: id, Schedule: uint64(schedule), Type: 1, Outcome: store.RunRetried})
		task := want[api.Task](s, http.StatusOK, get("/tasks/"+string(open.JobID)))
		of := want[api.Runs](s, http.StatusOK, get("/tasks/"+string(open.JobID)+"/runs")).Runs[0]
		fire := ""
		if task.FireTime != nil && of.FireTime != nil && task.FireTime.Equal(of.FireTime.Time) {
			fire = task.FireTime.UTC().Format(time.RFC3339)
		}
		if task.Schedule != "report.hourly" || of.Schedule != "report.hourly" || (fire == "") != (open.JobID == byHand) {
			t.Errorf("%+v\n%+v", task, of)
		}
		found[fire] = true
	}
	if !found["2026-05-01T00:30:00Z"] || !found[""] {
		t.Errorf("%v", found)
	}
	for _, r := range want[api.ScheduleRuns](s, http.StatusOK, get("/schedules/report.hourly/runs")).Runs.Runs {
		if r.Schedule != "report.hourly" || (r.FireTime == nil) != (r.JobID == byHand) || (r.For == "run_now") != (r.JobID == byHand) || r.For == "" {
			t.Errorf("%+v", r)
		}
	}
	if task := want[api.Task](s, http.StatusOK, get("/tasks/"+s.add(closing.New(1, "", tocsin.In(time.Hour))))); task.Schedule != "" || task.FireTime != nil {
		t.Errorf("%+v", task)
	}
}

// Runs that are not settled stand before the history, on its first page alone.
func TestTheOpenRunsOfAScheduleAreListed(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	made, _ := s.create(hourly("report.hourly", `, "start": "`+time.Now().Add(24*time.Hour).UTC().Format(time.RFC3339)+`"`)) // no run is made yet
	const path = "/schedules/report.hourly/runs"
	if got := s.do(get(path).by("read")); got.status != http.StatusOK || !strings.Contains(got.text, `"unsettled":[]`) {
		t.Errorf("without an open run: %d %s", got.status, got.text)
	}
	var byHand []api.ID
	for range 3 {
		byHand = append(byHand, want[api.RunByHand](s, http.StatusCreated, post("/schedules/report.hourly:run", "")).JobID)
	}
	id := s.taskOf(made)
	for range 2 {
		s.record(&store.Run{JobID: id, Schedule: uint64(id), Type: 1, Outcome: store.RunCompleted})
	}
	first := want[api.ScheduleRuns](s, http.StatusOK, get(path+"?limit=2").by("read"))
	if len(first.Unsettled) != 2 || len(first.Runs.Runs) != 2 || first.NextCursor == "" {
		t.Fatalf("%+v", first)
	}
	for _, r := range first.Unsettled {
		if !slices.Contains(byHand, r.JobID) || r.For != "run_now" || r.FireTime != nil || r.Status != "pending" || r.Attempts != 0 || r.ActionTime != r.DueTime || r.DueTime.IsZero() {
			t.Errorf("%+v", r)
		}
	}
	if got := s.do(get(path + "?limit=2&cursor=" + first.NextCursor).by("read")); got.status != http.StatusOK || strings.Contains(got.text, `"unsettled"`) {
		t.Errorf("the second page: %d %s", got.status, got.text)
	}
	if got := want[api.ScheduleRuns](s, http.StatusOK, get(path).by("read")); len(got.Unsettled) != 3 {
		t.Errorf("%+v", got.Unsettled)
	}
}

// A definition of the API has the fields of one in YAML and Go.
func TestDefinitionsHaveTheFieldsOfYAML(t *testing.T) {
	t.Parallel()
	names := func(of reflect.Type) (all []string) {
		for _, field := range reflect.VisibleFields(of) {
			if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); !field.Anonymous {
				all = append(all, name)
			}
		}
		return all
	}
	if ours, theirs := names(reflect.TypeFor[api.ScheduleDefinition]()), names(reflect.TypeFor[schedule.Definition]()); !slices.Equal(ours, theirs) {
		t.Errorf("%q\nwant %q", ours, theirs)
	}
}

func TestBizTypesShowAlarmAndHistory(t *testing.T) {
	t.Parallel()
	s := over(t, tocsintest.StartWith(t, biztype.Policy{Name: "order.close", Number: 1, History: true, Alarm: &biztype.Alarm{To: "order.alarm"}},
		biztype.Policy{Name: "order.pay", Number: 2, Alarm: &biztype.Alarm{To: "ops.alarm", On: []string{"missed"}, AtMostEvery: biztype.Duration(time.Hour)}},
		biztype.Policy{Name: "order.alarm", Number: 3}, biztype.Policy{Name: "ops.alarm", Number: 4}), nil)
	if b := want[api.BizType](s, http.StatusOK, get("/biz-types/order.close")); !b.History || b.Alarm == nil || b.Alarm.To != "order.alarm" || !slices.Equal(b.Alarm.On, []string{"dead", "missed"}) || b.Alarm.AtMostEveryMS != 300_000 {
		t.Errorf("%+v %+v", b, b.Alarm)
	}
	if b := want[api.BizType](s, http.StatusOK, get("/biz-types/order.alarm")); b.History || b.Alarm != nil {
		t.Errorf("%+v", b)
	}
	for token, to := range map[string]string{"read": "", "all": "ops.alarm"} {
		if b := want[api.BizType](s, http.StatusOK, get("/biz-types/order.pay").by(token)); b.Alarm == nil || b.Alarm.To != to || !slices.Equal(b.Alarm.On, []string{"missed"}) || b.Alarm.AtMostEveryMS != 3_600_000 {
			t.Errorf("%s: %+v %+v", token, b, b.Alarm)
		}
	}
}

// Of the same requests at once all succeed, and the acts say that one of them changed something.
func TestTheSameRequestFromManyAtOnce(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	_, tag := s.create(hourly("put", ""))
	for i, step := range []struct {
		operation, changed string
		others             []string // the outcomes of the others
		request            request
	}{
		{"create_schedule", "created", []string{"there already"}, post("/schedules", hourly("same", `, "payload": "p"`))},
		{"put_schedule", "changed", []string{"unchanged"}, put("put", tag, hourly("put", `, "payload": "q"`))},
		{"put_schedule", "changed", []string{"unchanged"}, put("same", "*", hourly("same", `, "payload": "q"`))},
		{"deactivate_schedule", "deactivated", []string{"inactive already"}, post("/schedules/same:deactivate", "")},
		{"activate_schedule", "activated", []string{"active already"}, post("/schedules/same:activate", "")},
		{"pause_biz_type", "changed", []string{"unchanged", "repaired"}, post("/biz-types/order.close:pause", "")},
		{"resume_biz_type", "changed", []string{"unchanged", "repaired"}, post("/biz-types/order.close:resume", "")},
	} {
		replies, _ := devtest.AtOnce(8, func(int) (reply, error) { return s.do(step.request.by("all")), nil })
		for _, r := range replies {
			if r.status != http.StatusOK && r.status != http.StatusCreated {
				t.Errorf("%s: %d %s", step.request.path, r.status, r.text)
			}
		}
		did := map[string]int{}
		for _, act := range s.noted(fmt.Sprintf("/acts?limit=%d", 1+8*(i+1)), 1+8*(i+1)).Acts[:8] {
			if act.Operation != step.operation || act.Outcome != step.changed && !slices.Contains(step.others, act.Outcome) {
				t.Errorf("%s: %+v", step.request.path, act)
			}
			did[act.Outcome]++
		}
		if did[step.changed] != 1 {
			t.Errorf("%s: %v", step.request.path, did)
		}
	}
}
