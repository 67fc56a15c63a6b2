package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/api"
	"github.com/tocsinhq/tocsin/api/console"
	"github.com/tocsinhq/tocsin/tocsintest"
)

func TestATokenBecomesASessionThatEndsWithIt(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	stranger := s.as("")
	got := stranger.get("/tasks?status=dead&biz_type=order.close")
	if to := got.header.Get("Location"); got.status != http.StatusSeeOther || to != "/login?next="+url.QueryEscape("/tasks?status=dead&biz_type=order.close") {
		t.Fatalf("%d %s", got.status, to)
	}
	stranger.sees("/login", http.StatusOK, "API token")
	linked := s.as("")
	linked.header["Sec-Fetch-Site"], linked.header["Sec-Fetch-Dest"] = "cross-site", "document"
	if got := linked.sees("/cluster?show=nodes", http.StatusOK, "API token"); got.header.Get("Refresh") != "0; url=/login?next="+url.QueryEscape("/cluster?show=nodes") {
		t.Errorf("%v", got.header)
	}
	got = stranger.post("/login", url.Values{"token": {"toc_abcdefgh_" + strings.Repeat("a", 52)}, "next": {"/cluster"}})
	got.has(t, "a wrong token", http.StatusUnauthorized, "not known, or has expired")
	if len(got.header.Values("Set-Cookie")) > 0 || !strings.Contains(s.log.String(), "token_id=abcdefgh") {
		t.Errorf("%v %s", got.header, s.log)
	}
	got = stranger.post("/login", url.Values{"token": {" " + s.tokens["read"] + "\n"}, "next": {"/cluster?show=nodes"}})
	if got.header.Get("Location") != "/cluster?show=nodes" {
		t.Errorf("%v", got.header)
	}
	cookie, err := http.ParseSetCookie(got.header.Get("Set-Cookie"))
	if err != nil || !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.MaxAge != int((12*time.Hour).Seconds()) || cookie.Path != "/" || cookie.Secure {
		t.Errorf("%v %+v", err, cookie)
	}
	if _, secret, _ := strings.Cut(s.tokens["read"], "_"); strings.Contains(cookie.Value, secret) {
		t.Error("the cookie has the token in plain text")
	}
	reader := s.as("read")
	reader.sees("/biz-types", http.StatusOK, "order.close")
	reader.header["X-Forwarded-Proto"] = "https"
	if got := reader.post("/logout", nil); !strings.Contains(got.header.Get("Set-Cookie"), "Max-Age=0") || !strings.Contains(got.header.Get("Set-Cookie"), "Secure") {
		t.Errorf("%v", got.header)
	}
	s.revoke("read")
	if got := reader.get("/"); got.status != http.StatusSeeOther {
		t.Errorf("the session of a token that was taken back still works: %d %s", got.status, got.words())
	}
	reader.header["HX-Request"] = "true"
	if got := reader.get("/"); got.status != http.StatusUnauthorized || got.text != "" {
		t.Errorf("%d %s", got.status, got.text)
	}
}

// A cookie that was changed is none, and so is one that another key has sealed. The same key opens it, as after a restart or on
// another node.
func TestACookieIsOpenedByItsKeyAlone(t *testing.T) {
	t.Parallel()
	cluster := tocsintest.Start(t, closing, remind)
	with := func(key string) *site {
		return over(t, cluster, changes{console: func(c *console.Config) { c.Key = key }})
	}
	first, same, other, none := with(strings.Repeat("k", 32)), with(strings.Repeat("k", 32)), with(strings.Repeat("l", 32)), with("")
	held := first.as("all")
	same.mu.Lock()
	same.set, other.set, none.set = first.set, first.set, first.set
	same.mu.Unlock()
	for name, c := range map[string]struct {
		*site
		status int
	}{"the same": {first, http.StatusOK}, "another node": {same, http.StatusOK}, "another key": {other, http.StatusSeeOther}, "a key of its own": {none, http.StatusSeeOther}} {
		b := &browser{site: c.site, cookies: held.cookies}
		if got := b.get("/"); got.status != c.status {
			t.Errorf("%s: %d, want %d", name, got.status, c.status)
		}
	}
	value := held.cookies[0].Value
	for i := range value {
		changed := []byte(value)
		changed[i] ^= 1
		held.cookies = []*http.Cookie{{Name: "tocsin_session", Value: string(changed)}}
		if got := held.get("/"); got.status != http.StatusSeeOther && string(changed) != value && i != len(value)-1 { // the last character may have bits that mean nothing
			t.Errorf("byte %d changed: %d", i, got.status)
		}
	}
}

