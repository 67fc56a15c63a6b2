package console_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/api"
	"github.com/tocsinhq/tocsin/api/console"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/node/nodetest"
	"github.com/tocsinhq/tocsin/operator"
	"github.com/tocsinhq/tocsin/tocsintest"
)

// A flow of each page, by links and forms alone, as without JavaScript.
func TestATaskIsFoundCancelledRescheduledBuriedAndRedriven(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	path := s.add(closing.New(42, "", tocsin.In(time.Hour)))
	b := s.as("all")
	got := b.get("/tasks?q=42")
	if got.header.Get("Location") != path {
		t.Fatalf("one task is not shown at once: %d %v %s", got.status, got.header, got.words())
	}
	b.sees(path, http.StatusOK, "not due", "pending", "order.close", "biz_id 42", "No attempt is recorded", "tocsin task why "+strings.TrimPrefix(path, "/tasks/"), "curl -sS "+s.url+"/v1"+path+`/why -H "Authorization: Bearer $TOCSIN_TOKEN"`)
	b.post(path+"/reschedule", url.Values{"at": {"tomorrow"}}).has(t, "reschedule", http.StatusUnprocessableEntity, "Give a time such as")
	if got := b.post(path+"/reschedule", url.Values{"at": {"tomorrow"}}); !strings.Contains(got.text, `value="tomorrow"`) || !strings.Contains(got.text, `id="act-reschedule" open`) {
		t.Errorf("the form has lost what was typed: %s", got.text)
	}
	b.post(path+"/reschedule", url.Values{"minutes": {"NaN"}}).has(t, "reschedule", http.StatusUnprocessableEntity, "number of minutes")
	b.done(path+"/reschedule", url.Values{"at": {"2031-05-06T07:08:09"}}, "The task was rescheduled", "2031-05-06 07:08:09 UTC")
	b.done(path+"/reschedule", url.Values{"minutes": {"90.5"}}, "in 1 h 30 min")
	b.done(path+"/bury", url.Values{"reason": {"the order is void"}}, "The task was buried", "✕ dead", "the order is void")
	b.post(path+"/cancel", nil).has(t, "cancel", http.StatusConflict, "Not in this status", "only a task that has not ended can be cancelled")
	b.done(path+"/redrive", url.Values{"same_key": {"1"}}, "The task was redriven", "pending")
	b.done(path+"/cancel", nil, "The task was cancelled", "ended: it is not read again").lacks(t, "an ended task", "data-refresh", "act-cancel", "act-redrive")
	b.sees("/tasks/12345", http.StatusNotFound, "Not found", "there is no task 12345 that you may see")
	b.sees("/tasks/12x", http.StatusUnprocessableEntity)
	b.post(path+"/explode", nil).has(t, "an act", http.StatusNotFound, "no such page")
	b.sees("/nowhere", http.StatusNotFound, "There is no such page")
}

