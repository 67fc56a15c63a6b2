package console_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/tocsinhq/tocsin"
)

// looked tells a page that it can be seen again, as a tab does that comes to the front: it refreshes then.
const looked = `document.dispatchEvent(new Event("visibilitychange"))`

// keeps fails the test for each thing that is no longer as an expression says.
func (b *tab) keeps(things map[string]string) {
	b.t.Helper()
	for what, expression := range things {
		if !js[bool](b, expression) {
			b.t.Errorf("a refresh loses %s", what)
		}
	}
}

// A browser refreshes an open task: what is selected, typed, focused, scrolled and open stays as it is while the row changes.
func TestABrowserRefreshesAnOpenTaskAndKeepsWhatIsSelected(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	path := s.add(closing.New(42, `{"order":42,"cents":18446744073709551615}`, tocsin.In(time.Hour)))
	b := s.open(t, 1280, 500)
	b.does(func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, t, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Tokyo"})
		return chromedp.Void{}, err
	})
	b.to(path, "#row")
	b.does(chromedp.Click(chromedp.CSS("#act-reschedule summary")), chromedp.SendKeys(chromedp.CSS(`#act-reschedule input[name="minutes"]`), "17"))
	js[bool](b, `getSelection().selectAllChildren(document.querySelector(".payload")), window.kept = document.querySelector("#row"), scrollTo(0, 150), true`)
	s.call("POST", path+":reschedule", `{"due_time": "2031-02-03T04:05:06Z"}`)
	js[bool](b, looked)
	b.until(`document.querySelector("#row").textContent.includes("2031-02-03 04:05:06 UTC")`)
	b.keeps(map[string]string{
		"the selected payload":     `getSelection().toString().includes("18446744073709551615")`,
		"the open form":            `document.querySelector("#act-reschedule").open`,
		"the typed minutes":        `document.querySelector('#act-reschedule input[name="minutes"]').value === "17"`,
		"the focus":                `document.activeElement === document.querySelector('#act-reschedule input[name="minutes"]')`,
		"the place on the page":    `scrollY === 150`,
		"the part of the page":     `document.querySelector("#row") === window.kept`,
		"the absence of a warning": `document.querySelector("#stale").hidden`,
	})
	s.call("POST", path+":cancel", "")
	js[bool](b, looked)
	b.until(`!document.querySelector("[data-refresh]") && document.querySelector("#row").textContent.includes("cancelled")`)
	b.does(chromedp.Click(chromedp.CSS(".me summary")), chromedp.Click(chromedp.CSS("#herezone")))
	b.until(`!!document.querySelector("footer")?.textContent.includes("Asia/Tokyo") && document.querySelector("#herezone").hidden`)
	s.revoke("all")
	b.to(path, "#token")
}

// screen is a page, or what a click on it leads to.
type screen struct {
	name, path string
	click      string // selector; "": none
	part       string // that is waited for after the click
	refused    bool
}

// screens are those of the console: each page, its forms, and the pages that follow a form.
func screens(task, dead, bizType, schedule string) []screen {
	return []screen{
		{name: "overview", path: "/"},
		{name: "biz types", path: "/biz-types"},
		{name: "biz type", path: "/biz-types/" + bizType + "?dead=groups"},
		{name: "redrive", path: "/biz-types/" + bizType, click: `button[value="count"]`, part: `form [role="status"]`},
		{name: "tasks", path: "/tasks?status=pending&pick=all"},
		{name: "dead tasks", path: "/tasks?status=dead"},
		{name: "no tasks", path: "/tasks?status=done&from=2020-01-01T00:00&to=2020-01-02T00:00"},
		{name: "tasks start", path: "/tasks"},
		{name: "found", path: "/tasks?q=" + schedule},
		{name: "task", path: task},
		{name: "dead task", path: dead},
		{name: "acted", path: "/tasks?status=dead&pick=all", click: "#selected button.danger", part: ".picked", refused: true},
		{name: "schedules", path: "/schedules?sort=next_fire"},
		{name: "schedule", path: "/schedules/" + schedule},
		{name: "edit", path: "/schedules/" + schedule + "/edit"},
		{name: "new schedule", path: "/new-schedule?from=" + schedule},
		{name: "runs", path: "/runs"},
		{name: "acts", path: "/acts"},
		{name: "cluster", path: "/cluster"},
		{name: "nodes", path: "/cluster?show=nodes"},
		{name: "tables", path: "/cluster?show=counts"},
		{name: "stats", path: "/cluster?show=stats"},
		{name: "not found", path: "/tasks/1", refused: true},
		{name: "refused", path: "/runs?from=x", refused: true},
		{name: "login", path: "/", click: `.me form[action$="logout"] button`, part: "#token"}, // the last, as it ends the session
	}
}