func TestAFormIsTakenFromTheConsolesOwnPagesOnly(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	path := s.add(closing.New(1, "", tocsin.In(time.Hour)))
	for name, header := range map[string]map[string]string{
		"another site":             {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"},
		"a sibling":                {"Sec-Fetch-Site": "same-site", "Origin": "https://evil.example"},
		"an old browser":           {"Sec-Fetch-Site": "", "Origin": "https://evil.example"},
		"a page without an origin": {"Sec-Fetch-Site": "", "Origin": "null"},
	} {
		b := s.as("all")
		for name, value := range header {
			b.header[name] = value
		}
		for _, to := range []string{path + "/cancel", "/biz-types/order.close/pause", "/login", "/logout", "/settings"} {
			got := b.post(to, url.Values{"token": {s.tokens["all"]}})
			got.has(t, name+" sends "+to, http.StatusForbidden, "another web page")
			if len(got.header.Values("Set-Cookie")) > 0 {
				t.Errorf("%s: %v", name, got.header)
			}
		}
	}
	if task := s.call("GET", path, ""); task["status"] != "pending" {
		t.Errorf("%v", task)
	}
	if task := s.call("GET", "/biz-types/order.close", ""); task["paused"] != false {
		t.Errorf("%v", task)
	}
}

// A picture or a frame of another web page may not have a page made: without tokens that would be asked for as somebody of this host, and
// with a button's address in it read every table. A link of another site leads to the page.
func TestAPageIsMadeForNoOtherWebPage(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{api: func(c *api.Config) { c.Tokens = nil }})
	for _, site := range []string{"cross-site", "same-site"} {
		for _, kind := range []string{"image", "iframe", "empty", ""} {
			b := s.as("")
			b.header["Sec-Fetch-Site"], b.header["Sec-Fetch-Dest"] = site, kind
			b.sees("/cluster?show=stats", http.StatusForbidden, "another web page")
		}
		b := s.as("")
		b.header["Sec-Fetch-Site"], b.header["Sec-Fetch-Dest"] = site, "document"
		b.sees("/cluster?show=stats", http.StatusOK)
	}
	b := s.as("")
	b.header["Sec-Fetch-Site"], b.header["Sec-Fetch-Dest"] = "same-origin", "empty"
	b.sees("/cluster?show=stats", http.StatusOK)
}

// Only a page of the console says that something was done, and only at first: a link of another site, or one that is kept, has done nothing.
func TestALinkSaysOfNothingThatItWasDone(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	b := s.as("all")
	for site, says := range map[string]bool{"cross-site": false, "same-site": false, "none": false, "same-origin": true} {
		b.header["Sec-Fetch-Site"], b.header["Sec-Fetch-Dest"] = site, "document"
		if got := b.sees("/biz-types/order.close?done=biztype.pause"+stamp(0), http.StatusOK); strings.Contains(got.words(), "The biz type is paused") != says {
			t.Errorf("%s: %s", site, got.words())
		}
	}
	for _, old := range []string{"", "@", "@x", stamp(-2 * time.Minute), stamp(2 * time.Minute)} {
		b.sees("/biz-types/order.close?done=biztype.pause"+old+"&redriven=3"+old, http.StatusOK).lacks(t, old, "The biz type is paused", "were redriven")
	}
}

// stamp is what the console puts behind what was done, so long from now.
func stamp(away time.Duration) string { return fmt.Sprint("@", time.Now().Add(away).Unix()) }

// Without tokens, programs on this host may do everything if they call it localhost or by a loopback address. A web page whose host
// name was pointed at this host (DNS rebinding) may do nothing.
func TestWithoutTokensNobodyLogsInAndOnlyThisHostIsAnswered(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{api: func(c *api.Config) { c.Tokens = nil }})
	path := s.add(closing.New(1, "", tocsin.In(time.Hour)))
	b := s.as("")
	b.sees("/biz-types", http.StatusOK, "order.close", "coupon.remind").lacks(t, "a page", "/logout")
	b.done(path+"/cancel", nil, "The task was cancelled")
	b.sees("/cluster?show=nodes", http.StatusOK)
	again := s.add(closing.New(2, "", tocsin.In(time.Hour)))
	foreign := s.as("")
	foreign.header["Host"] = "evil.example"
	foreign.header["Origin"] = "http://evil.example"
	foreign.sees("/", http.StatusForbidden, "loopback addresses only").lacks(t, "a page", "order.close")
	foreign.sees(again, http.StatusForbidden, "loopback addresses only").lacks(t, "a page", "order.close")
	foreign.post(again+"/cancel", nil).has(t, "cancel", http.StatusForbidden, "loopback addresses only")
}

