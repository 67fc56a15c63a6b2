package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
)

const leaseMS = 30_000

var orderClose = tocsin.Define[string]("order.close")

// fakeAPI is the transport of a client: it answers calls as the API does, without a network, so that tests run in a synctest bubble. Its answers may get
// lost, and a hook may refuse calls.
type fakeAPI struct {
	t *testing.T

	mu       sync.Mutex
	arrived  chan struct{} // closed and replaced when a task comes
	due      []map[string]any
	calls    []string // "reserve 16 25000", "settle", "settle+3", "extend"
	outcomes []outcome
	fates    map[string]string          // results of extends and settles by lease; none: ok, done
	hook     func(call, url string) int // status of an answer; 0: as the API would; -1: it does not answer; -2: it does, and the answer is lost
}

func newFake(t *testing.T) *fakeAPI {
	return &fakeAPI{t: t, arrived: make(chan struct{}), fates: map[string]string{}}
}

// add makes tasks due: their job_ids are their leases.
func (f *fakeAPI) add(payloads ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, payload := range payloads {
		id := fmt.Sprint(1000 + len(f.calls)*100 + len(f.due))
		f.due = append(f.due, map[string]any{
			"job_id": id, "biz_id": "42", "biz_type": orderClose.Name(), "status": "claimed", "payload": payload, "headers": map[string]string{"tenant": "a"},
			"key": id + ".0", "lease": "L" + payload, "lease_ms": leaseMS, "lease_until": time.Now().Add(leaseMS * time.Millisecond), "due_time": time.Now(),
		})
	}
	close(f.arrived)
	f.arrived = make(chan struct{})
}

// RoundTrip implements http.RoundTripper.
func (f *fakeAPI) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := req.Context().Err(); err != nil { // as http.Transport does
		return nil, err
	}
	var body struct {
		Max     int       `json:"max"`
		WaitMS  int       `json:"wait_ms"`
		Leases  []string  `json:"leases"`
		Settle  []outcome `json:"settle"`
		Reserve *struct {
			Max    int `json:"max"`
			WaitMS int `json:"wait_ms"`
		} `json:"reserve"`
	}
	if err := json.NewDecoder(req.Body).Decode(&body); err != nil || req.Header.Get("Authorization") != "Bearer toc_x" {
		f.t.Errorf("%s: %v, %v", req.URL, err, req.Header)
	}
	_, verb, _ := strings.Cut(req.URL.Path, "/v1/pull:")
	call := verb
	switch {
	case verb == "reserve":
		call = fmt.Sprint("reserve ", body.Max, " ", body.WaitMS)
	case body.Reserve != nil:
		call = fmt.Sprint("settle+", body.Reserve.Max)
	}
	f.mu.Lock()
	f.calls = append(f.calls, call)
	hook := f.hook
	f.mu.Unlock()
	status := 0
	if hook != nil {
		status = hook(call, req.URL.Host)
	}
	if status == -1 {
		return nil, errors.New("connection refused")
	}
	rec := httptest.NewRecorder()
	if status > 0 {
		rec.WriteHeader(status)
		_, _ = io.WriteString(rec, `{"detail": "as the test wants it"}`)
		return rec.Result(), nil
	}
	answer := map[string]any{"results": f.results(append(body.Settle, outcomesOf(body.Leases)...), verb == "extend")}
	switch {
	case status == -2:
		return nil, errors.New("connection reset")
	case verb == "reserve":
		answer["tasks"] = f.take(req.Context(), body.Max, body.WaitMS)
	case body.Reserve != nil:
		answer["tasks"] = f.take(req.Context(), body.Reserve.Max, body.Reserve.WaitMS)
	}
	if req.Context().Err() != nil {
		return nil, req.Context().Err()
	}
	_ = json.NewEncoder(rec).Encode(answer)
	return rec.Result(), nil
}

func outcomesOf(leases []string) (all []outcome) {
	for _, lease := range leases {
		all = append(all, outcome{Lease: lease})
	}
	return all
}

// results answers an extend, or a settle, which it keeps.
func (f *fakeAPI) results(all []outcome, extend bool) (results []map[string]any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range all {
		fate := f.fates[o.Lease]
		if fate == "problem" {
			results = append(results, map[string]any{"lease": o.Lease, "problem": map[string]any{"status": 503}})
			continue
		}
		if fate == "" && extend {
			fate = "ok"
		}
		if !extend {
			if fate == "" {
				fate = "done"
			}
			if slices.ContainsFunc(f.outcomes, func(x outcome) bool { return x.Lease == o.Lease && x.Do == "complete" }) {
				fate = "already"
			}
			f.outcomes = append(f.outcomes, o)
		}
		results = append(results, map[string]any{"lease": o.Lease, "result": fate})
	}
	return results
}

// take waits for tasks.
func (f *fakeAPI) take(ctx context.Context, most, waitMS int) []map[string]any {
	wait := time.After(time.Duration(waitMS) * time.Millisecond)
	for {
		f.mu.Lock()
		n := min(most, len(f.due))
		taken := slices.Clone(f.due[:n])
		f.due = f.due[n:]
		arrived := f.arrived
		f.mu.Unlock()
		if n > 0 {
			return taken
		}
		select {
		case <-arrived:
		case <-wait:
			return []map[string]any{}
		case <-ctx.Done():
			return nil
		}
	}
}

// seen returns the calls that begin so, and the outcomes.
func (f *fakeAPI) seen(call string) (calls int, outcomes []outcome) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		if strings.HasPrefix(c, call) {
			calls++
		}
	}
	return calls, slices.Clone(f.outcomes)
}

// running is a worker under test.
type running struct {
	*fakeAPI
	w     *Worker
	log   *strings.Builder // read it after stop
	stop  context.CancelFunc
	ended chan error
}

// start runs a worker of one handler.
func start(f *fakeAPI, cfg Config, handler func(context.Context, *tocsin.Task[string]) error) *running {
	f.t.Helper()
	r := &running{fakeAPI: f, log: &strings.Builder{}, ended: make(chan error, 1)}
	cfg.Token, cfg.Client, cfg.Logger = "toc_x", &http.Client{Transport: f}, slog.New(slog.NewTextHandler(r.log, nil))
	if cfg.URLs == nil {
		cfg.URLs = []string{"http://a"}
	}
	var err error
	if r.w, err = New(cfg); err != nil {
		f.t.Fatal(err)
	}
	Handle(r.w, orderClose, handler)
	var ctx context.Context
	ctx, r.stop = context.WithCancel(f.t.Context())
	go func() { r.ended <- r.w.Run(ctx) }()
	return r
}

// end stops it, and wants what it logged to have the text, or to be nothing.
func (r *running) end(log string) {
	r.t.Helper()
	r.stop()
	if err := <-r.ended; err != nil {
		r.t.Errorf("Run: %v", err)
	}
	if got := r.log.String(); log == "" && got != "" || !strings.Contains(got, log) {
		r.t.Errorf("the log, which should have %q:\n%s", log, got)
	}
}