func TestTheBoxFindsTasksByEachKeyAndSchedulesByName(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	key := `ord_" <b>&'01J8`
	byKey := s.add(closing.NewKey(key, "", tocsin.In(time.Hour)))
	most := s.add(closing.New(1<<64-1, "", tocsin.In(time.Hour)))
	for range 2 {
		s.add(closing.New(7, "", tocsin.In(time.Hour)))
	}
	s.yearly("report.daily", "")
	b := s.as("read")
	for q, want := range map[string]string{key: byKey, "18446744073709551615": most, strings.TrimPrefix(byKey, "/tasks/"): byKey, " " + key + " ": "", " 18446744073709551615\t": most} {
		if got := b.get("/tasks?q=" + url.QueryEscape(q)); got.header.Get("Location") != want {
			t.Errorf("%q leads to %q, want %s: %s", q, got.header.Get("Location"), want, got.words())
		}
	}
	one := s.add(closing.New(42, "", tocsin.In(time.Hour)))
	for q, want := range map[string]string{
		"order 42": one, "#42": one, "order 7": "/tasks?q=7", "order.close": "/biz-types/order.close", " order.close ": "/biz-types/order.close",
		"order 42 of 7": "", "order 8": "", "order 042": "", "coupon.remind": "", // of another token
	} {
		if got := b.get("/tasks?q=" + url.QueryEscape(q)); got.header.Get("Location") != want {
			t.Errorf("%q leads to %q, want %q: %s", q, got.header.Get("Location"), want, got.words())
		}
	}
	b.sees("/tasks?q=order+8", http.StatusOK, "Nothing has the job_id, biz_id, biz_key or schedule name order 8")
	b.sees("/tasks?q=7", http.StatusOK, "order.close 7 ○ pending", "Found by 7, whatever the status Or list all tasks in a status:", "Status choose one")
	b.sees("/tasks?q=report.daily", http.StatusOK, "Schedule: report.daily ✓ active")
	b.sees("/tasks?q=8", http.StatusOK, "Nothing has the job_id, biz_id, biz_key or schedule name 8", "Payloads can't be searched")
	b.sees("/tasks?q="+url.QueryEscape(`{"order":42,"text":"`+strings.Repeat("x", 64)+`"}`), http.StatusOK, "No key is that long. Payloads can't be searched")
	b.sees("/tasks?q=18446744073709551616", http.StatusOK, "Nothing has")
	b.sees("/tasks?q=0", http.StatusOK, "Nothing has")
	b.sees("/tasks", http.StatusOK, "reads an index of every table").lacks(t, "a list that nobody asked for", "<tbody>")
	b.sees("/tasks?status=dead", http.StatusOK, "There are none.")
	b.sees("/tasks?status=odd", http.StatusUnprocessableEntity)
	b.sees("/tasks?status=pending&biz_type=coupon.remind", http.StatusNotFound, "Unknown biz type")
}

// A list has 50 rows and a link to the next ones.
func TestAListIsReadPageByPage(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	var many []tocsin.NewTask
	for i := range 70 {
		many = append(many, closing.New(9, fmt.Sprint(i), tocsin.In(time.Hour)))
	}
	if _, err := s.Client.AddMany(t.Context(), many); err != nil {
		t.Fatal(err)
	}
	b := s.as("read")
	for _, from := range []string{"/tasks?q=9", "/tasks?status=pending&biz_type=order.close"} {
		seen, next := map[string]bool{}, from
		for page := 1; next != ""; page++ {
			got := b.sees(next, http.StatusOK)
			for _, m := range regexp.MustCompile(`href="/tasks/(\d+)"`).FindAllStringSubmatch(got.text, -1) {
				seen[m[1]] = true
			}
			more := regexp.MustCompile(`class="button" href="(\?[^"]*)"`).FindStringSubmatch(got.text)
			if next = ""; more != nil {
				next = "/tasks" + strings.ReplaceAll(more[1], "&amp;", "&")
			}
			if page > 5 {
				t.Fatal("the list does not end")
			}
		}
		if len(seen) != 70 {
			t.Errorf("%s: %d tasks", from, len(seen))
		}
	}
	b.sees("/tasks?q=9&cursor=x", http.StatusBadRequest, "this is no cursor")
}

