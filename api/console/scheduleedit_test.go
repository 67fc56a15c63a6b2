package console_test

import (
	"context"
	"errors"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/api/console"
	"github.com/tocsinhq/tocsin/node/nodetest"
	"github.com/tocsinhq/tocsin/schedule"
)

// fill is the form of a page with what it hides, and some fields typed.
func fill(page reply, do string, pairs ...string) url.Values {
	form := page.hidden()
	for i := 0; i < len(pairs); i += 2 {
		form.Set(pairs[i], pairs[i+1])
	}
	form.Set("do", do)
	return form
}

// stored is the definition of a schedule.
func (s *site) stored(name string) map[string]any {
	s.t.Helper()
	return s.call("GET", "/schedules/"+name, "")["definition"].(map[string]any)
}

func TestAScheduleIsChangedOnceItsDiffWasSeen(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	s.yearly("report.daily", `, "app": "billing", "zone": "Europe/Berlin", "payload": "\n{\"n\":18446744073709551615}\n", "headers": {"a": "<b>"}, "start": "2026-01-01T00:00:00.123Z"`)
	const path = "/schedules/report.daily/edit"
	b := s.as("write")
	form := b.sees(path, http.StatusOK, "report.daily never changes", "Nothing is saved before you have seen")
	if !strings.Contains(form.text, "spellcheck=\"false\">\n\n{&#34;n&#34;:18446744073709551615}\n</textarea>") || !strings.Contains(form.text, `value="2026-01-01T00:00:00.123Z"`) {
		t.Errorf("a field is not as it is stored: %s", form.text)
	}
	same := b.post(path, fill(form, "preview", "payload", "\r\n{\"n\":18446744073709551615}\r\n", "headers", `{"a":"<b>"}`, "start", "2026-01-01T00:00:00.123Z"))
	same.has(t, "no change", http.StatusOK, "Nothing: the schedule is as the form says")
	same.lacks(t, "no change", "Save the change")
	wrong := b.post(path, fill(form, "preview", "cron", "*/95 * * * *", "jitter", "x", "pause_after", "y", "start", "z", "headers", "[]", "app", "<i>"))
	wrong.has(t, "faults", http.StatusUnprocessableEntity, "mend the fields", "has a step of 95", "want a duration", "Give a whole number", "Give a time such as", "Give a JSON object of texts")
	if !strings.Contains(wrong.text, `value="*/95 * * * *"`) || strings.Contains(wrong.text, "<i>") {
		t.Errorf("what was typed is lost, or alive: %s", wrong.text)
	}
	b.post(path, fill(form, "preview", "biz_type", "coupon.remind")).has(t, "a foreign biz type", http.StatusNotFound, "Unknown biz type")
	typed := []string{"cron", "30 2 * * 1-5", "start_within", "", "overlap", "queue"}
	seen := b.post(path, fill(form, "preview", typed...))
	seen.has(t, "the preview", http.StatusOK, "What would change", "cron 0 0 1 1 * 30 2 * * 1-5", "allow queue", "at 02:30, Monday to Friday (Europe/Berlin)", "Next fire times", "+01:00", "Save the change")
	if got := s.stored("report.daily"); got["cron"] != "0 0 1 1 *" {
		t.Errorf("a preview changed the schedule: %v", got)
	}
	b.post(path, fill(seen, "save", append(typed, "app", "other")...)).has(t, "a form that changed since", http.StatusOK, "has changed since you saw", "billing other")
	b.done(path, fill(seen, "save", typed...), "The schedule is changed", "30 2 * * 1-5", "revision 2")
	if got := s.stored("report.daily"); got["overlap"] != "queue" || got["app"] != "billing" || got["start_within"] != "10m0s" || got["start"] != "2026-01-01T00:00:00.123Z" {
		t.Errorf("%v", got)
	}
	s.yearly("unseen", `, "payload": "a\u202eb"`)
	seen = b.post("/schedules/unseen/edit", fill(b.sees("/schedules/unseen/edit", http.StatusOK, "it stays as it is"), "preview", "payload", "c", "app", "x"))
	b.done("/schedules/unseen/edit", fill(seen, "save", "payload", "c", "app", "x"), "The schedule is changed")
	if got := s.stored("unseen"); got["payload"] != "a\u202eb" || got["app"] != "x" {
		t.Errorf("%q", got)
	}
	b.post(path, url.Values{"base": {"{"}}).has(t, "a broken form", http.StatusBadRequest, "The form is not whole")
}

