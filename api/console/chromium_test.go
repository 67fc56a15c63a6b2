package console_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
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

// browsing are the tests of this package, whose tabs are those of one browser: to start one for each would take a second and 200 MB.
type browsing struct{ m interface{ Run() int } }

// Run runs the tests, and ends the browser.
func (b browsing) Run() int {
	code := b.m.Run()
	if chrome.ctx == nil {
		return code
	}
	err := chromedp.Cancel(chrome.ctx) // waits for the process
	chrome.end()
	if err != nil {
		fmt.Fprintln(os.Stderr, "the browser:", err)
		return max(code, 1)
	}
	return code
}

// chrome is the browser, from the first tab on.
var chrome struct {
	start sync.Once
	ctx   context.Context
	end   func()
	err   error
}

// startChrome starts the browser.
func startChrome(t *testing.T) {
	t.Helper()
	path := chromium(t)
	chrome.start.Do(func() {
		options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox)
		allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
		ctx, leave := chromedp.NewContext(allocator)
		chrome.ctx, chrome.end = ctx, func() { leave(); end() }
		chrome.err = chromedp.Do(ctx)
	})
	if chrome.err != nil {
		t.Fatal(chrome.err)
	}
}

// tab is a tab of the browser with cookies of its own, in which somebody is logged in with the token for everything. What the browser complains
// of, such as a violation of the policy, fails the test.
type tab struct {
	*site

	t       *testing.T
	ctx     context.Context
	refused atomic.Bool // it opens a page with a status of 400 or more, which the browser logs as an error
}

// open opens a tab and logs in.
func (s *site) open(t *testing.T, width, height int) *tab {
	t.Helper()
	startChrome(t)
	ctx, leave := chromedp.NewContext(chrome.ctx, chromedp.WithNewBrowserContext())
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil { // waits for the tab
			t.Error(err)
		}
		leave()
	})
	b := &tab{site: s, t: t, ctx: ctx}
	err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *log.EventEntryAdded:
			if e.Entry.Level == "verbose" || b.refused.Load() && strings.Contains(e.Entry.Text, "status of 4") { // advice
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
	b.size(width, height)
	b.does(func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) { // as in a window at the front, or other tabs would take the keys
		_, err := cdp.Call(ctx, t, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
		return chromedp.Void{}, err
	})
	b.logIn()
	return b
}

// logIn logs in with the token for everything.
func (b *tab) logIn() {
	b.t.Helper()
	b.to("/login", "#token")
	b.does(chromedp.SendKeys(chromedp.CSS("#token"), b.tokens["all"]+"\r"), chromedp.WaitVisible(chromedp.CSS("nav")))
}

// size makes the page as large as that.
func (b *tab) size(width, height int) {
	b.t.Helper()
	b.does(chromedp.EmulateViewport(int64(width), int64(height)))
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
