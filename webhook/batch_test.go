package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/tocsinhq/tocsin"
)

// batchBody is the body of a request in the batch form.
type batchBody struct {
	Type string           `json:"type"`
	Data []map[string]any `json:"data"`
}

func readBatch(t *testing.T, r *http.Request) (b batchBody, text []byte) {
	t.Helper()
	text, _ = io.ReadAll(r.Body)
	if err := json.Unmarshal(text, &b); err != nil {
		t.Errorf("%v: %s", err, text)
	}
	return b, text
}

func TestABatchConforms(t *testing.T) {
	done := func(w http.ResponseWriter, r *http.Request) {
		var results []map[string]string
		b, _ := readBatch(t, r)
		for _, task := range b.Data {
			results = append(results, map[string]string{"key": task["key"].(string), "result": "done"})
		}
		_ = json.NewEncoder(w).Encode(results)
	}
	conforms(t,
		newSink(t, done, SinkConfig{Allow: loopback, Batch: 2}),
		newSink(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_ = http.NewResponseController(w).Flush() // the status comes, the results never do
			<-r.Context().Done()
		}, SinkConfig{Allow: loopback, Batch: 2}))
}

// One signature is that of all tasks, and each has the fields of a request of one task, and its key.
func TestABatchIsOneSignedRequest(t *testing.T) {
	t.Parallel()
	requests, ids := 0, map[string]bool{}
	s := newSink(t, func(w http.ResponseWriter, r *http.Request) {
		requests++
		b, text := readBatch(t, r)
		verifier, err := standardwebhooks.NewWebhook(secretB)
		if err != nil {
			t.Error(err)
		}
		if err := verifier.Verify(text, r.Header); err != nil {
			t.Error(err)
		}
		ids[r.Header.Get("webhook-id")] = true
		if b.Type != "sink.test" || len(b.Data) != 3 || b.Data[1]["key"] != nth(1).Key() {
			t.Errorf("%s", text)
		}
		one, _ := json.Marshal(map[string]any{"timestamp": "2026-12-01T12:00:00.000Z", "type": b.Type, "data": without(b.Data[1], "key")})
		wantBody(t, one)
		_, _ = io.WriteString(w, "[]")
	}, SinkConfig{Allow: loopback, Secrets: []string{secretA, secretB}, Batch: 3})
	tasks := []tocsin.Info{nth(0), nth(1), nth(2)}
	s.Deliver(t.Context(), tasks)
	s.Deliver(t.Context(), tasks)
	if requests != 2 || len(ids) != 2 || ids[""] || ids[tasks[0].Key()] {
		t.Errorf("%d requests with the ids %v", requests, ids)
	}
}

func without(all map[string]any, key string) map[string]any {
	delete(all, key)
	return all
}

