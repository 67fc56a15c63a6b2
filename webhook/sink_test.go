package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"go.uber.org/goleak"

	"github.com/tocsinhq/tocsin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(withNames{m}) }

// withNames runs tests beside a server of names.
type withNames struct{ *testing.M }

func (w withNames) Run() int {
	defer names()()
	return w.M.Run()
}

var loopback = []string{"127.0.0.0/8", "::1/128"}

const (
	secretA = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	secretB = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
)

// post delivers one task to a receiver and gives the error.
func post(t *testing.T, receiver http.HandlerFunc, cfg SinkConfig) error {
	t.Helper()
	return newSink(t, receiver, cfg).Deliver(t.Context(), []tocsin.Info{nth(1)})[0]
}

func newSink(t *testing.T, receiver http.HandlerFunc, cfg SinkConfig) *Sink {
	t.Helper()
	server := httptest.NewServer(receiver)
	t.Cleanup(server.Close)
	cfg.URL = server.URL + "/hook"
	return openSink(t, cfg)
}

// openSink makes a Sink that lives until the test ends.
func openSink(t *testing.T, cfg SinkConfig) *Sink {
	t.Helper()
	s, err := NewSink(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestConformance(t *testing.T) {
	conforms(t,
		newSink(t, func(http.ResponseWriter, *http.Request) {}, SinkConfig{Allow: loopback}),
		newSink(t, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // or the server does not see that the client has gone
			<-r.Context().Done()
		}, SinkConfig{Allow: loopback}))
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	cases := map[string]struct {
		status int
		after  string
		body   string
		verb   tocsin.Verb
		in     time.Duration
		reason string
		rest   time.Duration // for which the receiver wants no callback at all
	}{
		"200 completes":                        {status: 200, verb: tocsin.Completed},
		"204 completes":                        {status: 204, verb: tocsin.Completed},
		"410 buries":                           {status: 410, body: "order unknown", verb: tocsin.Buried, reason: "callback answered 410 Gone: order unknown"},
		"503 retries":                          {status: 503, body: "<h1>\n busy</h1>", verb: tocsin.Retried, in: -1, reason: "callback answered 503 Service Unavailable: <h1> busy</h1>", rest: leastRest},
		"429 retries":                          {status: 429, verb: tocsin.Retried, in: -1, reason: "callback answered 429 Too Many Requests", rest: leastRest},
		"425 with a time":                      {status: 425, after: "5", verb: tocsin.Retried, in: 5 * time.Second, reason: "callback answered 425 Too Early"},
		"408 retries":                          {status: 408, verb: tocsin.Retried, in: -1, reason: "callback answered 408 Request Timeout"},
		"408 with a time":                      {status: 408, after: "5", verb: tocsin.Retried, in: 5 * time.Second, reason: "callback answered 408 Request Timeout"},
		"500 with a time":                      {status: 500, after: "5", verb: tocsin.Retried, in: 5 * time.Second, reason: "callback answered 500 Internal Server Error"},
		"429 retries when it says":             {status: 429, after: "120", verb: tocsin.Retried, in: 2 * time.Minute, reason: "callback answered 429 Too Many Requests", rest: 2 * time.Minute},
		"503 with a date":                      {status: 503, after: "Tue, 01 Dec 2026 12:00:30 GMT", verb: tocsin.Retried, in: 30 * time.Second, reason: "callback answered 503 Service Unavailable", rest: 30 * time.Second},
		"503 at once":                          {status: 503, after: "0", verb: tocsin.Retried, in: 0, reason: "callback answered 503 Service Unavailable", rest: leastRest},
		"a date in the past is now":            {status: 503, after: "Tue, 01 Dec 2026 11:00:30 GMT", verb: tocsin.Retried, in: 0, reason: "callback answered 503 Service Unavailable", rest: leastRest},
		"Retry-After is at most a day":         {status: 503, after: "99999999", verb: tocsin.Retried, in: retryAfterCap, reason: "callback answered 503 Service Unavailable", rest: retryAfterCap},
		"Retry-After beyond 32 bits":           {status: 429, after: "9999999999", verb: tocsin.Retried, in: retryAfterCap, reason: "callback answered 429 Too Many Requests", rest: retryAfterCap},
		"Retry-After beyond 64 bits":           {status: 503, after: "99999999999999999999", verb: tocsin.Retried, in: retryAfterCap, reason: "callback answered 503 Service Unavailable", rest: retryAfterCap},
		"a Retry-After that nobody can read":   {status: 503, after: "soon", verb: tocsin.Retried, in: -1, reason: "callback answered 503 Service Unavailable", rest: leastRest},
		"404 is a failed attempt":              {status: 404, after: "5", verb: tocsin.Retried, in: 5 * time.Second, reason: "callback answered 404 Not Found"},
		"302 is a failed attempt":              {status: 302, verb: tocsin.Retried, in: -1, reason: "callback answered 302 Found (redirects are not followed)"},
		"a status that nobody knows":           {status: 599, verb: tocsin.Retried, in: -1, reason: "callback answered 599"},
		"only the beginning of a body is kept": {status: 500, body: strings.Repeat("x", 500), verb: tocsin.Retried, in: -1, reason: "callback answered 500 Internal Server Error: " + strings.Repeat("x", snippet)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := verdict(&http.Response{StatusCode: c.status, Header: http.Header{"Retry-After": {c.after}}}, []byte(c.body), now)
			verb, in, reason := tocsin.AsOutcome(err)
			if verb != c.verb || in != c.in || strings.TrimSpace(reason) != c.reason {
				t.Errorf("got verb %d in %s, %q", verb, in, reason)
			}
			var told interface { // also from behind a Bury or a RetryIn
				RestFor() time.Duration
				FailureCause() string
			}
			if cause := fmt.Sprintf("status_%dxx", max(c.status/100, 4)); err != nil && (!errors.As(err, &told) || told.RestFor() != c.rest || told.FailureCause() != cause) {
				t.Errorf("it rests for %s, and the cause is not %s: %v", c.rest, cause, err)
			}
		})
	}
}

