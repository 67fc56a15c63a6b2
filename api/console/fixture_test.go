package console_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/api"
	"github.com/tocsinhq/tocsin/api/console"
	"github.com/tocsinhq/tocsin/internal/apitoken"
	"github.com/tocsinhq/tocsin/operator"
	"github.com/tocsinhq/tocsin/tocsintest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(tocsintest.Main(browsing{m})) }

var (
	closing = tocsin.Define[string]("order.close")
	remind  = tocsin.Define[string]("coupon.remind")
)

// site is a console and its API over HTTP, with a token of each scope for order.*, and one for everything.
type site struct {
	*tocsintest.Cluster

	t    testing.TB
	url  string // of the first page
	host string
	log  *lines

	mu     sync.Mutex
	tokens map[string]string
	set    apitoken.Set
}

// lines collects a log.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// changes of what serve makes; nil: none.
type changes struct {
	api     func(*api.Config)
	console func(*console.Config)
}

// serve starts a console beside an API.
func serve(t testing.TB, change changes) *site {
	t.Helper()
	return over(t, tocsintest.Start(t, closing, remind), change)
}

// over is serve for a cluster that is there.
func over(t testing.TB, c *tocsintest.Cluster, change changes) *site {
	t.Helper()
	s := &site{Cluster: c, t: t, tokens: map[string]string{}, set: apitoken.Set{}, log: &lines{}}
	for name, of := range map[string]apitoken.Token{
		"read": {Scope: apitoken.Read}, "write": {Scope: apitoken.Write}, "operate": {Scope: apitoken.Operate}, "all": {Scope: apitoken.Operate, BizTypes: []string{"*"}},
	} {
		if of.Name = name; of.BizTypes == nil {
			of.BizTypes = []string{"order.*"}
		}
		text, made, err := apitoken.New(of)
		if err != nil {
			t.Fatal(err)
		}
		s.tokens[name], s.set[made.ID] = text, made
	}
	tokens := func() apitoken.Set {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.set
	}
	log := slog.New(slog.NewTextHandler(s.log, nil))
	view := operator.View{Tables: c.Config, ByRows: true, Grace: time.Minute, Pages: operator.Asker{Client: http.DefaultClient, Scheme: "http"}}
	cfg := api.Config{Tables: c.Config, Cluster: view, Tokens: tokens, Body: 64 << 10, Rate: 100_000, Timeout: time.Minute, Drain: time.Minute, Logger: log}
	if change.api != nil {
		change.api(&cfg)
	}
	served := api.New(cfg)
	pages := console.Config{API: served, Tokens: cfg.Tokens, Timeout: time.Minute, Logger: log}
	if change.console != nil {
		change.console(&pages)
	}
	server := httptest.NewServer(console.New(pages))
	s.host = server.URL
	s.url = server.URL + strings.TrimSuffix(pages.Base, "/")
	t.Cleanup(func() {
		server.Close()
		if err := served.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// revoke takes a token back.
func (s *site) revoke(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := apitoken.Set{}
	for id, t := range s.set {
		if t.Name != name {
			left[id] = t
		}
	}
	s.set = left
}

// browser is somebody who may be logged in.
type browser struct {
	*site

	cookies []*http.Cookie
	header  map[string]string
}

// as returns a browser that has logged in with a token, or without one for "".
func (s *site) as(token string) *browser {
	s.t.Helper()
	b := &browser{site: s, header: map[string]string{}}
	if token == "" {
		return b
	}
	got := b.post("/login", url.Values{"token": {s.tokens[token]}})
	if got.status != http.StatusSeeOther {
		s.t.Fatalf("login: %d %s", got.status, got.text)
	}
	for _, line := range got.header.Values("Set-Cookie") {
		cookie, err := http.ParseSetCookie(line)
		if err != nil {
			s.t.Fatal(err)
		}
		b.cookies = append(b.cookies, cookie)
	}
	return b
}

// reply is what came back.
type reply struct {
	status int
	header http.Header
	text   string
	size   int // as it was sent
}

// do sends a request as a browser does, to a path below the first page.
func (b *browser) do(method, path string, form url.Values) reply {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Accept-Encoding", "gzip")
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", b.host)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	for _, cookie := range b.cookies {
		r.AddCookie(cookie)
	}
	for name, value := range b.header {
		if r.Header.Set(name, value); name == "Host" {
			r.Host = value
		}
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	sent, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	got := reply{status: resp.StatusCode, header: resp.Header, text: string(sent), size: len(sent)}
	if resp.Header.Get("Content-Encoding") == "gzip" && len(sent) > 0 {
		z, err := gzip.NewReader(bytes.NewReader(sent))
		if err != nil {
			b.t.Fatal(err)
		}
		text, err := io.ReadAll(z)
		if err != nil {
			b.t.Fatal(err)
		}
		got.text = string(text)
	}
	return got
}

func (b *browser) get(path string) reply {
	b.t.Helper()
	return b.do(http.MethodGet, path, nil)
}

func (b *browser) post(path string, form url.Values) reply {
	b.t.Helper()
	return b.do(http.MethodPost, path, form)
}

// sees wants a page of a status that has all texts, as a reader sees them.
func (b *browser) sees(path string, status int, texts ...string) reply {
	b.t.Helper()
	got := b.get(path)
	got.has(b.t, path, status, texts...)
	return got
}

// has wants an answer of a status that has all texts.
func (r reply) has(t testing.TB, what string, status int, texts ...string) {
	t.Helper()
	if r.status != status {
		t.Errorf("%s: status %d, want %d: %s", what, r.status, status, r.words())
	}
	for _, text := range texts {
		if !strings.Contains(r.words(), text) {
			t.Errorf("%s does not say %q, but %s", what, text, r.words())
		}
	}
}

// hidden are the fields of forms that nobody sees.
func (r reply) hidden() url.Values {
	form := url.Values{}
	for _, m := range regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`).FindAllStringSubmatch(r.text, -1) {
		form.Set(m[1], html.UnescapeString(m[2]))
	}
	return form
}

var tags = regexp.MustCompile(`<[^>]*>`)

// words is the text of a page without its tags.
func (r reply) words() string {
	return html.UnescapeString(strings.Join(strings.Fields(tags.ReplaceAllString(r.text, " ")), " "))
}

// lacks wants a page without some texts.
func (r reply) lacks(t testing.TB, what string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if strings.Contains(r.text, text) || strings.Contains(r.words(), text) {
			t.Errorf("%s has %q", what, text)
		}
	}
}

// done wants a form to be taken, and returns the page that it leads to.
func (b *browser) done(path string, form url.Values, texts ...string) reply {
	b.t.Helper()
	got := b.post(path, form)
	to := strings.TrimPrefix(got.header.Get("Location"), strings.TrimPrefix(b.url, b.host))
	if got.status != http.StatusSeeOther || to == "" {
		b.t.Fatalf("POST %s: %d %s: %s", path, got.status, to, got.words())
	}
	return b.sees(to, http.StatusOK, texts...)
}

// add adds a task, and returns its path.
func (s *site) add(task tocsin.NewTask) string {
	s.t.Helper()
	added, err := s.Client.Add(s.t.Context(), task)
	if err != nil {
		s.t.Fatal(err)
	}
	return "/tasks/" + added.JobID.String()
}

// call sends a request to the API, with the token for everything.
func (s *site) call(method, path, body string) (out map[string]any) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.host+"/v1"+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.tokens["all"])
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		s.t.Fatalf("%s %s: %v %d %s", method, path, err, resp.StatusCode, text)
	}
	if err := json.Unmarshal(text, &out); err != nil {
		s.t.Fatal(err)
	}
	return out
}

// yearly makes a schedule, whose runs are due on New Year's Day.
func (s *site) yearly(name, fields string) {
	s.t.Helper()
	s.call("POST", "/schedules", `{"name": "`+name+`", "biz_type": "order.close", "cron": "0 0 1 1 *"`+fields+`}`)
}