// What both have changed is there: nobody's change is lost, and none is saved unseen.
func TestAChangeThatMeetsAnotherIsAMerge(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	s.yearly("report.daily", `, "app": "billing"`)
	const path = "/schedules/report.daily/edit"
	b := s.as("write")
	form := b.get(path)
	typed := []string{"cron", "0 3 * * *", "overlap", "queue", "jitter", "5m", "payload", "mine"}
	seen := b.post(path, fill(form, "preview", typed...))
	other, theirs := s.as("operate"), []string{"cron", "0 4 * * *", "app", "sales", "pause_after", "3", "jitter", "5m0s"}
	other.done(path, fill(other.post(path, fill(form, "preview", theirs...)), "save", theirs...), "The schedule is changed")
	for do, page := range map[string]reply{"preview": form, "save": seen} {
		got := b.post(path, fill(page, do, typed...))
		got.has(t, do, http.StatusPreconditionFailed, "Somebody else has saved this schedule meanwhile", "cron 0 0 1 1 * 0 3 * * * 0 4 * * * ⚠ yours: decide", "allow queue not changed ✓ yours",
			"App billing not changed sales ✓ theirs", "0 not changed 3 ✓ theirs", "Jitter 0s 5m0s 5m0s")
		for _, value := range []string{`value="0 3 * * *"`, `value="sales"`, `value="3"`, `<option value="queue" selected>`, "mine</textarea>"} {
			if !strings.Contains(got.text, value) {
				t.Errorf("%s: the merged form lacks %s: %s", do, value, got.text)
			}
		}
		form = got
	}
	if got := s.stored("report.daily"); got["cron"] != "0 4 * * *" || got["overlap"] != "allow" {
		t.Errorf("a merge changed the schedule: %v", got)
	}
	both := append(typed, "app", "sales", "pause_after", "3")
	seen = b.post(path, fill(form, "preview", both...))
	seen.has(t, "the merged preview", http.StatusOK, "cron 0 4 * * * 0 3 * * *")
	seen.lacks(t, "the merged preview", "Somebody else")
	b.done(path, fill(seen, "save", both...), "The schedule is changed")
	if got := s.stored("report.daily"); got["cron"] != "0 3 * * *" || got["app"] != "sales" || got["pause_after"] != 3.0 || got["overlap"] != "queue" || got["payload"] != "mine" {
		t.Errorf("%v", got)
	}
	page := b.get("/schedules/report.daily")
	s.call("POST", "/schedules/report.daily:deactivate", "")
	s.call("POST", "/schedules/report.daily:activate", "")
	b.post("/schedules/report.daily/delete", fill(page, "", "confirm", "report.daily")).has(t, "a stale delete", http.StatusPreconditionFailed, "Changed meanwhile")
	b.post("/schedules/report.daily/delete", fill(b.get("/schedules/report.daily"), "", "confirm", "report")).has(t, "another name", http.StatusUnprocessableEntity, "Nothing was deleted")
	form = b.get(path)
	b.done("/schedules/report.daily/delete", fill(b.get("/schedules/report.daily"), "", "confirm", "report.daily"), "The schedule is deleted", "There are no schedules")
	b.post(path, fill(form, "preview", typed...)).has(t, "a schedule that is gone", http.StatusNotFound, "there is no schedule", "mine")
}