func TestABizTypeIsPausedResumedAndItsDeadAreRedriven(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	for i := range 3 {
		path := s.add(closing.New(uint64(i+1), "", tocsin.In(time.Hour)))
		s.call("POST", path+":bury", `{"reason": "answer `+[]string{"503", "503", "404"}[i]+`"}`)
	}
	b := s.as("operate")
	const path = "/biz-types/order.close"
	b.sees("/biz-types", http.StatusOK, "order.close ✓ active", "Go handler").lacks(t, "the list", "coupon.remind")
	b.sees(path, http.StatusOK, "Waits between attempts 5 s after the first failure, then twice as long each time, up to 1h; each by chance up to half shorter (default)", "Time-out 30 s (default)", "Finished tasks kept 30 d (default)", "Attempts at most 16, then the task is dead (default)", "Alarms none")
	b.done(path+"/pause", nil, "The biz type is paused", "‖ paused", "Resume")
	waiting := s.add(closing.New(9, "", tocsin.In(0)))
	b.sees(waiting, http.StatusOK, "‖ paused biz type order.close is paused until somebody resumes it", "To its biz type, to resume it").lacks(t, "its page", "tocsin biz resume")
	b.header["Accept-Language"] = "zh"
	b.sees(waiting, http.StatusOK, "业务类型 order.close 已暂停，直到有人恢复；其策略最后修改于 20")
	delete(b.header, "Accept-Language")
	b.sees("/biz-types", http.StatusOK, "order.close ‖ paused")
	b.done(path+"/resume", nil, "delivered again")
	form := url.Values{"error": {"503"}, "do": {"count"}, "limit": {"10"}, "since": {"2020-01-01T00:00"}}
	got := b.post(path+"/redrive", form)
	got.has(t, "count", http.StatusOK, "2 tasks would be redriven", "To redrive these, type order.close")
	if !strings.Contains(got.text, `name="error" maxlength="255" value="503"`) {
		t.Errorf("the form has lost what was typed: %s", got.text)
	}
	form = got.hidden() // what was counted, whatever stands in the other form by now
	form.Set("do", "redrive")
	form.Set("confirm", "order")
	form.Set("reason", "the wrong name")
	got = b.post(path+"/redrive", form)
	if n := strings.Count(got.text, `value="the wrong name"`); n != 1 || strings.Index(got.text, `value="the wrong name"`) < strings.Index(got.text, `id="redrive"`) {
		t.Errorf("%d forms have the reason that was typed into one: %s", n, got.text)
	}
	got.has(t, "unconfirmed", http.StatusUnprocessableEntity, "type the name of the biz type", "2 tasks would be redriven")
	form = got.hidden()
	if form.Get("error") != "503" || form.Get("limit") != "10" || form.Get("since") != "2020-01-01T00:00" || form.Get("until") == "" {
		t.Errorf("counted and confirmed is %v", form)
	}
	form.Set("do", "redrive")
	form.Set("confirm", "order.close")
	b.post(path+"/redrive", form).has(t, "without a reason", http.StatusUnprocessableEntity, "say why", "2 tasks would be redriven")
	form.Set("reason", "the outage")
	b.done(path+"/redrive", form, "✓ 2 tasks were redriven.") // a page of its own: to reload it redrives nothing
	b.sees("/tasks?status=dead&biz_type=order.close", http.StatusOK, "answer 404").lacks(t, "the dead", "answer 503")
	for field, value := range map[string]string{"limit": "0", "per_second": "x", "since": "yesterday"} {
		b.post(path+"/redrive", url.Values{field: {value}}).has(t, field, http.StatusUnprocessableEntity, "Give a")
	}
	b.sees("/biz-types/coupon.remind", http.StatusNotFound, "Unknown biz type")
	s.as("all").sees(path, http.StatusOK, "Nodes of its group", "No node of group test is there")
	s.as("all").sees("/biz-types/nothing", http.StatusNotFound, "Unknown biz type")
}

func TestAScheduleIsRunDeactivatedAndActivated(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	s.yearly("report.daily", `, "zone": "Asia/Shanghai", "app": "billing", "payload": "{\"id\":18446744073709551615}"`)
	b := s.as("write")
	const path = "/schedules/report.daily"
	b.sees("/schedules", http.StatusOK, "report.daily billing ✓ active at 00:00, every year on 1 January (Asia/Shanghai) 0 0 1 1 *", "+08:00")
	b.sees("/schedules?app=other", http.StatusOK, "No schedule fits these filters")
	b.sees("/schedules?state=odd", http.StatusUnprocessableEntity)
	got := b.sees(path, http.StatusOK, "Next fire times", "UTC", "+08:00", "No run has ended yet", `"id": 18446744073709551615`, "tocsin schedule runs report.daily")
	once := regexp.MustCompile(`name="once" value="([A-Z2-7]+)"`).FindStringSubmatch(got.text)[1]
	for range 2 { // a double click
		b.done(path+"/run", url.Values{"once": {once}}, "A run was made", "by hand")
	}
	if n := strings.Count(b.get(path).text, "<small>by hand</small>"); n != 1 {
		t.Errorf("two clicks made %d runs", n)
	}
	runs := nodetest.RunDue(t, s.Cluster, handler(func(context.Context, *tocsin.Task[string]) error { return errors.New("<i>the printer</i> burns") }), time.Now().Add(time.Second))
	if len(runs) == 0 {
		t.Fatal("no run was delivered")
	}
	b.sees(path, http.StatusOK, "✕ failed, to be tried again (retried)", "The attempt failed or took too long", "<i>the printer</i> burns", "Of the newest 1 attempts: 1 failed", "p95 of durations")
	if strings.Contains(b.get(path).text, "<i>the") {
		t.Error("an output is part of the page")
	}
	b.done(path+"/deactivate", nil, "pending runs were cancelled", "⊘ inactive", "It would fire then if it were active")
	b.done(path+"/activate", nil, "The schedule is active")
	b.sees("/schedules/nothing", http.StatusNotFound, "there is no schedule")
	b.post("/schedules/nothing/run", nil).has(t, "run", http.StatusNotFound)
	b.post(path+"/explode", nil).has(t, "an act", http.StatusNotFound, "no such page")
}

