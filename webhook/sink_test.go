package webhook

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"go.uber.org/goleak"

	"github.com/tocsinhq/tocsin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
	}{
		"200 completes":                        {status: 200, verb: tocsin.Completed},
		"204 completes":                        {status: 204, verb: tocsin.Completed},
		"410 buries":                           {status: 410, body: "order unknown", verb: tocsin.Buried, reason: "callback answered 410 Gone: order unknown"},
		"503 retries":                          {status: 503, body: "<h1>\n busy</h1>", verb: tocsin.Retried, in: -1, reason: "callback answered 503 Service Unavailable: <h1> busy</h1>"},
		"408 retries":                          {status: 408, verb: tocsin.Retried, in: -1, reason: "callback answered 408 Request Timeout"},
		"429 retries when it says":             {status: 429, after: "120", verb: tocsin.Retried, in: 2 * time.Minute, reason: "callback answered 429 Too Many Requests"},
		"503 with a date":                      {status: 503, after: "Tue, 01 Dec 2026 12:00:30 GMT", verb: tocsin.Retried, in: 30 * time.Second, reason: "callback answered 503 Service Unavailable"},
		"a date in the past is now":            {status: 503, after: "Tue, 01 Dec 2026 11:00:30 GMT", verb: tocsin.Retried, in: 0, reason: "callback answered 503 Service Unavailable"},
		"Retry-After is at most a day":         {status: 503, after: "99999999", verb: tocsin.Retried, in: retryAfterCap, reason: "callback answered 503 Service Unavailable"},
		"a Retry-After that nobody can read":   {status: 503, after: "soon", verb: tocsin.Retried, in: -1, reason: "callback answered 503 Service Unavailable"},
		"404 is a failed attempt":              {status: 404, after: "5", verb: tocsin.Retried, in: -1, reason: "callback answered 404 Not Found"},
		"302 is a failed attempt":              {status: 302, verb: tocsin.Retried, in: -1, reason: "callback answered 302 Found"},
		"a status that nobody knows":           {status: 599, verb: tocsin.Retried, in: -1, reason: "callback answered 599"},
		"only the beginning of a body is kept": {status: 500, body: strings.Repeat("x", 500), verb: tocsin.Retried, in: -1, reason: "callback answered 500 Internal Server Error: " + strings.Repeat("x", snippet)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			verb, in, reason := tocsin.AsOutcome(verdict(&http.Response{StatusCode: c.status, Header: http.Header{"Retry-After": {c.after}}}, []byte(c.body), now))
			if verb != c.verb || in != c.in || strings.TrimSpace(reason) != c.reason {
				t.Errorf("got verb %d in %s, %q", verb, in, reason)
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

func TestUnsignedWithoutSecrets(t *testing.T) {
	t.Parallel()
	signed := true
	receiver := func(_ http.ResponseWriter, r *http.Request) { _, signed = r.Header["Webhook-Signature"] }
	if err := post(t, receiver, SinkConfig{Allow: loopback}); err != nil || signed {
		t.Errorf("signed %t, %v", signed, err)
	}
}

func TestPrivateAddressesAreRefusedUnlessAllowed(t *testing.T) {
	t.Parallel()
	called := false
	err := post(t, func(http.ResponseWriter, *http.Request) { called = true }, SinkConfig{Allow: []string{"10.0.0.0/8"}})
	if err == nil || called || !strings.Contains(err.Error(), "prohibited") {
		t.Errorf("called %t, %v", called, err)
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
	if err == nil || !strings.Contains(err.Error(), "answered 307") {
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

func TestTransportErrorsRetry(t *testing.T) {
	t.Parallel()
	s, err := NewSink(SinkConfig{URL: "http://127.0.0.1:1/hook?token=secret", Allow: loopback})
	if err != nil {
		t.Fatal(err)
	}
	verb, in, reason := tocsin.AsOutcome(s.Deliver(context.Background(), []tocsin.Info{nth(1)})[0])
	if verb != tocsin.Retried || in != -1 || strings.Contains(reason, "token") {
		t.Errorf("verb %d in %s, %q", verb, in, reason)
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

func TestFromPolicyNamesAMissingSecret(t *testing.T) {
	t.Parallel()
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

func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{"", "0", "120", "-1", "99999999999999", "Tue, 01 Dec 2026 12:00:30 GMT", "1.5"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		if wait, _ := retryAfter(value, time.Now()); wait < 0 || wait > retryAfterCap {
			t.Errorf("%q gives %s", value, wait)
		}
	})
}

func TestAPolicyWithoutWebhookIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := FromPolicy(tocsin.Policy{Name: "order.close"}, "", nil); err == nil || !strings.Contains(err.Error(), "order.close") {
		t.Errorf("got %v", err)
	}
}

func TestTheStatusOfASlowAnswerCountsAtOnce(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]tocsin.Verb{200: tocsin.Completed, 410: tocsin.Buried, 503: tocsin.Retried} {
		began := time.Now()
		err := post(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(status)
			w.(http.Flusher).Flush()
			<-r.Context().Done() // the rest never comes
		}, SinkConfig{Allow: loopback})
		if verb, _, _ := tocsin.AsOutcome(err); verb != want {
			t.Errorf("%d: %s, want %s (%v)", status, verb, want, err)
		}
		if took := time.Since(began); took > 10*bodyWait {
			t.Errorf("%d: took %s", status, took)
		}
	}
}
