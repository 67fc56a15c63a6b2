package console_test

import (
	"html"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/api"
	"github.com/tocsinhq/tocsin/api/console"
	"github.com/tocsinhq/tocsin/operator"
)

// linked is where a link with a text leads to; "" without one.
func (r reply) linked(text string) string {
	if m := regexp.MustCompile(`<a [^>]*?href="([^"]*)"[^>]*>` + regexp.QuoteMeta(text) + `</a>`).FindStringSubmatch(r.text); m != nil {
		return html.UnescapeString(m[1])
	}
	return ""
}

// Who may see acts is one click away from who did what: to a biz type, a task and a schedule, with the reason that was given.
func TestWhoPausedItIsOneClickAway(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	task := s.add(closing.New(42, "", tocsin.In(time.Hour)))
	s.yearly("report.daily", "")
	const bizType, schedule = "/biz-types/order.close", "/schedules/report.daily"
	oncall, all := s.as("operate"), s.as("all")
	oncall.done(bizType+"/pause", url.Values{"reason": {"the shop is <b>away</b>"}}, "The biz type is paused")
	oncall.done(task+"/cancel", nil, "The task was cancelled")
	oncall.done(schedule+"/deactivate", url.Values{"reason": {"no paper"}}, "inactive")
	for at, c := range map[string]struct {
		link string
		says []string
	}{
		bizType:  {"Who paused it?", []string{"operate in the console pause a biz type biz type order.close the shop is <b>away</b> changed"}},
		task:     {"Who changed it?", []string{"operate in the console cancel a task task " + strings.TrimPrefix(task, "/tasks/") + " of order.close – cancelled"}},
		schedule: {"Who changed it?", []string{"operate in the console deactivate a schedule schedule report.daily", "no paper deactivated", "all by the API create a schedule"}},
	} {
		to := all.get(at).linked(c.link)
		if to == "" {
			t.Fatalf("%s has no link %q", at, c.link)
		}
		for _, says := range c.says {
			all.until(to, says).has(t, to, http.StatusOK, "Who did what")
		}
		oncall.sees(at, http.StatusOK).lacks(t, at, c.link, `href="/acts`)
	}
	oncall.sees("/acts", http.StatusForbidden, "Your token is not for all biz types").lacks(t, "acts", "the shop")
	got := all.sees("/acts?person=operate&operation=pause_biz_type&object=biz+type", http.StatusOK, "tocsin acts --object 'biz type' --person operate --operation pause_biz_type --limit 50", `curl -sS 'http`)
	if to := got.linked("biz type order.close"); to != bizType {
		t.Errorf("the object leads to %q", to)
	}
	if got.lacks(t, "a filter", "no paper"); strings.Contains(got.text, "<b>away") {
		t.Error("a reason is part of the page")
	}
	all.sees("/acts?to=2020-01-01T00:00", http.StatusOK, "No act fits").lacks(t, "acts of any kind", "its policy may say so")
	all.sees("/acts?object=coupon.remind&operation=pause_biz_type", http.StatusOK, "No act fits. If the biz type is paused, its policy may say so from the start.")
	for _, name := range []string{"order.close", "report.daily", strings.TrimPrefix(task, "/tasks/")} {
		all.sees("/acts?object="+name, http.StatusOK, name).lacks(t, name, "No act fits")
	}
	s.call("POST", "/tasks:redrive", `{"biz_type": "order.close", "error": "503"}`)
	got = all.until(all.get(bizType).linked("Who changed it?"), "biz type order.close, dead tasks – 0 redriven, error 503")
	if to := got.linked("biz type order.close, dead tasks"); to != bizType {
		t.Errorf("a redrive leads to %q", to)
	}
	all.sees("/acts?from=x", http.StatusUnprocessableEntity, "Give a time such as")
	all.header["Accept-Language"] = "zh"
	all.sees("/acts", http.StatusOK, "操作记录", "暂停业务类型", "在控制台")
}

// Everybody of a host without tokens is "not logged in". Redriving and adding by hand are acts in the console, too, with the reason of a bulk act.
func TestWhatIsDoneInTheConsoleIsAnActPageByPage(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{api: func(c *api.Config) { c.Tokens = nil }})
	b := s.as("")
	var ids []string
	for i := range 3 {
		path := s.add(closing.New(uint64(i+1), "", tocsin.In(time.Hour)))
		ids = append(ids, strings.TrimPrefix(path, "/tasks/"))
		b.done(path+"/bury", url.Values{"reason": {"void"}}, "buried")
	}
	b.done("/tasks/"+ids[0]+"/copy", url.Values{"biz_id": {"9"}, "minutes": {"90"}, "once": {"k"}})
	b.post("/tasks/act", url.Values{"job_id": ids[:1], "act": {"redrive"}, "reason": {"by mistake"}}).has(t, "act", http.StatusOK, "Done: 1.")
	people, err := operator.Open(t.Context(), s.Config)
	if err != nil {
		t.Fatal(err)
	}
	defer people.Close()
	if err := people.Note(t.Context(), slices.Repeat([]operator.PastAct{{At: time.Now(), Person: "bob@host-1", Via: operator.ViaCommand, Operation: "resume_biz_type", Object: "biz type coupon.remind", Outcome: "ok"}}, 50)); err != nil {
		t.Fatal(err)
	}
	b.until("/acts?operation=act_on_tasks", "not logged in in the console act on selected tasks 1 tasks, "+ids[0]+" the first by mistake 1 done, 0 failed")
	b.until("/acts?operation=add_task", "not logged in in the console add a task")
	b.until("/acts?operation=resume_biz_type", "bob@host-1 by a command resume a biz type biz type coupon.remind – ok")
	first := b.until("/acts", "Next 50")
	if rest := b.sees("/acts"+first.linked("Next 50"), http.StatusOK, "bury a task"); strings.Contains(rest.words(), "Next 50") || strings.Contains(first.words(), "void") {
		t.Errorf("%s, then %s", first.words(), rest.words())
	}
}