// handler has all tasks of order.close done by a function.
func handler(do func(context.Context, *tocsin.Task[string]) error) *node.Handlers {
	var all node.Handlers
	node.Handle(&all, closing, do)
	return &all
}

func TestTheClusterIsAskedByButtonsOnly(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	s.add(closing.New(1, "", tocsin.In(time.Hour)))
	b := s.as("all")
	b.sees("/cluster", http.StatusOK, "Nothing is asked for until you choose").lacks(t, "the page", "<table>")
	b.sees("/cluster?show=nodes", http.StatusOK, "No node is there", "tocsin cluster nodes")
	b.sees("/cluster?show=tables", http.StatusOK, "Asked in")
	b.sees("/cluster?show=counts", http.StatusOK, "Asked in", "tocsin cluster tables --counts=true")
	b.sees("/cluster?show=stats", http.StatusOK, "order.close 1 0 0 0 0")
	s.as("read").sees("/cluster?show=nodes", http.StatusForbidden, "Your token is not for all biz types")
	s.as("read").sees("/cluster?show=stats", http.StatusOK, "order.close 1")
}

// Each button, and each token: it is hidden, and refused all the same, or there and taken. A biz type that the token is not for, its tasks
// and its schedules are not there.
func TestButtonsAreThoseThatTheTokenMayUse(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	for act, c := range map[string]struct{ of, needs string }{
		"cancel": {"task", "write"}, "reschedule": {"task", "write"}, "bury": {"task", "operate"}, "redrive": {"dead", "operate"}, "copy": {"task", "write"},
		"run": {"schedule", "write"}, "deactivate": {"schedule", "write"}, "activate": {"inactive", "write"}, "pause": {"type", "operate"}, "resume": {"paused", "operate"},
		"redrive?": {"type", "operate"}, "backfill": {"schedule", "operate"}, "delete": {"schedule", "write"},
	} {
		for _, as := range []string{"read", "write", "operate"} {
			path := s.object(c.of)
			b := s.as(as)
			to := path + "/" + strings.TrimSuffix(act, "?")
			shown := strings.Contains(b.get(path).text, `action="`+to)
			got := b.post(to, url.Values{"minutes": {"5"}, "reason": {"r"}, "do": {"redrive"}, "confirm": {strings.TrimLeft(path[strings.LastIndex(path, "/"):], "/")}, "biz_id": {"7"}, "from": {"2026-01-01T00:00"}, "to": {"2026-01-02T00:00"}, "tag": {"*"}})
			allowed := as == c.needs || as == "operate"
			if shown != allowed || (got.status < 400) != allowed || !allowed && got.status != http.StatusForbidden {
				t.Errorf("%s with the scope %s: shown %t, status %d: %s", act, as, shown, got.status, got.words())
			}
		}
	}
	foreign := s.add(remind.New(1, "", tocsin.In(time.Hour)))
	s.call("POST", "/schedules", `{"name": "foreign", "biz_type": "coupon.remind", "cron": "30 * * * *"}`)
	b := s.as("operate")
	for _, path := range []string{foreign, "/schedules/foreign", "/biz-types/coupon.remind", foreign + "?seen=x"} {
		b.sees(path, http.StatusNotFound).lacks(t, path, "coupon.remind is", "○ pending")
	}
	for _, path := range []string{foreign + "/cancel", foreign + "/reschedule", foreign + "/bury", foreign + "/redrive", foreign + "/copy", "/schedules/foreign/run", "/schedules/foreign/deactivate", "/biz-types/coupon.remind/pause", "/biz-types/coupon.remind/redrive"} {
		b.post(path, url.Values{"minutes": {"5"}, "reason": {"r"}, "do": {"redrive"}, "confirm": {"coupon.remind"}}).has(t, path, http.StatusNotFound)
	}
	for _, path := range []string{"/", "/biz-types", "/tasks?q=1", "/tasks?status=pending", "/schedules", "/cluster?show=stats"} {
		b.sees(path, http.StatusOK).lacks(t, path, "coupon.remind", "foreign")
	}
}