func TestAnswersToABatch(t *testing.T) {
	t.Parallel()
	a, b := nth(1), nth(2)
	type want struct {
		verb   tocsin.Verb
		in     time.Duration
		reason string // its beginning
	}
	done := want{verb: tocsin.Completed}
	retried := func(reason string) want { return want{tocsin.Retried, -1, reason} }
	none := retried("callback answered no result for the task")
	entry := func(rest string) string {
		return fmt.Sprintf(`{"key":%q,"result":"done"},{"key":%q,%s}`, a.Key(), b.Key(), rest)
	}
	for name, c := range map[string]struct {
		status int
		body   string
		a, b   want
	}{
		"done":                          {200, "[" + entry(`"result":"done","more":{"x":1}`) + `,{"key":"9.9","result":"bury"}]`, done, done},
		"201":                           {201, "[" + entry(`"result":"done"`) + "]", done, done},
		"retry":                         {200, "[" + entry(`"result":"retry","text":"busy"`) + "]", done, retried("callback answered retry: busy")},
		"retry at a time":               {200, "[" + entry(`"result":"retry","retry_after":1.5,"text":"busy"`) + "]", done, want{tocsin.Retried, 1500 * time.Millisecond, "callback answered retry: busy"}},
		"retry in a year":               {200, "[" + entry(`"result":"retry","retry_after":1e300`) + "]", done, want{tocsin.Retried, retryAfterCap, "callback answered retry"}},
		"retry before now":              {200, "[" + entry(`"result":"retry","retry_after":-1`) + "]", done, retried("callback answered retry")},
		"bury":                          {200, "[" + entry(`"result":"bury","text":"no coupon"`) + "]", done, want{tocsin.Buried, 0, "callback answered bury: no coupon"}},
		"snooze":                        {200, "[" + entry(`"result":"snooze","retry_after":60`) + "]", done, want{tocsin.Snoozed, time.Minute, ""}},
		"snooze for no time":            {200, "[" + entry(`"result":"snooze","retry_after":0`) + "]", done, want{tocsin.Snoozed, 0, ""}},
		"later":                         {200, "[" + entry(`"result":"later","retry_after":5,"text":"busy"`) + "]", done, want{tocsin.Retried, 5 * time.Second, "callback answered later: busy"}},
		"later without a time":          {200, "[" + entry(`"result":"later"`) + "]", done, retried("callback answered later")},
		"snooze for ever":               {200, "[" + entry(`"result":"snooze"`) + "]", done, retried("callback answered snooze without retry_after")},
		"another word":                  {200, "[" + entry(`"result":"ok"`) + "]", done, retried(`callback answered "ok": want done, retry, later, bury or snooze`)},
		"two results":                   {200, "[" + entry(`"result":"done"`) + "," + fmt.Sprintf(`{"key":%q,"result":"done"}]`, b.Key()), done, retried(`callback answered "two results"`)},
		"one is missing":                {200, fmt.Sprintf(`[{"key":%q,"result":"done"}]`, a.Key()), done, retried("callback answered no result for the task, and 1 for others")},
		"one is no result":              {200, "[" + entry(`"result":7`) + "]", done, retried("callback answered no result for the task; one can't be read: ")},
		"no results":                    {200, "[]", none, none},
		"null":                          {200, "null", none, none},
		"no body":                       {204, "", retried("callback answered no JSON list"), retried("callback answered no JSON list")},
		"no list":                       {200, `{"done":true}`, retried("callback answered no JSON list"), retried("callback answered no JSON list")},
		"more behind the list":          {200, "[" + entry(`"result":"done"`) + "] ok", retried("callback answered no JSON list"), retried("callback answered no JSON list")},
		"too much":                      {200, "[" + entry(`"result":"done"`) + "]" + strings.Repeat(" ", batchCap), retried("callback answered more than 1048576 bytes"), retried("callback answered more than 1048576 bytes")},
		"a failure, whatever its body":  {500, "[" + entry(`"result":"done"`) + "]", retried("callback answered 500"), retried("callback answered 500")},
		"gone, so all tasks are buried": {410, "", want{tocsin.Buried, 0, "callback answered 410 Gone"}, want{tocsin.Buried, 0, "callback answered 410 Gone"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSink(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			}, SinkConfig{Allow: loopback, Batch: 10})
			for i, err := range s.Deliver(t.Context(), []tocsin.Info{a, b}) {
				want := []want{c.a, c.b}[i]
				verb, in, reason := tocsin.AsOutcome(err)
				if verb != want.verb || in != want.in || !strings.HasPrefix(reason, want.reason) {
					t.Errorf("task %d: %s in %s, %q; want %s in %s, %q", i, verb, in, reason, want.verb, want.in, want.reason)
				}
			}
		})
	}
}

// The largest payloads take several requests, none of them larger than a receiver takes, and each task gets its own result.
func TestALargeBatchIsSplit(t *testing.T) {
	t.Parallel()
	requests := 0
	s := newSink(t, func(w http.ResponseWriter, r *http.Request) {
		requests++
		b, text := readBatch(t, r)
		if len(text) > batchCap {
			t.Errorf("a body of %d bytes", len(text))
		}
		var results []map[string]any
		for _, task := range b.Data {
			results = append(results, map[string]any{"key": task["key"], "result": "bury", "text": task["job_id"]})
		}
		_ = json.NewEncoder(w).Encode(results)
	}, SinkConfig{Allow: loopback, Batch: 100})
	tasks := make([]tocsin.Info, 60)
	for i := range tasks {
		tasks[i] = nth(i)
		tasks[i].Payload = strings.Repeat("\x01", tocsin.MaxPayload) // six bytes each in JSON
	}
	for i, err := range s.Deliver(t.Context(), tasks) {
		if want := "callback answered bury: " + tasks[i].JobID.String(); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("task %d: %v", i, err)
		}
	}
	if requests != 3 {
		t.Errorf("%d requests, want 3", requests)
	}
}

// Tasks whose request could not begin in time have had no attempt.
func TestARequestThatTakesAllTheTimeIsNoAttemptOfTheTasksBehindIt(t *testing.T) {
	t.Parallel()
	s := newSink(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}, SinkConfig{Allow: loopback, Batch: 100})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	large := tasks(3)
	for i := range large {
		large[i].Payload = strings.Repeat("x", batchCap*2/3)
	}
	errs := s.Deliver(ctx, large)
	if notReached(errs[0]) || !notReached(errs[1]) || !notReached(errs[2]) {
		t.Errorf("got %v", errs)
	}
}