func TestTheWayBackAfterALoginIsAPageOfTheConsole(t *testing.T) {
	t.Parallel()
	root := serve(t, changes{})
	below := over(t, root.Cluster, changes{console: func(c *console.Config) { c.Base = "/a/b/" }})
	for next, want := range map[string]string{
		"": "/", "/tasks?q=42": "/tasks?q=42", "//evil.example/": "/", "///evil.example/": "/", "https://evil.example/": "/", `/\evil.example`: "/", "javascript:alert(1)": "/",
		"evil.example": "/", "/%2fevil.example": "/", "/%2fevil.example/é": "/", "/%2fevil.example/ ": "/", "/%5cevil.example/é": "/%5Cevil.example/%C3%A9", "/.//evil.example/é": "/evil.example/%C3%A9",
		"/../../wiki/": "/", "/%2e%2E/%2e./wiki/?x=1": "/", "/tasks/..": "/", "/tasks?q=..": "/tasks?q=..",
	} {
		for base, s := range map[string]*site{"": root, "/a/b": below} {
			for path, form := range map[string]url.Values{"/login": {"token": {s.tokens["read"]}}, "/settings": {"zone": {"UTC"}}} {
				form.Set("next", next)
				got := s.as("").post(path, form)
				if to := got.header.Get("Location"); to != base+want {
					t.Errorf("%s: %q leads to %q, want %q", path, next, to, base+want)
				}
			}
		}
	}
}

func TestLanguageAndZoneFollowTheBrowserUntilTheyAreChosen(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	s.add(closing.New(7, "", tocsin.At(time.Date(2031, 7, 1, 12, 0, 0, 0, time.UTC))))
	b := s.as("read")
	for accepted, want := range map[string]string{"": "en", "de-DE,zh-CN;q=0.8,en;q=0.7": "zh-CN", "en-GB,zh;q=0.9": "en", "fr": "en", "zh-TW": "zh-CN", "zh;q=0,en;q=0.1": "en", "x;q=z": "en"} {
		b.header["Accept-Language"] = accepted
		if got := b.get("/"); !strings.Contains(got.text, `<html lang="`+want+`">`) {
			t.Errorf("%q is answered with %.60s", accepted, got.text)
		}
	}
	b.header["Accept-Language"] = "en"
	got := b.post("/settings", url.Values{"lang": {"zh-CN"}, "zone": {"Asia/Shanghai"}, "next": {"/tasks?q=7"}})
	if got.status != http.StatusSeeOther || got.header.Get("Location") != "/tasks?q=7" {
		t.Fatalf("%d %v", got.status, got.header)
	}
	for _, line := range got.header.Values("Set-Cookie") {
		cookie, err := http.ParseSetCookie(line)
		if err != nil {
			t.Fatal(err)
		}
		b.cookies = append(b.cookies, cookie)
	}
	b.sees("/tasks?status=pending", http.StatusOK, "任务", "2031-07-01 20:00:00 +08:00", "Asia/Shanghai")
	got = b.done("/settings", url.Values{"zone": {"Asia/Shanghai"}, "other": {"Mars/Base"}, "next": {"/tasks?status=pending&nozone=x"}}, "没有时区 Mars/Base", "2031-07-01 20:00:00 +08:00", "时区 Asia/Shanghai")
	if !strings.Contains(got.text, `<details class="me" open>`) || !strings.Contains(got.text, `name="other" value="Mars/Base"`) {
		t.Errorf("the form is not open, or has lost what was typed: %s", got.text)
	}
	b.done("/settings", url.Values{"zone": {"../../etc/passwd"}}, "没有时区 ../../etc/passwd")
	b.header["Sec-Fetch-Site"] = "cross-site" // of a link elsewhere
	b.header["Sec-Fetch-Dest"] = "document"
	b.get("/tasks?nozone=Buy+now").lacks(t, "a link from elsewhere", "Buy now")
	delete(b.header, "Sec-Fetch-Site")
	here := b.post("/settings", url.Values{"zone": {"UTC"}, "here": {"Europe/Rome"}, "next": {"/tasks"}})
	if cookies := here.header.Values("Set-Cookie"); !strings.Contains(fmt.Sprint(cookies), "tocsin_zone=Europe/Rome") {
		t.Errorf("the browser's zone is not kept: %v", cookies)
	}
}
