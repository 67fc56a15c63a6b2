package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tocsinhq/tocsin"
)

var due = time.Date(2026, 12, 1, 12, 0, 0, 5e6, time.UTC)

func task(payload string) tocsin.Info {
	return tocsin.Info{JobID: 1<<40 + 7, BizID: 1<<63 + 1, BizType: "coupon.remind", ActionTime: due.Add(time.Minute), DueTime: due, Attempts: 2, Version: 3, Payload: payload, PayloadVersion: 2}
}

// receive serves a Receiver.
func receive(t *testing.T, cfg Config, handle func(context.Context, Task) error) (url string) {
	t.Helper()
	r, err := New(cfg, handle)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(r)
	t.Cleanup(s.Close)
	return s.URL
}

// deliver sends a callback as a node does.
func deliver(t *testing.T, url string, secrets []string, payload string) error {
	t.Helper()
	return deliverTask(t, url, secrets, task(payload))
}

func deliverTask(t *testing.T, url string, secrets []string, task tocsin.Info) error {
	t.Helper()
	return openSink(t, SinkConfig{URL: url, Node: "node-a", Secrets: secrets, Allow: loopback}).Deliver(t.Context(), []tocsin.Info{task})[0]
}

func TestAReceiverGetsTheTaskThatANodeSends(t *testing.T) {
	t.Parallel()
	one, fire := []string{secretA}, time.Date(2026, 11, 22, 4, 0, 0, 5e6, time.UTC)
	for name, c := range map[string]struct {
		has, signs []string
		more       tocsin.Info // headers, key, schedule and fire time
	}{
		"one secret":              {one, one, tocsin.Info{}},
		"a new secret, sent too":  {[]string{secretB}, []string{secretA, secretB}, tocsin.Info{}},
		"an old secret as well":   {[]string{secretA, secretB}, []string{secretB}, tocsin.Info{}},
		"a secret without whsec_": {[]string{strings.TrimPrefix(secretA, "whsec_")}, one, tocsin.Info{}},
		"unsigned":                {nil, nil, tocsin.Info{}},
		"headers and a key":       {one, one, tocsin.Info{Headers: `{"tenant":"<ü>","traceparent":"00-1"}`, BizKey: "ord_1"}},
		"a run for a time":        {one, one, tocsin.Info{Schedule: "report.daily", FireTime: fire}},
		"a run by hand":           {one, one, tocsin.Info{Schedule: "report.daily"}},
	} {
		var got Task
		url := receive(t, Config{Secrets: c.has, Unsigned: c.has == nil}, func(_ context.Context, task Task) error {
			got = task
			return nil
		})
		info := task(`{"text":"half price \"today\" <é>"}`)
		info.Headers, info.BizKey, info.Schedule, info.FireTime = c.more.Headers, c.more.BizKey, c.more.Schedule, c.more.FireTime
		if err := deliverTask(t, url, c.signs, info); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		want := Task{
			Key: fmt.Sprintf("%d.3", uint64(1<<40+7)), JobID: 1<<40 + 7, BizID: 1<<63 + 1, BizType: "coupon.remind", ActionTime: due.Add(time.Minute), DueTime: due, Attempt: 3,
			Payload: info.Payload, PayloadVersion: 2, Node: "node-a", Headers: info.Headers, BizKey: info.BizKey, Schedule: info.Schedule, FireTime: info.FireTime,
		}
		if got != want {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
}

// Plain SQL may have stored anything as headers. The other tasks of a batch are sent.
func TestHeadersThatAreNoneAreNotSent(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{0, 10} {
		url := receive(t, Config{Unsigned: true}, func(_ context.Context, task Task) error {
			if task.Payload != "good" {
				t.Errorf("%+v was sent", task)
			}
			return nil
		})
		bad, good := task("bad"), task("good")
		bad.Headers, good.JobID = `{"tenant":7}`, bad.JobID+1
		errs := openSink(t, SinkConfig{URL: url, Allow: loopback, Batch: batch}).Deliver(t.Context(), []tocsin.Info{bad, good})
		var own interface{ Unsent() bool } // as the breaker and a fallback ask
		if !errors.As(errs[0], &own) || !own.Unsent() {
			t.Errorf("batch %d: %v shows something of the receiver", batch, errs[0])
		}
		if verb, _, reason := tocsin.AsOutcome(errs[0]); verb != tocsin.Retried || !strings.Contains(reason, "headers are not a JSON object of texts") || errs[1] != nil {
			t.Errorf("batch %d: %s, %q; the other task: %v", batch, verb, reason, errs[1])
		}
	}
}

// tired is the error of a receiver that wants no callbacks for so long.
type tired time.Duration

func (tired) Error() string            { return "tired" }
func (t tired) RestFor() time.Duration { return time.Duration(t) }

// panics stands for a panic of the function.
type panics struct{ value any }

func (panics) Error() string { return "" }

// What the function returns is what the node makes of the answer: of one task, that the whole biz type rests only if the
// error says so.
func TestTheFunctionsErrorIsTheOutcome(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err    error
		verb   tocsin.Verb
		in     time.Duration
		reason string
	}{
		"success": {nil, tocsin.Completed, 0, ""},
		"bury":    {tocsin.Bury(errors.New("no such coupon")), tocsin.Buried, 0, "callback answered 410 Gone: no such coupon"},
		"retry":   {tocsin.RetryIn(1500*time.Millisecond, errors.New("no mail")), tocsin.Retried, 2 * time.Second, "callback answered 500 Internal Server Error: no mail"},
		"snooze":  {tocsin.Snooze(time.Minute), tocsin.Retried, time.Minute, "callback answered 500 Internal Server Error: later"},
		"rest":    {tired(5 * time.Second), tocsin.Retried, 5 * time.Second, "callback answered 503 Service Unavailable: tired"},
		"wrapped": {fmt.Errorf("coupon 7: %w", tocsin.Bury(errors.New("expired"))), tocsin.Buried, 0, "callback answered 410 Gone: coupon 7: expired"},
		"no text": {tocsin.Bury(errors.New("")), tocsin.Buried, 0, "callback answered 410 Gone: an error of type *errors.errorString, without a text"},
		"no UTF8": {errors.New("a\xff"), tocsin.Retried, -1, `callback answered 500 Internal Server Error: a\xff`},
		"panic":   {panics{"oh"}, tocsin.Retried, -1, "callback answered 500 Internal Server Error: panic: oh"},
		"nil":     {panics{nil}, tocsin.Retried, -1, "callback answered 500 Internal Server Error: panic: panic called with nil argument"},
		"a pause": {fmt.Errorf("no mail: %w", tocsin.Snooze(time.Minute)), tocsin.Retried, time.Minute, "callback answered 500 Internal Server Error: no mail: snooze 1m0s"},
		"other":   {errors.New("oops"), tocsin.Retried, -1, "callback answered 500 Internal Server Error: oops"},
	} {
		url := receive(t, Config{Secrets: []string{secretA}}, func(context.Context, Task) error {
			if p, is := c.err.(panics); is {
				panic(p.value)
			}
			return c.err
		})
		got := deliver(t, url, []string{secretA}, "x")
		verb, in, reason := tocsin.AsOutcome(got)
		var rests interface{ RestFor() time.Duration }
		if all := errors.As(got, &rests) && rests.RestFor() > 0; all != (name == "rest") {
			t.Errorf("%s: the whole biz type rests: %t", name, all)
		}
		if verb != c.verb || in != c.in || reason != c.reason {
			t.Errorf("%s: %s in %s, %q, want %s in %s, %q", name, verb, in, reason, c.verb, c.in, c.reason)
		}
	}
}

func TestARefusedCallbackReachesNoFunction(t *testing.T) {
	t.Parallel()
	var refusals []string
	url := receive(t, Config{Secrets: []string{secretA}, MaxBody: 1000, Failed: func(_ context.Context, task Task, err error) {
		if task != (Task{}) {
			t.Errorf("%v: of %+v", err, task)
		}
		refusals = append(refusals, err.Error())
	}}, func(context.Context, Task) error {
		t.Error("the function was called")
		return nil
	})
	for name, c := range map[string]struct {
		secrets []string
		payload string
		want    string
	}{
		"another secret": {[]string{secretB}, "x", "401 Unauthorized"},
		"no signature":   {nil, "x", "401 Unauthorized"},
		"a large body":   {[]string{secretA}, strings.Repeat("x", 2000), "413 Request Entity Too Large"},
	} {
		if err := deliver(t, url, c.secrets, c.payload); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	if len(refusals) != 3 {
		t.Errorf("told of %q", refusals)
	}
}

func TestWhatIsNoCallbackIsRefused(t *testing.T) {
	t.Parallel()
	url := receive(t, Config{Unsigned: true}, func(context.Context, Task) error {
		t.Error("the function was called")
		return nil
	})
	for name, c := range map[string]struct {
		method, id, body string
		status           int
	}{
		"a GET":           {http.MethodGet, "7.0", "", http.StatusMethodNotAllowed},
		"no JSON":         {http.MethodPost, "7.0", "hello", http.StatusBadRequest},
		"another event":   {http.MethodPost, "7.0", `{"type":"x","data":{}}`, http.StatusBadRequest},
		"no webhook-id":   {http.MethodPost, "", `{"data":{"job_id":"7","biz_id":"1","biz_type":"a"}}`, http.StatusBadRequest},
		"a negative id":   {http.MethodPost, "7.0", `{"data":{"job_id":"-7","biz_id":"1","biz_type":"a"}}`, http.StatusBadRequest},
		"a time of words": {http.MethodPost, "7.0", `{"data":{"job_id":"7","biz_id":"1","biz_type":"a","due_time":"now"}}`, http.StatusBadRequest},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, url, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("webhook-id", c.id)
		answer, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != c.status || len(text) == 0 || strings.Count(string(text), "\n") != 1 {
			t.Errorf("%s: %d %q, want %d and one line", name, answer.StatusCode, text, c.status)
		}
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

func TestACallbackThatWasHandledIsNotHandledAgain(t *testing.T) {
	t.Parallel()
	calls, fail := 0, true
	url := receive(t, Config{Secrets: []string{secretA}, Done: NewMemory(1)}, func(context.Context, Task) error {
		if calls++; fail {
			return errors.New("not yet")
		}
		return nil
	})
	for i, c := range []struct {
		fail, ok bool
		calls    int
	}{{true, false, 1}, {false, true, 2}, {false, true, 2}} {
		fail = c.fail // the payloads differ, for the same bytes within a millisecond are a copy
		if err := deliver(t, url, []string{secretA}, fmt.Sprint(i)); (err == nil) != c.ok || calls != c.calls {
			t.Errorf("%v, %d calls, want success %t and %d", err, calls, c.ok, c.calls)
		}
	}
}

// broken is a Done whose database is away.
type broken struct{ has, put error }

func (b broken) Has(context.Context, string) (bool, error) { return false, b.has }
func (b broken) Put(context.Context, string) error         { return b.put }

func TestADoneThatFails(t *testing.T) {
	t.Parallel()
	away := errors.New("no database")
	for name, c := range map[string]struct {
		done  broken
		calls int
		want  string // part of the node's error; "": success
	}{
		"before the function": {broken{has: away}, 0, "503 Service Unavailable: whether it was handled is not known"},
		"after it":            {broken{put: away}, 1, ""},
	} {
		calls, told := 0, []error(nil)
		url := receive(t, Config{Secrets: []string{secretA}, Done: c.done, Failed: func(_ context.Context, _ Task, err error) { told = append(told, err) }},
			func(context.Context, Task) error { calls++; return nil })
		err := deliver(t, url, []string{secretA}, "x")
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || calls != c.calls || len(told) != 1 || !errors.Is(told[0], away) {
			t.Errorf("%s: %v, %d calls, told %v", name, err, calls, told)
		}
	}
}

func TestMemoryKeepsTheLastKeys(t *testing.T) {
	t.Parallel()
	m := NewMemory(3)
	var g sync.WaitGroup
	for range 4 {
		g.Go(func() {
			for i := range 100 {
				_ = m.Put(t.Context(), fmt.Sprint(i))
				_, _ = m.Has(t.Context(), fmt.Sprint(i))
			}
		})
	}
	g.Wait()
	for _, key := range []string{"a", "b", "b", "c"} {
		_ = m.Put(t.Context(), key)
	}
	for key, want := range map[string]bool{"99": false, "a": true, "b": true, "c": true, "": false} {
		if got, err := m.Has(t.Context(), key); got != want || err != nil {
			t.Errorf("%q: %t, %v", key, got, err)
		}
	}
}

func TestAReceiverNeedsSecretsAndAFunction(t *testing.T) {
	t.Parallel()
	handle := func(context.Context, Task) error { return nil }
	for name, c := range map[string]struct {
		cfg    Config
		handle func(context.Context, Task) error
		want   string
	}{
		"nothing":      {Config{}, handle, "no secrets: set Secrets to those of the biz type's webhook, or Unsigned"},
		"both":         {Config{Secrets: []string{secretA}, Unsigned: true}, handle, "exclude each other"},
		"no function":  {Config{Unsigned: true}, nil, "the function is nil"},
		"not base64":   {Config{Secrets: []string{secretA, "hunter 2"}}, handle, "webhook secret 2: want whsec_ and base64"},
		"empty secret": {Config{Secrets: []string{""}}, handle, "webhook secret 1: its key has 0 bytes"},
	} {
		if _, err := New(c.cfg, c.handle); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestACopyOfACallbackIsRefused: one that somebody replays, later or at the same time.
func TestACopyOfACallbackIsRefused(t *testing.T) {
	t.Parallel()
	var handled atomic.Int32
	entered, leave := make(chan struct{}), make(chan struct{})
	r, err := New(Config{Secrets: []string{secretA}}, func(context.Context, Task) error {
		handled.Add(1)
		entered <- struct{}{}
		<-leave
		return errors.New("not now")
	})
	if err != nil {
		t.Fatal(err)
	}
	var body []byte
	var header http.Header
	spy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ = io.ReadAll(req.Body)
		header = req.Header
	}))
	defer spy.Close()
	if err := deliver(t, spy.URL, []string{secretB, secretA}, "x"); err != nil {
		t.Fatal(err)
	}
	send := func(change func(http.Header)) int {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewReader(body))
		req.Header = header.Clone()
		change(req.Header)
		w := httptest.NewRecorder()
		r.ServeHTTP(w, req)
		return w.Code
	}
	same := func(http.Header) {}
	oneSignature := func(h http.Header) { h.Set("webhook-signature", strings.Fields(h.Get("webhook-signature"))[1]) }
	first := make(chan int)
	go func() { first <- send(same) }()
	<-entered
	for name, change := range map[string]func(http.Header){"the same": same, "with one of two signatures": oneSignature} {
		if got := send(change); got != http.StatusConflict {
			t.Errorf("%s, meanwhile: %d", name, got)
		}
	}
	close(leave)
	if got := <-first; got != http.StatusInternalServerError {
		t.Errorf("the first: %d", got)
	}
	if got := send(same); got != http.StatusConflict || handled.Load() != 1 {
		t.Errorf("afterwards: %d, handled %d times", got, handled.Load())
	}
}

// TestCopiesAreForgottenWithTheirSignatures: what is remembered is bounded by time.
func TestCopiesAreForgottenWithTheirSignatures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &recent{ids: make(map[int64]map[string]bool)}
		add := func(id string) bool {
			isNew, err := seen.Add(t.Context(), id, time.Now().Add(5*time.Minute))
			if err != nil {
				t.Error(err)
			}
			return isNew
		}
		at := time.Now()
		if !add("a") || add("a") || !add("b") {
			t.Error("of three, two were new")
		}
		time.Sleep(5 * time.Minute)
		if isNew, _ := seen.Add(t.Context(), "a", at.Add(5*time.Minute)); isNew {
			t.Error("forgotten before its signature ended")
		}
		for range 20 {
			time.Sleep(time.Minute)
			add("c")
		}
		n := 0
		for _, ids := range seen.ids {
			n += len(ids)
		}
		if n > 8 {
			t.Errorf("%d ids are kept of the last six minutes, one a minute", n)
		}
	})
}