// object makes what a button is about, and returns its path.
func (s *site) object(what string) string {
	s.t.Helper()
	name := fmt.Sprintf("s%d", rand.Uint64())
	switch what {
	case "task", "dead":
		path := s.add(closing.New(rand.Uint64()|1, "", tocsin.In(time.Hour)))
		if what == "dead" {
			s.call("POST", path+":bury", "")
		}
		return path
	case "schedule", "inactive":
		s.yearly(name, "")
		if what == "inactive" {
			s.call("POST", "/schedules/"+name+":deactivate", "")
		}
		return "/schedules/" + name
	case "paused":
		s.call("POST", "/biz-types/order.close:pause", "")
		return "/biz-types/order.close"
	}
	s.call("POST", "/biz-types/order.close:resume", "")
	return "/biz-types/order.close"
}

// hostile are texts that would do something in a page that does not escape them, or look like something else.
var hostile = []string{`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `'-alert(1)-'`, `javascript:alert(1)`, `{{.}}`, "\u202egnp.exe", "</pre></textarea></title>", "\x1b[31m", "a\u0000b"}

// typed is the box, which keeps what somebody has typed as it is.
var typed = regexp.MustCompile(`<input id="q"[^>]*>`)

func TestStoredTextsAreShownAndDoNothing(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	all := strings.Join(hostile, " ")
	s.yearly("hostile", `, "payload": "<script>alert(1)</script>", "headers": {"x": "\"><img src=x onerror=alert(1)>"}`)
	b := s.as("all")
	path := s.add(closing.NewKey(`"><svg onload=alert(1)>`, all, tocsin.In(time.Hour)).Header("tenant", hostile[1]))
	s.call("POST", path+":bury", `{"reason": "</dd><script>alert(1)</script> \u202e"}`)
	for _, at := range []string{path, "/tasks?status=dead", "/schedules/hostile", "/schedules/hostile/edit", "/tasks?q=" + url.QueryEscape(hostile[0]), "/tasks?q=" + url.QueryEscape(all), "/login?next=" + url.QueryEscape(hostile[1])} {
		got := b.get(at)
		got.text = typed.ReplaceAllString(got.text, "")
		got.lacks(t, at, "\u202e", "\x1b", "\x00")
		for _, alive := range []string{"<script>alert", "<img", "<svg onload", `href="javascript:`, "</dd><script"} {
			if strings.Contains(got.text, alive) {
				t.Errorf("%s has %s", at, alive)
			}
		}
	}
	b.sees(path, http.StatusOK, "<script>alert(1)</script>", `\u202egnp.exe`, `\u001b[31m`, `"><svg onload=alert(1)>`)
	if got, command := b.get(path), "<pre>tocsin task redrive "+strings.TrimPrefix(path, "/tasks/")+"</pre>"; !strings.Contains(got.text, command) || !strings.Contains(got.text, "<li>Redrive, below, delivers it once more</li>") {
		t.Errorf("no %s: %s", command, got.text)
	}
	s.call("POST", path+":redrive", "")
	s.call("POST", path+":bury", `{"reason": "`+"`<img src=x onerror=alert(1)>`"+`"}`)
	if got := b.get(path); strings.Contains(got.text, "<img") {
		t.Errorf("code is alive: %s", got.text)
	}
	if got := b.get(path); !strings.Contains(got.text, `q=%22%3e%3csvg`) {
		t.Errorf("a link has another key: %s", got.text)
	}
	if command := b.get(path).words(); strings.Contains(command, "tocsin task get '"+path) {
		t.Error(command)
	}
	b.sees("/tasks?q="+url.QueryEscape(`o'clock; rm -rf $HOME`), http.StatusOK, `tocsin task list --key 'o'\''clock; rm -rf $HOME'`)
	if command := b.get("/tasks?status=" + url.QueryEscape("--$(reboot)")).words(); strings.Contains(command, " --$(reboot)") || !strings.Contains(command, "'--$(reboot)'") {
		t.Errorf("a command runs what the address of its page says: %s", command)
	}
}

func TestNumbersOfPayloadsAreShownAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	made := s.call("POST", "/tasks", `{"biz_type": "order.close", "biz_id": "18446744073709551615", "delay_ms": 3600000, "payload": "{\"n\":18446744073709551615,\"e\":1E400,\"d\":0.10,\"z\":-0}"}`)
	b := s.as("read")
	b.sees("/tasks/"+made["job_id"].(string), http.StatusOK, "biz_id 18446744073709551615", `{ "n": 18446744073709551615, "e": 1E400, "d": 0.10, "z": -0 }`)
	text := s.call("POST", "/tasks", `{"biz_type": "order.close", "biz_id": "1", "delay_ms": 3600000, "payload": "{\"n\":1"}`)
	b.sees("/tasks/"+text["job_id"].(string), http.StatusOK, `{"n":1`)
}

// Indents grow with the square of the depth: the deepest payload that can be stored would make a page of 33 MB.
func TestAPayloadThatIsNestedDeeplyMakesNoLargePage(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	deep := strings.Repeat("[", tocsin.MaxPayload/2) + strings.Repeat("]", tocsin.MaxPayload/2)
	b := s.as("read")
	if got := b.sees(s.add(closing.New(1, deep, tocsin.In(time.Hour))), http.StatusOK, deep); len(got.text) > 100<<10 {
		t.Errorf("the page has %d bytes", len(got.text))
	}
	const flat = `{"a": "[[[{{{", "b\\\"[": [1, {"c": [[]]}]}`
	b.sees(s.add(closing.New(2, strings.Repeat(`[`, 15)+strings.Repeat(flat+",", 50)+"1"+strings.Repeat(`]`, 15), tocsin.In(time.Hour))), http.StatusOK, `"c": [ [] ]`)
}

// A slash or a colon is in no name and no id. In a path of the API what follows it would be another operation.
func TestANameWithASlashOrAColonIsNone(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	s.yearly("report.daily", "")
	task := s.add(closing.New(7, "", tocsin.In(time.Hour)))
	b := s.as("all")
	for _, path := range []string{task + "%2fwhy", task + "%3acancel", "/schedules/report.daily%2fnext", "/schedules/report.daily%2fruns", "/schedules/report.daily%3arun", "/biz-types/order.close%3apause"} {
		b.sees(path, http.StatusNotFound, "no such page")
		b.post(path+"/run", nil).has(t, path, http.StatusNotFound, "no such page")
	}
	for _, key := range []string{"tenant:run", "report.daily/next", "report.daily/runs"} {
		path := s.add(closing.NewKey(key, "", tocsin.In(time.Hour)))
		if got := b.get("/tasks?q=" + url.QueryEscape(key)); got.header.Get("Location") != path {
			t.Errorf("%s leads to %q, want %s: %s", key, got.header.Get("Location"), path, got.words())
		}
	}
}