func TestBodyAndSignatures(t *testing.T) {
	t.Parallel()
	var header http.Header
	var body []byte
	receiver := func(_ http.ResponseWriter, r *http.Request) {
		header = r.Header
		body, _ = io.ReadAll(r.Body)
	}
	if err := post(t, receiver, SinkConfig{Allow: loopback}); err != nil || header["Webhook-Signature"] != nil {
		t.Errorf("without a secret: %v, %v", header, err)
	}
	if err := post(t, receiver, SinkConfig{Allow: loopback, Secrets: []string{secretA, secretB}}); err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{secretA, secretB} {
		verifier, err := standardwebhooks.NewWebhook(secret)
		if err != nil {
			t.Fatal(err)
		}
		if err := verifier.Verify(body, header); err != nil {
			t.Errorf("secret %s: %v", secret, err)
		}
	}
	if got, want := header.Get("webhook-id"), nth(1).Key(); got != want {
		t.Errorf("webhook-id %q, want %q", got, want)
	}
	wantBody(t, body)
}

func wantBody(t *testing.T, body []byte) {
	t.Helper()
	var got map[string]any
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	if _, err := time.Parse("2006-01-02T15:04:05.000Z", got["timestamp"].(string)); err != nil {
		t.Error(err)
	}
	want := map[string]any{
		"job_id": "1099511627777", "biz_id": "1001", "biz_type": "sink.test", "attempt": 1.0,
		"action_time": "2026-12-01T12:00:01.000Z", "due_time": "2026-12-01T12:00:01.000Z", "attribute": `{"n": 1}`,
	}
	data := got["data"].(map[string]any)
	for key, value := range want {
		if data[key] != value {
			t.Errorf("%s is %v, want %v", key, data[key], value)
		}
	}
	if got["type"] != "sink.test" || len(data) != len(want) {
		t.Errorf("type %v, %d fields of data, want %d", got["type"], len(data), len(want))
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	err := post(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/other" {
			t.Error("followed")
		}
		http.Redirect(w, r, "/other", http.StatusTemporaryRedirect)
	}, SinkConfig{Allow: loopback})
	if err == nil || !strings.Contains(err.Error(), "answered 307 Temporary Redirect (to http://127.0.0.1:") {
		t.Errorf("got %v", err)
	}
}