func TestAScheduleIsCreatedOrCopied(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	const path = "/new-schedule"
	b := s.as("write")
	form := b.sees(path, http.StatusOK, "New schedule", "Name (required)")
	b.post(path, fill(form, "save", "name", "Report")).has(t, "faults", http.StatusUnprocessableEntity, "mend the fields")
	typed := []string{"name", "report.daily", "biz_type", "order.close", "cron", "@every 90s", "biz_id", "18446744073709551615", "payload", "p"}
	seen := b.post(path, fill(form, "save", typed...))
	seen.has(t, "an unseen one", http.StatusOK, "What it would do", "every 1 min 30 s", "Create the schedule")
	b.sees("/schedules", http.StatusOK, "There are no schedules")
	b.done(path, fill(seen, "save", typed...), "The schedule is created, and active", "18446744073709551615")
	b.done(path, fill(seen, "save", typed...), "18446744073709551615") // sent twice
	other := slices.Clone(typed)
	other[5] = "@every 91s"
	again := b.post(path, fill(form, "save", other...))
	b.post(path, fill(again, "save", other...)).has(t, "again", http.StatusConflict, "The name is taken")
	copied := b.sees(path+"?from=report.daily", http.StatusOK)
	if !strings.Contains(copied.text, `value="@every 90s"`) || !strings.Contains(copied.text, `name="name" value=""`) {
		t.Error(copied.text)
	}
	b.sees(path+"?from=nothing", http.StatusNotFound)
	for _, path := range []string{path, "/schedules/report.daily/edit"} {
		s.as("read").sees(path, http.StatusForbidden, "with a token of scope write").lacks(t, path, "<textarea")
		s.as("read").post(path, fill(seen, "save", typed...)).has(t, path, http.StatusForbidden)
	}
	s.as("read").sees("/schedules/report.daily", http.StatusOK).lacks(t, "a reader's page", "/edit", "new-schedule", "/backfill", "/delete")
	s.call("POST", "/schedules", `{"name": "foreign", "biz_type": "coupon.remind", "cron": "30 * * * *"}`)
	for _, path := range []string{"/schedules/foreign/edit", "/schedules/foreign/yaml", path + "?from=foreign"} {
		b.sees(path, http.StatusNotFound).lacks(t, path, "30 * * * *")
	}
	b.post("/schedules/foreign/edit", fill(seen, "preview", append(typed, "tag", "*")...)).has(t, "a foreign one", http.StatusNotFound)
	b.post("/schedules/foreign/delete", url.Values{"confirm": {"foreign"}, "tag": {"*"}}).has(t, "a foreign one", http.StatusNotFound)
	s.as("operate").post("/schedules/foreign/backfill", url.Values{"from": {"2026-01-01T00:00"}, "to": {"2026-01-02T00:00"}}).has(t, "a foreign one", http.StatusNotFound)
}

// What a file of the console says is what is stored: to apply it changes nothing.
func TestAFileOfTheListIsTakenByApply(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	s.yearly("report.daily", `, "app": "billing", "payload": "{\"n\":18446744073709551615}\n\u202e'", "headers": {"x": "<b>"}, "jitter": "90s", "end": "2099-01-01T00:00:00Z"`)
	s.yearly("report.weekly", `, "app": "billing", "biz_id": "18446744073709551615", "payload": "", "overlap": "replace", "pause_after": 3`)
	s.yearly("orders.sweep", "")
	s.call("POST", "/schedules", `{"name": "foreign", "biz_type": "coupon.remind", "cron": "30 * * * *"}`)
	timers, err := schedule.Open(t.Context(), s.Config)
	if err != nil {
		t.Fatal(err)
	}
	defer timers.Close()
	b := s.as("read")
	for path, want := range map[string]int{"/schedules.yaml": 3, "/schedules.yaml?app=billing": 2, "/schedules.yaml?q=weekly&sort=name": 1, "/schedules/report.daily/yaml": 1} {
		got := b.get(path)
		if got.status != http.StatusOK || !strings.HasPrefix(got.header.Get("Content-Type"), "application/yaml") || !strings.Contains(got.header.Get("Content-Disposition"), "attachment") {
			t.Errorf("%s: %d %v", path, got.status, got.header)
		}
		read, err := schedule.Parse([]byte(got.text), path)
		if err != nil || len(read) != want {
			t.Fatalf("%s: %d, %v: %s", path, len(read), err, got.text)
		}
		applied, err := timers.Apply(t.Context(), read, true)
		for _, a := range applied {
			if a.Verdict != schedule.Unchanged {
				t.Errorf("%s: %+v", path, a)
			}
		}
		if err != nil {
			t.Error(err)
		}
	}
	b.sees("/schedules.yaml?q=none", http.StatusNotFound, "No schedule fits")
	b.sees("/schedules.yaml?state=odd", http.StatusUnprocessableEntity)
	if got := b.get("/schedules?app=billing&cursor=").text; !strings.Contains(got, `href="/schedules.yaml?app=billing"`) {
		t.Error(got)
	}
	b.sees("/schedules/report.weekly", http.StatusOK, "schedules: - name: report.weekly app: billing", "Save as a file")
}