// Behind a proxy all paths begin with the base, and what is beside it is the API.
func TestAConsoleLivesBelowItsBase(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{console: func(c *console.Config) { c.Base = "/a/b/" }})
	path := s.add(closing.New(42, "", tocsin.In(time.Hour)))
	s.yearly("report.daily", "")
	bare := &browser{site: &site{t: t, url: s.host, host: s.host}, header: map[string]string{}}
	if got := bare.get("/a/b"); got.header.Get("Location") != "/a/b/" {
		t.Errorf("%d %v", got.status, got.header)
	}
	for _, beside := range []string{"/", "/a/bc", "/a/", "/v1/tasks/1", "/assets/"} {
		if got := bare.get(beside); got.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %s", beside, got.status, got.text)
		}
	}
	for path, want := range map[string]string{"/a/b//tasks?q=1": "/a/b/tasks?q=1", "/a/b/x/../schedules/": "/a/b/schedules", "/a/b//evil.example/%3fx": "/a/b/evil.example/%3Fx", "/a/b/../../x": "/a/b/x"} {
		if got := bare.get(path); got.status != http.StatusTemporaryRedirect || got.header.Get("Location") != want {
			t.Errorf("%s leads to %q, want %s: %d", path, got.header.Get("Location"), want, got.status)
		}
	}
	if got := bare.get("/a/b/tasks?q=1"); got.header.Get("Location") != "/a/b/login?next="+url.QueryEscape("/tasks?q=1") {
		t.Errorf("%v", got.header)
	}
	b := s.as("all")
	for _, page := range []string{"/", "/biz-types", "/tasks?status=pending", path, "/schedules", "/schedules/report.daily", "/biz-types/order.close", "/cluster?show=stats", "/acts", "/nowhere", "/login"} {
		got := b.get(page)
		for _, m := range regexp.MustCompile(`(?:href|action|src|hx-get)="([^"]*)"`).FindAllStringSubmatch(got.text, -1) {
			if !strings.HasPrefix(m[1], "/a/b/") && !strings.HasPrefix(m[1], "https://github.com/tocsinhq/tocsin/blob/main/docs/runbook.md#") && !strings.HasPrefix(m[1], "#") && !strings.HasPrefix(m[1], "?") {
				t.Errorf("%s leads to %s", page, m[1])
			}
		}
	}
	b.done(path+"/cancel", nil, "The task was cancelled")
	if got := b.get("/tasks?q=42"); got.header.Get("Location") != "/a/b"+path {
		t.Errorf("%v", got.header)
	}
}

// A server that is away takes with it what only it knows. The page says which, and shows the rest.
func TestAPageShowsWhatCouldBeReadAndSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	cluster := tocsintest.Start(t, closing, remind)
	for range 8 {
		if _, err := cluster.Client.Add(t.Context(), closing.New(rand.Uint64()|1, "", tocsin.In(time.Hour))); err != nil {
			t.Fatal(err)
		}
	}
	half := *cluster
	half.Config.Servers = []tocsin.Server{
		{Name: "here", DSN: cluster.Config.Servers[0].DSN, Databases: []int{0}}, {Name: "gone", DSN: "root@tcp(127.0.0.1:1)/", Databases: []int{1}},
	}
	b := over(t, &half, changes{}).as("all")
	b.sees("/tasks?status=pending", http.StatusOK, "This is not all. Could not be asked: gone", "order.close")
	b.sees("/cluster?show=stats", http.StatusOK, "Could not be asked: gone", "order.close")
	b.sees("/acts", http.StatusOK, "Could not be asked: gone", "No act fits")
	none := half
	none.Config.Servers = []tocsin.Server{{Name: "gone", DSN: "root@tcp(127.0.0.1:1)/"}}
	b = over(t, &none, changes{}).as("all")
	b.until("/", "Could not be asked: server gone").has(t, "the overview", http.StatusOK, "server gone", "What to do")
	for _, path := range []string{"/biz-types", "/tasks?status=pending", "/tasks?q=42", "/tasks/1152921504606846976", "/schedules", "/schedules.yaml", "/schedules/x", "/schedules/x/edit", "/schedules/x/yaml", "/biz-types/order.close", "/cluster?show=stats", "/acts"} {
		b.sees(path, http.StatusServiceUnavailable, "A server is away", "Ask again")
	}
	b.post("/biz-types/order.close/pause", nil).has(t, "pause", http.StatusServiceUnavailable, "A server is away")
}