func TestAnEndlessAnswerDoesNotHoldTheSlot(t *testing.T) {
	t.Parallel()
	err := post(t, func(w http.ResponseWriter, r *http.Request) {
		for chunk := make([]byte, 32<<10); r.Context().Err() == nil; {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}, SinkConfig{Allow: loopback})
	if err != nil {
		t.Error(err)
	}
}

func TestBadConfigs(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		cfg  SinkConfig
		want string
	}{
		"no URL":            {SinkConfig{}, "webhook: want an absolute http or https URL"},
		"another scheme":    {SinkConfig{URL: "ftp://host/x"}, "webhook: want an absolute http or https URL"},
		"three secrets":     {SinkConfig{URL: "http://h", Secrets: []string{secretA, secretB, secretA}}, "webhook: 3 secrets, more than 2"},
		"whsec_ alone":      {SinkConfig{URL: "http://h", Secrets: []string{secretA, "whsec_"}}, "webhook secret 2: its key has 0 bytes, fewer than 24: make one with `openssl rand -base64 32`, and put whsec_ before it"},
		"a short secret":    {SinkConfig{URL: "http://h", Secrets: []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaQ="}}, "webhook secret 1: its key has 23 bytes, fewer than 24: make one with `openssl rand -base64 32`, and put whsec_ before it"},
		"a secret in plain": {SinkConfig{URL: "http://h", Secrets: []string{"hush hush"}}, "webhook secret 1: want whsec_ and base64"},
		"not a CIDR":        {SinkConfig{URL: "http://h", Allow: []string{"10.0.0.1"}}, `webhook: allowed network "10.0.0.1": want a CIDR such as 10.0.0.0/8`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := NewSink(c.cfg); err == nil || err.Error() != c.want {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestFromPolicyNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	if _, err := FromPolicy(tocsin.Policy{Name: "order.close"}, "", nil); err == nil || err.Error() != "biz type order.close has no webhook" {
		t.Errorf("got %v", err)
	}
	p := tocsin.Policy{Name: "order.close", Webhook: &tocsin.Webhook{URL: "http://h", Secrets: []string{"HOOK_A", "HOOK_B"}}}
	env := map[string]string{"HOOK_A": secretA}
	secrets := Secrets{Getenv: func(name string) string { return env[name] }}
	_, err := FromPolicy(p, "node-1", secrets.Value)
	if err == nil || !strings.Contains(err.Error(), "HOOK_B") || strings.Contains(err.Error(), secretA) {
		t.Errorf("got %v", err)
	}
	env["HOOK_B"] = secretB
	if _, err := FromPolicy(p, "node-1", secrets.Value); err != nil {
		t.Error(err)
	}
}

func TestTheStatusOfASlowAnswerCountsAtOnce(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	for status, want := range map[int]tocsin.Verb{101: tocsin.Retried, 200: tocsin.Completed, 410: tocsin.Buried, 503: tocsin.Retried} {
		s := newSink(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if status == http.StatusSwitchingProtocols { // its body is the connection itself
				w.Header().Set("Connection", "Upgrade")
				w.Header().Set("Upgrade", "x")
			}
			w.WriteHeader(status)
			w.(http.Flusher).Flush()
			select { // the rest never comes
			case <-r.Context().Done():
			case <-time.After(20 * bodyWait):
				panic(http.ErrAbortHandler) // closes it
			}
		}, SinkConfig{Allow: loopback})
		all.Go(func() {
			began := time.Now()
			err := s.Deliver(t.Context(), tasks(1))[0]
			if verb, _, _ := tocsin.AsOutcome(err); verb != want {
				t.Errorf("%d: %s, want %s (%v)", status, verb, want, err)
			}
			if took := time.Since(began); took > 10*bodyWait {
				t.Errorf("%d: took %s", status, took)
			}
		})
	}
	all.Wait()
}

const (
	ofAdd  = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	ofNode = "00-4bf92f3577b34da6a3ce929d0e0e4736-b7ad6b7169203331-01"
)

func TestACallbackCarriesTheTraceContextOfItsAddOrOfItsSender(t *testing.T) {
	t.Parallel()
	fromNode := http.Header{"Traceparent": {ofNode}, "X-Tenant": {"7"}, "Webhook-Id": {"forged"}}
	for name, c := range map[string]struct {
		stored        tocsin.Headers
		given         http.Header
		parent, state string
	}{
		"none":                       {},
		"as the task was added":      {stored: `{"traceparent":"` + ofAdd + `","tracestate":"a=b"}`, parent: ofAdd, state: "a=b"},
		"the sender's own":           {stored: `{"traceparent":"` + ofAdd + `","tracestate":"a=b"}`, given: fromNode, parent: ofNode},
		"the sender's alone":         {given: fromNode, parent: ofNode},
		"a parent that is none":      {stored: `{"traceparent":"00-1","tracestate":"a=b"}`},
		"a state of two lines":       {stored: `{"traceparent":"` + ofAdd + `","tracestate":"a=b\r\nX: y"}`, parent: ofAdd},
		"a state that is too long":   {stored: tocsin.Headers(`{"traceparent":"` + ofAdd + `","tracestate":"` + strings.Repeat("x", 513) + `"}`), parent: ofAdd},
		"a state without its parent": {stored: `{"tracestate":"a=b"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got http.Header
			s := newSink(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header }, SinkConfig{Allow: loopback})
			task := nth(1)
			task.Headers = c.stored
			ctx := t.Context()
			if c.given != nil {
				ctx = WithHeaders(ctx, c.given)
			}
			if err := s.Deliver(ctx, []tocsin.Info{task})[0]; err != nil {
				t.Fatal(err)
			}
			if got.Get("Traceparent") != c.parent || got.Get("Tracestate") != c.state {
				t.Errorf("traceparent %q, tracestate %q", got.Get("Traceparent"), got.Get("Tracestate"))
			}
			if got.Get("X-Tenant") != c.given.Get("X-Tenant") || got.Get("Webhook-Id") != task.Key() {
				t.Errorf("%v", got)
			}
		})
	}
}

// patience is how soon after its context's end a sink must return.
const patience = 2 * time.Second

// conforms tests what the dispatcher relies on. The receiver of the first sink takes every task, that of the second never
// answers.
func conforms(t *testing.T, accepting, hanging *Sink) {
	wantAll := func(t *testing.T, n int) {
		errs := accepting.Deliver(t.Context(), tasks(n))
		if len(errs) != n {
			t.Errorf("%d results for %d tasks", len(errs), n)
		}
		for i, err := range errs {
			if err != nil {
				t.Errorf("task %d: %v", i, err)
			}
		}
	}
	wantNone := func(t *testing.T, errs []error, n int) {
		if len(errs) != n {
			t.Errorf("%d results for %d tasks", len(errs), n)
		}
		for i, err := range errs {
			if err == nil {
				t.Errorf("task %d counts as complete", i)
			}
		}
	}
	t.Run("one result for each task", func(t *testing.T) {
		for n := range 4 {
			wantAll(t, n)
		}
	})
	t.Run("concurrent use", func(t *testing.T) {
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() { wantAll(t, 2) })
		}
		wg.Wait()
	})
	t.Run("the context bounds it", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		began := time.Now()
		errs := hanging.Deliver(ctx, tasks(2))
		if took := time.Since(began); took > patience {
			t.Errorf("returned %s after the start, with a time-out of 50ms", took)
		}
		wantNone(t, errs, 2)
	})
	t.Run("a context that has ended", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		wantNone(t, accepting.Deliver(ctx, tasks(1)), 1)
	})
}

// nth makes the n-th of the tasks that the tests send.
func nth(n int) tocsin.Info {
	due := time.Date(2026, 12, 1, 12, 0, n, 0, time.UTC)
	return tocsin.Info{
		JobID: tocsin.JobID(1<<40 + n), BizID: uint64(1000 + n), BizType: "sink.test",
		ActionTime: due, DueTime: due, Payload: fmt.Sprintf(`{"n": %d}`, n),
	}
}

func tasks(n int) []tocsin.Info {
	all := make([]tocsin.Info, n)
	for i := range all {
		all[i] = nth(i)
	}
	return all
}
