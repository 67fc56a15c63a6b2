package api_test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/api"
	"github.com/tocsinhq/tocsin/internal/apitoken"
	"github.com/tocsinhq/tocsin/operator"
	"github.com/tocsinhq/tocsin/tocsintest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(tocsintest.Main(m)) }

var (
	closing = tocsin.Define[string]("order.close")
	remind  = tocsin.Define[string]("coupon.remind")
)

// served is an API over HTTP, with a token of each scope for order.*, and one for everything.
type served struct {
	*tocsintest.Cluster
	t      testing.TB
	api    *api.API
	url    string
	tokens map[string]string // read, write, operate: of order.*; all: of everything; expired
	log    *lines
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

// limits are those of an API under test.
func limits(c *tocsintest.Cluster) api.Config {
	view := operator.View{Tables: c.Config, ByRows: true, Grace: time.Minute, Pages: operator.Asker{Client: http.DefaultClient, Scheme: "http"}}
	return api.Config{Tables: c.Config, Cluster: view, Body: 64 << 10, Rate: 100_000, Timeout: time.Minute, Drain: time.Minute}
}

// serve starts an API, whose config may be changed.
func serve(t testing.TB, change func(*api.Config)) *served {
	t.Helper()
	return over(t, tocsintest.Start(t, closing, remind), change)
}

// over is serve for a cluster that is there.
func over(t testing.TB, c *tocsintest.Cluster, change func(*api.Config)) *served {
	t.Helper()
	s := &served{Cluster: c, t: t, tokens: map[string]string{}, log: &lines{}}
	var all []apitoken.Token
	add := func(name string, token apitoken.Token) {
		token.Name = name
		text, made, err := apitoken.New(token)
		if err != nil {
			t.Fatal(err)
		}
		s.tokens[name] = text
		all = append(all, made)
	}
	for _, scope := range []apitoken.Scope{apitoken.Read, apitoken.Write, apitoken.Operate} {
		add(string(scope), apitoken.Token{Scope: scope, BizTypes: []string{"order.*"}})
	}
	add("all", apitoken.Token{Scope: apitoken.Operate, BizTypes: []string{"*"}})
	add("expired", apitoken.Token{Scope: apitoken.Operate, BizTypes: []string{"*"}, Expires: time.Now().Add(-time.Second)})
	set, err := apitoken.NewSet(all)
	if err != nil {
		t.Fatal(err)
	}
	cfg := limits(c)
	cfg.Tokens = func() apitoken.Set { return set }
	cfg.Logger = slog.New(slog.NewTextHandler(s.log, nil))
	if change != nil {
		change(&cfg)
	}
	s.api = api.New(cfg)
	server := httptest.NewServer(s.api)
	s.url = server.URL
	t.Cleanup(func() {
		server.Close()
		if err := s.api.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// request is one request of a test.
type request struct {
	as     string // name of a token; "": write; "-": none
	method string
	path   string
	body   string
	header map[string]string
}

// reply is what came back.
type reply struct {
	status int
	header http.Header
	text   string
	api.Problem
}

func (s *served) do(r request) reply {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), r.method, s.url+r.path, strings.NewReader(r.body))
	if err != nil {
		s.t.Fatal(err)
	}
	if r.as == "" {
		r.as = "write"
	}
	if token := s.tokens[r.as]; token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if r.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range r.header {
		if name == "Host" {
			req.Host = value
		}
		req.Header.Set(name, value)
		if value == "" {
			req.Header.Del(name)
		}
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	got := reply{status: resp.StatusCode, header: resp.Header, text: string(text)}
	if resp.Header.Get("Content-Type") == "application/problem+json" && r.method != http.MethodHead {
		if err := json.Unmarshal(text, &got.Problem); err != nil {
			s.t.Errorf("%s %s: %v: %s", r.method, r.path, err, text)
		}
	}
	return got
}

// want does a request, and reads its answer.
func want[T any](s *served, status int, r request) (out T) {
	s.t.Helper()
	got := s.do(r)
	if got.status != status {
		s.t.Fatalf("%s %s: status %d, want %d: %s", r.method, r.path, got.status, status, got.text)
	}
	if err := json.Unmarshal([]byte(got.text), &out); err != nil {
		s.t.Fatalf("%s %s: %v: %s", r.method, r.path, err, got.text)
	}
	return out
}

func post(path, body string) request { return request{method: "POST", path: "/v1" + path, body: body} }
func get(path string) request        { return request{method: "GET", path: "/v1" + path} }

func (r request) by(token string) request {
	r.as = token
	return r
}

// lock has nobody else use a table until the function that it returns is called, or the test ends, and returns the connection that does so.
func (s *served) lock(table string) (held *sql.Conn, unlock func()) {
	s.t.Helper()
	held, err := s.DB.Conn(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = held.Close() })
	exec := func(statement string) {
		if _, err := held.ExecContext(s.t.Context(), statement); err != nil {
			s.t.Fatal(err)
		}
	}
	exec("LOCK TABLES " + table + " WRITE")
	return held, func() { exec("UNLOCK TABLES") }
}

// add adds a task with the client, and returns its id.
func (s *served) add(task tocsin.NewTask) string {
	s.t.Helper()
	added, err := s.Client.Add(s.t.Context(), task)
	if err != nil {
		s.t.Fatal(err)
	}
	return added.JobID.String()
}