// shows opens a screen, with all that can be opened on it but the menu.
func (b *tab) shows(s screen) {
	b.t.Helper()
	b.refused.Store(s.refused)
	b.to(s.path, "h1")
	if s.click != "" {
		js[bool](b, `document.querySelectorAll("input[name=reason]").forEach((e) => { e.required = false; }), document.querySelector(`+strconv.Quote(s.click)+`).click(), true`)
		b.does(chromedp.WaitVisible(chromedp.CSS(s.part)))
	}
	js[bool](b, `document.querySelectorAll("main details").forEach((e) => { e.open = true; }), true`)
}

// faulty returns what is wrong with the looks of a page: it is wider than its window, or has a badge that its colour alone tells from others.
const faulty = `(() => {
	const bad = [], page = document.documentElement;
	const wide = () => [...document.querySelectorAll("body *")].filter((e) => !e.closest(".wide, .hidden") && e.getBoundingClientRect().right > page.clientWidth).map((e) => e.outerHTML.slice(0, 80));
	if (page.scrollWidth > page.clientWidth) bad.push("it is " + page.scrollWidth + " pixels wide: " + wide().slice(-3));
	for (const e of document.querySelectorAll(".badge, .note")) if (/^[\p{L}\p{N}]/u.test(e.textContent.trim())) bad.push("there is no sign before " + e.textContent.trim().slice(0, 40));
	return bad;
})()`

// Each page fits a telephone's 320 pixels, and the 640 of a window at a zoom of 200 %: tables and payloads, which scroll by themselves, are all
// that is wider. Nothing is said by colour alone.
func TestPagesFit320PixelsAndAZoomOf200Percent(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	task := s.add(closing.NewKey(strings.Repeat("k", 64), strings.Repeat("p", 500), tocsin.In(time.Hour)))
	dead := s.add(closing.New(2, `{"order":2}`, tocsin.In(time.Hour)))
	s.call("POST", dead+":bury", `{"reason": "answer 503: `+strings.Repeat("x", 200)+`"}`)
	s.yearly("report.daily", "")
	s.attend("test", "host-1-4mzkq7ta")
	b := s.open(t, 1280, 640)
	for _, screen := range screens(task, dead, "order.close", "report.daily") {
		b.shows(screen)
		for _, width := range []int{1280, 640, 320} {
			b.size(width, 640)
			for _, bad := range js[[]string](b, faulty) {
				t.Errorf("%s at %d pixels: %s", screen.name, width, bad)
			}
			if cut := js[string](b, `[...document.querySelectorAll(".cards")].filter((e) => innerWidth === 320 && e.scrollWidth > e.clientWidth).map((e) => e.innerText).join()`); cut != "" {
				t.Errorf("%s: a part of this is off the edge: %s", screen.name, cut)
			}
		}
		b.size(1280, 640)
	}
}

// A link of another site, such as that of an alarm, leads to its page: browsers keep the session's cookie back from it at first.
func TestALinkOfAnotherSiteLeadsToItsPage(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	path := s.add(closing.New(42, "", tocsin.In(time.Hour)))
	b := s.open(t, 1280, 900)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, `<!doctype html><link rel="icon" href="data:,"><a id="link" href="%s">order 42</a>`, s.url+path+"?x=1&amp;y=2")
	}))
	defer elsewhere.Close()
	b.does(chromedp.Navigate(strings.Replace(elsewhere.URL, "127.0.0.1", "localhost", 1)), chromedp.WaitVisible(chromedp.CSS("#link")), chromedp.Click(chromedp.CSS("#link")), chromedp.WaitVisible(chromedp.CSS("#row")))
	if at := js[string](b, "location.pathname + location.search"); at != path+"?x=1&y=2" {
		t.Errorf("the link leads to %s", at)
	}
}