func TestASpanIsCountedBeforeItIsBackfilled(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	s.call("POST", "/schedules", `{"name": "report.daily", "biz_type": "order.close", "cron": "30 2 * * *", "zone": "Asia/Shanghai"}`)
	const path = "/schedules/report.daily"
	b := s.as("operate")
	b.post(path+"/backfill", url.Values{"from": {"x"}, "to": {""}}).has(t, "no span", http.StatusUnprocessableEntity, "Give a time such as")
	b.post(path+"/backfill", url.Values{"from": {"2020-01-01T00:00"}, "to": {"2024-01-01T00:00"}}).has(t, "too much", http.StatusUnprocessableEntity, "more than 1000 fire times")
	b.post(path+"/backfill", url.Values{"from": {"2026-01-01T00:00"}, "to": {"2026-01-01T00:01"}}).has(t, "nothing", http.StatusOK, "no fire time in that span")
	counted := b.post(path+"/backfill", url.Values{"from": {"2026-01-01T00:00"}, "to": {"2026-01-11T00:00"}})
	counted.has(t, "the count", http.StatusOK, "Fire times: 10.", "2026-01-02 02:30:00 +08:00", "and 5 more", "Make runs for 10 fire times", "tocsin schedule backfill report.daily --from 2026-01-01T00:00:00Z")
	b.sees(path, http.StatusOK).lacks(t, "a dry run", "by a backfill")
	form := fill(counted, "make")
	b.post(path+"/backfill", form).has(t, "the backfill", http.StatusOK, "Runs made: 10.", "by a backfill")
	counted = b.post(path+"/backfill", fill(counted, "make", "to", "2026-01-12T00:00:00Z"))
	counted.has(t, "another span than was counted", http.StatusOK, "The fire times are not those that you saw", "Fire times: 11.")
	s.call("POST", "/schedules/report.daily:deactivate", "")
	edit := b.get(path + "/edit")
	hourly := []string{"biz_type", "order.close", "cron", "30 * * * *"}
	b.done(path+"/edit", fill(b.post(path+"/edit", fill(edit, "preview", hourly...)), "save", hourly...))
	b.post(path+"/backfill", fill(counted, "make")).has(t, "a schedule that was changed since", http.StatusOK, "No run was made", "Fire times: 264.")
	edit = b.get(path + "/edit")
	daily := []string{"biz_type", "order.close", "cron", "30 2 * * *"}
	b.done(path+"/edit", fill(b.post(path+"/edit", fill(edit, "preview", daily...)), "save", daily...))
	b.post(path+"/backfill", form).has(t, "again", http.StatusOK, "Runs made: 0. Made by an earlier backfill and still stored: 10.")
	s.as("write").sees(path, http.StatusOK).lacks(t, "without the scope", "/backfill")
	s.as("write").post(path+"/backfill", form).has(t, "without the scope", http.StatusForbidden)
}