// A redrive leads to a page that says what was done, and redrives nothing when it is read again. A link of another site says nothing.
func TestAReloadRedrivesNothing(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	path := s.add(closing.New(1, "", tocsin.In(time.Hour)))
	s.call("POST", path+":bury", "")
	b := s.as("operate")
	const bizType = "/biz-types/order.close"
	form := b.post(bizType+"/redrive", url.Values{"do": {"count"}}).hidden()
	for name, value := range map[string]string{"do": "redrive", "confirm": "order.close", "reason": "again"} {
		form.Set(name, value)
	}
	to := b.post(bizType+"/redrive", form).header.Get("Location")
	if !strings.HasPrefix(to, bizType+"?") || !strings.HasSuffix(to, "#redrive") {
		t.Fatalf("it leads to %q", to)
	}
	s.call("POST", path+":bury", "")
	for range 2 {
		b.sees(to, http.StatusOK, "✓ 1 tasks were redriven.")
	}
	if task := s.call("GET", path, ""); task["status"] != "dead" {
		t.Errorf("%v", task)
	}
	b.header["Sec-Fetch-Site"], b.header["Sec-Fetch-Dest"] = "cross-site", "document"
	b.sees(to, http.StatusOK).lacks(t, "a link of another site", "were redriven")
	b.header["Sec-Fetch-Site"] = "same-origin"
	b.sees(bizType+"?redriven=3"+stamp(0)+"&left=2&lacks=db%3C1%3E", http.StatusOK, "⚠ 3 tasks were redriven. There may be more: send the form again for the rest.", "2 others", "Could not be asked: db<1>")
	for _, odd := range []string{"x", "-1", "1e9"} {
		b.sees(bizType+"?redriven="+odd+stamp(0), http.StatusOK).lacks(t, odd, "were redriven")
	}
}

// A task's trace and a biz type's dashboard are links, if the config says where they are.
func TestTracesAndDashboardsAreLinksOfTheConfig(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{console: func(c *console.Config) {
		c.Trace, c.Grafana = "https://jaeger.example/trace/{trace_id}?a=1&b={trace_id}", "https://grafana.example/g/"
	}})
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	b := s.as("read")
	for parent, want := range map[string]string{
		"00-" + trace + "-00f067aa0ba902b7-01":                                    "https://jaeger.example/trace/" + trace + "?a=1&b=" + trace,
		"00-" + strings.Repeat("0", 32) + "-00f067aa0ba902b7-01":                  "",
		`00-"><script>alert(1)</script>-00f067aa0ba902b7-01`:                      "",
		"javascript:alert(1)":                                                     "",
		"00-" + strings.ToUpper(trace) + "-00f067aa0ba902b7-01":                   "",
		"cc-" + trace + "-00f067aa0ba902b7-01-what-a-later-version-has-behind-it": "https://jaeger.example/trace/" + trace + "?a=1&b=" + trace,
	} {
		path := s.add(closing.New(1, "", tocsin.In(time.Hour)).Header("traceparent", parent))
		if to := b.get(path).linked("Open the trace"); to != want {
			t.Errorf("%q leads to %q, want %q", parent, to, want)
		}
	}
	if to := b.get("/biz-types/order.close").linked("Grafana"); to != "https://grafana.example/g/d/tocsin-biz-type?var-biz_type=order.close" {
		t.Errorf("Grafana is at %q", to)
	}
	board, err := os.ReadFile("../../deploy/grafana/dashboards/biz-type.json")
	if err != nil || !strings.Contains(string(board), `"uid": "tocsin-biz-type"`) || !strings.Contains(string(board), `"name": "biz_type"`) {
		t.Errorf("the dashboard has another uid or variable: %v", err)
	}
	none := over(t, s.Cluster, changes{}).as("read")
	none.get("/biz-types/order.close").lacks(t, "a console without links", "Grafana")
	none.get(s.add(closing.New(1, "", tocsin.In(time.Hour)).Header("traceparent", "00-"+trace+"-00f067aa0ba902b7-01"))).lacks(t, "a console without links", "Open the trace")
}
