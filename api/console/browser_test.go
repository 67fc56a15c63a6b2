package console_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/tocsinhq/tocsin"
)

// chromium returns Debian's browser, or another one of its kind.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("no chromium in PATH: install it with `scripts/install-deps.sh test`")
	return ""
}

// tab is a browser of a test's own, in which somebody is logged in with the token for everything. What the browser complains of, such as a
// violation of the policy, fails the test.
type tab struct {
	*site

	t   *testing.T
	ctx context.Context
}

// open opens a browser and logs in.
func (s *site) open(t *testing.T, width, height int) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium(t)), chromedp.NoSandbox)
	allocator, end := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	ctx, leave := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil { // waits for the process
			t.Error(err)
		}
		leave()
		end()
	})
	err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *log.EventEntryAdded:
			if e.Entry.Level == "verbose" { // advice
				return
			}
			t.Errorf("the browser says of %s: %s", e.Entry.URL, e.Entry.Text)
		case *runtime.EventExceptionThrown:
			t.Errorf("the browser throws %s", e.ExceptionDetails.Text)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	b := &tab{site: s, t: t, ctx: ctx}
	b.does(chromedp.EmulateViewport(int64(width), int64(height)))
	b.to("/login", "#token")
	b.does(chromedp.SendKeys(chromedp.CSS("#token"), s.tokens["all"]+"\r"), chromedp.WaitVisible(chromedp.CSS("nav")))
	return b
}

// does has the browser do something, within a time that a busy machine needs.
func (b *tab) does(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	bounded, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	if err := chromedp.Do(bounded, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// to opens a page, and waits for a part of it.
func (b *tab) to(path, part string) {
	b.t.Helper()
	b.does(chromedp.Navigate(b.url+path), chromedp.WaitVisible(chromedp.CSS(part)))
}

// js is the value of an expression in the page.
func js[T any](b *tab, expression string) T {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// until waits for an expression to become true. chromedp.Poll would need eval, which the policy forbids.
func (b *tab) until(expression string) {
	b.t.Helper()
	for end := time.Now().Add(time.Minute); !js[bool](b, expression); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("%s does not become true; the page says %s", expression, js[string](b, "document.body.innerText"))
		}
	}
}

// shots writes pictures of the page, light and dark, and in Chinese, into the folder of TOCSIN_TEST_PICTURES, if that is set.
func (b *tab) shots(name string) {
	b.t.Helper()
	dir := os.Getenv("TOCSIN_TEST_PICTURES")
	if dir == "" {
		return
	}
	for look, scheme := range map[string]string{"en": "light", "dark": "dark", "zh-CN": "light"} {
		b.does(func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
			_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
			return chromedp.Void{}, err
		})
		js[string](b, `document.cookie = "tocsin_lang=`+look+`; path=/"`)
		b.does(chromedp.Reload(), chromedp.WaitVisible(chromedp.CSS("footer")))
		picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
		if err == nil {
			err = os.WriteFile(dir+"/"+name+"-"+look+".png", picture, 0o600)
		}
		if err != nil {
			b.t.Fatal(err)
		}
	}
	js[string](b, `document.cookie = "tocsin_lang=en; path=/"`)
}

// looked tells a page that it can be seen again, as a tab does that comes to the front: it refreshes then.
const looked = `document.dispatchEvent(new Event("visibilitychange"))`

// A browser visits every page without a complaint, and refreshes an open task: what is selected, typed and open stays as it is while the row
// changes. A refresh that fails keeps the page, and says so.
func TestABrowserRefreshesAnOpenTaskAndKeepsWhatIsSelected(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	path := s.add(closing.New(42, `{"order":42,"cents":18446744073709551615}`, tocsin.In(time.Hour)))
	s.yearly("report.daily", "")
	b := s.open(t, 1280, 900)
	b.does(func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, t, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Tokyo"})
		return chromedp.Void{}, err
	})
	for name, page := range map[string]string{
		"overview": "/", "start": "/biz-types", "tasks": "/tasks?status=pending", "schedules": "/schedules", "schedule": "/schedules/report.daily", "biztype": "/biz-types/order.close", "cluster": "/cluster?show=counts",
		"found": "/tasks?q=report.daily", "task": path, "runs": "/runs", "dead": "/biz-types/order.close?dead=groups",
	} {
		b.to(page, "h1")
		b.shots(name)
	}
	b.to(path, "#row")
	b.does(chromedp.Click(chromedp.CSS("#act-reschedule summary")), chromedp.SendKeys(chromedp.CSS(`#act-reschedule input[name="minutes"]`), "17"))
	js[bool](b, `getSelection().selectAllChildren(document.querySelector(".payload")), window.kept = document.querySelector("#row"), true`)
	s.call("POST", path+":reschedule", `{"due_time": "2031-02-03T04:05:06Z"}`)
	js[bool](b, looked)
	b.until(`document.querySelector("#row").textContent.includes("2031-02-03 04:05:06 UTC")`)
	for what, expression := range map[string]string{
		"the selected payload":     `getSelection().toString().includes("18446744073709551615")`,
		"the open form":            `document.querySelector("#act-reschedule").open`,
		"the typed minutes":        `document.querySelector('#act-reschedule input[name="minutes"]').value === "17"`,
		"the part of the page":     `document.querySelector("#row") === window.kept`,
		"the absence of a warning": `document.querySelector("#stale").hidden`,
	} {
		if !js[bool](b, expression) {
			t.Errorf("a refresh loses %s", what)
		}
	}
	s.call("POST", path+":cancel", "")
	js[bool](b, looked)
	b.until(`!document.querySelector("[data-refresh]") && document.querySelector("#row").textContent.includes("cancelled")`)
	b.does(chromedp.Click(chromedp.CSS(".me summary")), chromedp.Click(chromedp.CSS("#herezone")))
	b.until(`!!document.querySelector("footer")?.textContent.includes("Asia/Tokyo") && document.querySelector("#herezone").hidden`)
	s.revoke("all")
	b.to(path, "#token")
}

// Each page fits a telephone's 320 pixels: payloads, which scroll by themselves, are all that is wider. A table is a card a row there.
func TestPagesFit320Pixels(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	path := s.add(closing.NewKey(strings.Repeat("k", 64), strings.Repeat("p", 500), tocsin.In(time.Hour)))
	s.yearly("report.daily", "")
	b := s.open(t, 320, 640)
	for name, page := range map[string]string{
		"overview": "/", "start": "/biz-types", "task": path, "tasks": "/tasks?status=pending", "schedules": "/schedules", "schedule": "/schedules/report.daily", "biztype": "/biz-types/order.close", "cluster": "/cluster?show=stats",
		"runs": "/runs", "dead": "/biz-types/order.close?dead=groups", "all": "/tasks?status=pending&pick=all", "found": "/tasks?status=done",
	} {
		b.to(page, "h1")
		b.shots("narrow-" + name)
		if wide := js[int](b, "document.documentElement.scrollWidth"); wide > 320 {
			t.Errorf("%s is %d pixels wide", page, wide)
		}
		if cut := js[string](b, `[...document.querySelectorAll(".cards")].filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.innerText).join()`); cut != "" {
			t.Errorf("%s: a part of this is off the edge: %s", page, cut)
		}
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