// The button leads to the task that it made, and each run says whether it was made by hand.
func TestRunsAreDrawnAndSayWhoMadeThem(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	s.yearly("report.daily", "")
	const path = "/schedules/report.daily"
	b := s.as("operate")
	task := b.done(path+"/run", fill(b.get(path), ""), "A run was made", "Schedule report.daily · by hand")
	counted := b.post(path+"/backfill", url.Values{"from": {"2025-12-31T00:00"}, "to": {"2026-01-02T00:00"}})
	b.post(path+"/backfill", fill(counted, "make")).has(t, "the backfill", http.StatusOK, "Runs made: 1.")
	nodetest.RunDue(t, s.Cluster, handler(func(_ context.Context, task *tocsin.Task[string]) error {
		if task.FireTime.IsZero() {
			return tocsin.Bury(errors.New("no paper"))
		}
		return nil
	}), time.Now().Add(time.Second))
	got := b.sees(path, http.StatusOK, "✕ failed for good (buried) by hand", "✓ worked (completed) by a backfill", "Of the newest 2 attempts: 1 failed", "p95 of durations", "the dashed line is the p95")
	if n := len(regexp.MustCompile(`<g( class="failed")?><title>[^<]* (✓ worked \(completed\)|✕ failed for good \(buried\)) · `).FindAllString(got.text, -1)); n != 2 || strings.Count(got.text, ">✕</text>") != 1 {
		t.Errorf("%d bars: %s", n, got.text)
	}
	id := regexp.MustCompile(`Task (\d+)`).FindStringSubmatch(task.words())
	b.sees("/tasks/"+id[1], http.StatusOK, "✕ failed for good (buried) by hand", "no paper")
}

// lossy is an API whose answers get lost once something is made.
type lossy struct {
	http.Handler

	loses string // the end of the path
}

func (l *lossy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if l.loses != "" && strings.HasSuffix(r.URL.Path, l.loses) {
		l.loses = ""
		l.Handler.ServeHTTP(httptest.NewRecorder(), r)
		http.Error(w, "", http.StatusBadGateway)
		return
	}
	l.Handler.ServeHTTP(w, r)
}

// Whoever presses the button again after an error gets the run that was made.
func TestARunWhoseAnswerIsLostIsMadeOnce(t *testing.T) {
	t.Parallel()
	l := &lossy{}
	s := serve(t, changes{console: func(c *console.Config) {
		l.Handler, c.API = c.API, l
	}})
	s.yearly("report.daily", "")
	const path = "/schedules/report.daily"
	b := s.as("write")
	page := b.get(path)
	l.loses = ":run"
	lost := b.post(path+"/run", fill(page, ""))
	lost.has(t, "a lost answer", http.StatusBadGateway)
	b.done(path+"/run", fill(lost, ""), "by hand")
	if n := strings.Count(b.get(path).text, "<small>by hand</small>"); n != 1 {
		t.Errorf("%d runs were made", n)
	}
	b.done(path+"/run", fill(b.get(path), ""), "by hand")
	if n := strings.Count(b.get(path).text, "<small>by hand</small>"); n != 2 {
		t.Errorf("another run: there are %d", n)
	}
}