func TestAnOpenTaskIsReadAgainByItsRowAlone(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	path := s.add(closing.New(1, "", tocsin.In(time.Hour)))
	b := s.as("all")
	ask := regexp.MustCompile(`hx-get="(/tasks/\d+\?seen=[^"]*)"`).FindStringSubmatch(b.get(path).text)
	if ask == nil {
		t.Fatal(b.get(path).text)
	}
	got := b.get(ask[1])
	if got.has(t, "a refresh", http.StatusOK, "○ pending"); !strings.HasPrefix(got.text, `<section id="row"`) || got.header.Get("HX-Retarget") != "" || got.size > 15<<10 {
		t.Errorf("%d bytes, %v: %s", got.size, got.header, got.text)
	}
	s.call("POST", path+":cancel", "")
	got = b.get(ask[1])
	if got.has(t, "a changed one", http.StatusOK, "⊘ cancelled"); !strings.HasPrefix(got.text, `<div id="live"`) || got.header.Get("HX-Retarget") != "#live" || strings.Contains(got.text, "data-refresh") {
		t.Errorf("%v: %s", got.header, got.text)
	}
}

func TestEveryAnswerHasThePolicyAndIsSmall(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	var many []tocsin.NewTask
	for range 60 {
		payload := make([]byte, 4000)
		for i := range payload {
			payload[i] = "0123456789abcdef"[rand.N(16)]
		}
		many = append(many, closing.New(9, string(payload)+string(payload[:4000]), tocsin.In(time.Hour)))
	}
	if _, err := s.Client.AddMany(t.Context(), many); err != nil {
		t.Fatal(err)
	}
	b := s.as("all")
	const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
	for _, path := range []string{"/", "/login", "/tasks", "/tasks?q=9", "/nowhere", "/schedules", "/cluster", "/assets/x/y", "/tasks?status=odd"} {
		h := b.get(path).header
		if h.Get("Content-Security-Policy") != policy || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("X-Frame-Options") != "DENY" || h.Get("Referrer-Policy") != "same-origin" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %v", path, h)
		}
	}
	if got := s.as("").post("/login", nil); got.header.Get("Content-Security-Policy") != policy {
		t.Errorf("%v", got.header)
	}
	first := b.get("/")
	whole := first.size
	for _, m := range regexp.MustCompile(`(?:href|src)="(/assets/[^"]*)"`).FindAllStringSubmatch(first.text, -1) {
		got := b.get(m[1])
		if whole += got.size; got.status != http.StatusOK || !strings.Contains(got.header.Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %d %v", m[1], got.status, got.header)
		}
	}
	if t.Logf("the first view has %d bytes", whole); whole > 60<<10 {
		t.Errorf("the first view has %d bytes", whole)
	}
	list := b.sees("/tasks?q=9", http.StatusOK, "Next 50")
	if t.Logf("50 tasks have %d bytes", list.size); list.size > 40<<10 {
		t.Errorf("50 tasks have %d bytes", list.size)
	}
}

// The console is beside the API in one server, which ends once no page is being made.
func TestAnAPIServesAConsoleBesideIt(t *testing.T) {
	t.Parallel()
	cluster := tocsintest.Start(t, closing)
	served := api.New(api.Config{
		Tables: cluster.Config, Cluster: operator.View{Tables: cluster.Config, ByRows: true}, Body: 1 << 10, Rate: 100, Timeout: time.Minute, Drain: time.Minute,
		Beside: func(a *api.API) http.Handler {
			return console.New(console.Config{API: a, Base: "/pages/", Timeout: time.Minute})
		},
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- served.Serve(ctx, l, nil) }()
	b := &browser{site: &site{t: t, url: "http://" + l.Addr().String()}, header: map[string]string{}}
	b.sees("/pages/", http.StatusOK, "Is anything wrong?")
	b.sees("/pages/biz-types", http.StatusOK, "order.close")
	if got := b.get("/v1/biz-types"); got.header.Get("Content-Type") != "application/json" {
		t.Errorf("%d %s", got.status, got.text)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
