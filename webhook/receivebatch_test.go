package webhook

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
)

// deliverBatch sends tasks in one callback, as a node does, with the payloads.
func deliverBatch(t *testing.T, url string, secrets []string, payloads ...string) []error {
	t.Helper()
	var tasks []tocsin.Info
	for i, payload := range payloads {
		tasks = append(tasks, task(payload))
		tasks[i].JobID += tocsin.JobID(i)
	}
	return openSink(t, SinkConfig{URL: url, Node: "node-a", Secrets: secrets, Allow: loopback, Batch: 1000}).Deliver(t.Context(), tasks)
}

// receiveBatch serves a Receiver of batches.
func receiveBatch(t *testing.T, cfg Config, handle func(context.Context, []Task) []error) (url string) {
	t.Helper()
	r, err := NewBatch(cfg, handle)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(r)
	t.Cleanup(s.Close)
	return s.URL
}

// byPayload is the outcome of a task, by its payload.
func byPayload(task Task) error {
	switch task.Payload {
	case "bury":
		return tocsin.Bury(errors.New("no coupon"))
	case "in":
		return tocsin.RetryIn(1500*time.Millisecond, errors.New("busy"))
	case "snooze":
		return tocsin.Snooze(time.Minute)
	case "long":
		return errors.New(strings.Repeat("é\x01", 4000))
	case "fail":
		return errors.New("oops")
	case "later":
		return tired(2 * time.Second)
	}
	return nil
}

// A receiver for batches and one for single tasks make the same of a batch.
func TestEachTaskOfABatchHasItsOutcome(t *testing.T) {
	t.Parallel()
	cfg := Config{Secrets: []string{secretA}}
	var sizes []int
	urls := []string{
		receiveBatch(t, cfg, func(_ context.Context, tasks []Task) (errs []error) {
			sizes = append(sizes, len(tasks))
			for _, task := range tasks {
				errs = append(errs, byPayload(task))
			}
			return errs
		}),
		receive(t, cfg, func(_ context.Context, task Task) error { return byPayload(task) }),
	}
	want := []string{"complete 0s ", "bury 0s callback answered bury: no coupon", "retry 1.5s callback answered retry: busy", "snooze 1m0s ", "retry -1ns callback answered retry: oops", "retry 2s callback answered later: tired"}
	for _, url := range urls {
		var got []string
		for _, err := range deliverBatch(t, url, []string{secretA}, "ok", "bury", "in", "snooze", "fail", "later") {
			verb, in, reason := tocsin.AsOutcome(err)
			if rest := restOf(err); rest > 0 != strings.Contains(reason, "later") {
				t.Errorf("%q rests for %s", reason, rest)
			}
			got = append(got, verb.String()+" "+in.String()+" "+reason)
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if !slices.Equal(sizes, []int{6}) {
		t.Errorf("batches of %v tasks, want 6", sizes)
	}
}

func TestTheTasksOfABatchAreWholeAndTheirErrorsFit(t *testing.T) {
	t.Parallel()
	payloads := slices.Repeat([]string{"long"}, 1000)
	url := receiveBatch(t, Config{Secrets: []string{secretA}, Failed: func(context.Context, Task, error) {}}, func(_ context.Context, tasks []Task) (errs []error) {
		for i, got := range tasks {
			id := tocsin.JobID(1<<40 + 7 + i)
			want := Task{Key: id.String() + ".3", JobID: id, BizID: 1<<63 + 1, BizType: "coupon.remind", ActionTime: due.Add(time.Minute), DueTime: due, Attempt: 3, Payload: "long", PayloadVersion: 2, Node: "node-a"}
			if got != want {
				t.Fatalf("got %+v, want %+v", got, want)
			}
			errs = append(errs, byPayload(got))
		}
		return errs
	})
	for _, err := range deliverBatch(t, url, []string{secretA}, payloads...) {
		if err == nil || !strings.HasPrefix(err.Error(), "callback answered retry: é") {
			t.Fatal(err)
		}
	}
}

// A receiver of batches takes single tasks too, and answers as to a single one.
func TestABatchReceiverTakesASingleTask(t *testing.T) {
	t.Parallel()
	url := receiveBatch(t, Config{Secrets: []string{secretA}}, func(_ context.Context, tasks []Task) []error {
		if len(tasks) != 1 || tasks[0].Key != task("").Key() {
			t.Errorf("%+v", tasks)
		}
		return []error{byPayload(tasks[0])}
	})
	if err := deliver(t, url, []string{secretA}, "ok"); err != nil {
		t.Error(err)
	}
	if _, _, reason := tocsin.AsOutcome(deliver(t, url, []string{secretA}, "bury")); reason != "callback answered 410 Gone: no coupon" {
		t.Error(reason)
	}
}

// Tasks that are done are not handled again; the others of their batch are.
func TestDoneTasksOfABatchAreLeftOut(t *testing.T) {
	t.Parallel()
	var got []string
	url := receiveBatch(t, Config{Secrets: []string{secretA}, Done: NewMemory(10)}, func(_ context.Context, tasks []Task) (errs []error) {
		for _, task := range tasks {
			got = append(got, task.Payload)
			errs = append(errs, byPayload(task))
		}
		return errs
	})
	for range 2 {
		errs := deliverBatch(t, url, []string{secretA}, "a", "fail", "b")
		if errs[0] != nil || errs[1] == nil || errs[2] != nil {
			t.Error(errs)
		}
	}
	if want := []string{"a", "fail", "b", "fail"}; !slices.Equal(got, want) {
		t.Errorf("handled %q, want %q", got, want)
	}
}

func TestAForgedBatchAndACopyReachNoFunction(t *testing.T) {
	t.Parallel()
	calls := 0
	inner, err := NewBatch(Config{Secrets: []string{secretA}}, func(context.Context, []Task) []error { calls++; return nil })
	if err != nil {
		t.Fatal(err)
	}
	var first *http.Request
	var body string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := new(strings.Builder)
		_ = r.Write(text)
		_, body, _ = strings.Cut(text.String(), "\r\n\r\n")
		first = r
		inner.ServeHTTP(w, again(r, body))
	}))
	defer s.Close()
	if errs := deliverBatch(t, s.URL, []string{secretB}, "a", "b"); errs[0] == nil || errs[1] == nil || calls != 0 {
		t.Errorf("%v, %d calls", errs, calls)
	}
	if errs := deliverBatch(t, s.URL, []string{secretA}, "a", "b"); errs[0] != nil || errs[1] != nil || calls != 1 {
		t.Errorf("%v, %d calls", errs, calls)
	}
	for what, c := range map[string]struct {
		body   string
		status int
	}{"a copy": {body, http.StatusConflict}, "another body": {strings.Replace(body, `"a"`, `"c"`, 1), http.StatusUnauthorized}} {
		w := httptest.NewRecorder()
		if inner.ServeHTTP(w, again(first, c.body)); w.Code != c.status || calls != 1 {
			t.Errorf("%s: %d %s, %d calls", what, w.Code, w.Body, calls)
		}
	}
}

// again is a request with the same headers.
func again(r *http.Request, body string) *http.Request {
	req := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	req.Header = r.Header.Clone()
	return req
}

func TestAFunctionThatReturnsTooFewErrors(t *testing.T) {
	t.Parallel()
	url := receiveBatch(t, Config{Unsigned: true}, func(context.Context, []Task) []error { return []error{nil} })
	errs := deliverBatch(t, url, nil, "a", "b")
	if errs[0] != nil || errs[1] == nil || !strings.Contains(errs[1].Error(), "returned 1 errors for 2 tasks") {
		t.Error(errs)
	}
}