// A payload that a form can't have stays as others have saved it: a merge does not say that the form has mine.
func TestAMergeKeepsWhatAFormCantHave(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	s.yearly("report.daily", `, "payload": "a"`)
	const path = "/schedules/report.daily/edit"
	b := s.as("write")
	typed := []string{"payload", "mine", "app", "billing"}
	seen := b.post(path, fill(b.get(path), "preview", typed...))
	b.done(path, fill(seen, "save", "payload", "mine", "app", "billing"), "The schedule is changed")
	form := b.get(path)
	file := b.get("/schedules/report.daily/yaml").text
	all, err := schedule.Parse([]byte(strings.Replace(file, "payload: mine", `payload: "theirs\u202e"`, 1)), "x.yaml")
	if err != nil {
		t.Fatal(err)
	}
	timers, err := schedule.Open(t.Context(), s.Config)
	if err != nil {
		t.Fatal(err)
	}
	defer timers.Close()
	if _, err := timers.Apply(t.Context(), all, false); err != nil {
		t.Fatal(err)
	}
	typed = []string{"payload", "mine again", "app", "sales"}
	got := b.post(path, fill(form, "preview", typed...))
	got.has(t, "the merge", http.StatusPreconditionFailed, `Payload mine mine again theirs\u202e ✓ theirs`, "it stays as it is", "✓ yours")
	got.lacks(t, "the merge", "yours: decide", `name="payload"`)
	seen = b.post(path, fill(got, "preview", typed...))
	b.done(path, fill(seen, "save", typed...), "The schedule is changed")
	if got := s.stored("report.daily"); got["payload"] != "theirs\u202e" || got["app"] != "sales" {
		t.Errorf("%q", got)
	}
}

// Before 1901 zones have seconds, which a time of a form can't have.
func TestAnOldTimeIsReadAsItIsWritten(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	s.yearly("report.daily", `, "start": "1900-01-01T00:00:00Z"`)
	const path = "/schedules/report.daily/edit"
	b := s.as("write")
	b.cookies = append(b.cookies, &http.Cookie{Name: "tocsin_zone", Value: "Asia/Shanghai"})
	got := b.get(path)
	value := regexp.MustCompile(`name="start" value="([^"]*)"`).FindStringSubmatch(got.text)
	if value == nil {
		t.Fatal(got.text)
	}
	b.post(path, fill(got, "preview", "start", html.UnescapeString(value[1]), "biz_type", "order.close", "cron", "0 0 1 1 *")).has(t, value[1], http.StatusOK, "Nothing: the schedule is as the form says")
}

// broken is an API that panics.
type broken struct {
	http.Handler

	at string
}

func (b *broken) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if b.at != "" && strings.HasSuffix(r.URL.Path, b.at) {
		panic("broken")
	}
	b.Handler.ServeHTTP(w, r)
}

// A page asks parts of a cluster in goroutines. A panic in one of them is an answer and a line in the log, not the end of the node.
func TestAPanicInAPartOfAPageIsAnAnswer(t *testing.T) {
	t.Parallel()
	p := &broken{}
	s := serve(t, changes{console: func(c *console.Config) {
		p.Handler, c.API = c.API, p
	}})
	s.yearly("report.daily", "")
	b := s.as("read")
	p.at = "/next"
	b.sees("/schedules/report.daily", http.StatusInternalServerError, "the console failed")
	if !strings.Contains(s.log.String(), "panic: broken") {
		t.Error(s.log.String())
	}
	p.at = ""
	b.sees("/schedules/report.daily", http.StatusOK)
}

// The page that answers a form leads to the rest of the history, which is of the schedule and not of the form.
func TestAnAnswerToAFormLeadsToTheNextPage(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{console: func(c *console.Config) { c.Base = "/a/b/" }})
	s.call("POST", "/schedules", `{"name": "report.daily", "biz_type": "order.close", "cron": "30 2 * * *"}`)
	s.call("POST", "/schedules/report.daily:backfill", `{"from": "2026-01-01T00:00:00Z", "to": "2026-03-02T00:00:00Z"}`)
	nodetest.RunDue(t, s.Cluster, handler(func(context.Context, *tocsin.Task[string]) error { return nil }), time.Now().Add(time.Second))
	b := s.as("operate")
	counted := b.post("/schedules/report.daily/backfill", url.Values{"from": {"2026-01-01T00:00"}, "to": {"2026-01-03T00:00"}})
	to := counted.linked("Next 50")
	if !strings.HasPrefix(to, "/a/b/schedules/report.daily?cursor=") {
		t.Fatalf("it leads to %q: %s", to, counted.words())
	}
	b.sees(strings.TrimPrefix(to, "/a/b"), http.StatusOK, "✓ worked (completed) by a backfill")
}
