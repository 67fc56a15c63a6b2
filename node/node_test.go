package node_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/node"
)

func TestMain(m *testing.M) {
	childMain()
	devtest.Main(m)
}

var orderClose = tocsin.Define[order]("order.close")

func closePolicy() biztype.Policy {
	return biztype.Policy{Name: "order.close", Number: 1, Group: "orders", Timeout: biztype.Duration(5 * time.Second)}
}

func TestTaskReachesItsHandlerAtItsTime(t *testing.T) {
	t.Parallel()
	p := newPlace(t, closePolicy())
	got := make(chan time.Time, 10)
	var h node.Handlers
	node.Handle(&h, orderClose, func(_ context.Context, task *tocsin.Task[order]) error {
		if task.Payload.ID == 42 && task.Key() == task.JobID.String()+".0" {
			got <- time.Now()
		}
		return nil
	})
	run(t, p.config("orders"), &h)
	due := time.Now().Add(1500 * time.Millisecond)
	id := add(t, p, orderClose.New(42, order{42}, tocsin.At(due)))
	if at := receive(t, got, "the delivery"); at.Before(due) {
		t.Errorf("delivered %s early", due.Sub(at))
	}
	await(t, p, id, "the task to be done", withStatus(tocsin.Done))
	if len(got) != 0 {
		t.Error("delivered more than once")
	}
}

func TestHandlerDecidesTheFateOfItsTask(t *testing.T) {
	t.Parallel()
	quick := closePolicy()
	quick.Attempts = 3
	quick.Backoff = biztype.Backoff{Base: biztype.Duration(20 * time.Millisecond), Max: biztype.Duration(50 * time.Millisecond)}
	p := newPlace(t, quick)
	var h node.Handlers
	node.Handle(&h, orderClose, func(_ context.Context, task *tocsin.Task[order]) error { return fateOf(task) })
	run(t, p.config("orders"), &h)
	for name, want := range map[string]struct {
		bizID    uint64
		status   tocsin.Status
		attempts int
		err      string
	}{
		"nil completes": {1, tocsin.Done, 0, ""},
		"an error retries until the last attempt":     {2, tocsin.Dead, 3, "no stock"},
		"Bury gives up at once":                       {3, tocsin.Dead, 1, "no such order"},
		"RetryIn and then nil":                        {4, tocsin.Done, 1, "busy"},
		"Snooze counts no attempt":                    {5, tocsin.Done, 0, ""},
		"a panic is a failed attempt":                 {6, tocsin.Done, 1, "panic: boom"},
		"an error and then nil keeps what went wrong": {7, tocsin.Done, 1, "first time"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id := add(t, p, orderClose.New(want.bizID, order{want.bizID}, tocsin.In(0)))
			info := await(t, p, id, name, func(i tocsin.Info) bool { return i.Status.Final() })
			if info.Status != want.status || info.Attempts != want.attempts || info.LastError != want.err {
				t.Errorf("got %s after %d attempts, last error %q; want %s, %d, %q",
					info.Status, info.Attempts, info.LastError, want.status, want.attempts, want.err)
			}
		})
	}
}

// snoozed is touched by one task at a time.
var snoozed = make(chan struct{}, 1)

func fateOf(task *tocsin.Task[order]) error {
	first := task.Attempts == 0
	switch {
	case task.BizID == 2:
		return errors.New("no stock")
	case task.BizID == 3:
		return tocsin.Bury(errors.New("no such order"))
	case task.BizID == 4 && first:
		return tocsin.RetryIn(10*time.Millisecond, errors.New("busy"))
	case task.BizID == 5:
		select {
		case snoozed <- struct{}{}:
			return tocsin.Snooze(10 * time.Millisecond)
		default:
		}
	case task.BizID == 6 && first:
		panic("boom")
	case task.BizID == 7 && first:
		return errors.New("first time")
	}
	return nil
}

func TestBatchHandlerGetsManyTasksAndAnswersForEach(t *testing.T) {
	t.Parallel()
	p := newPlace(t, closePolicy())
	var h node.Handlers
	largest := make(chan int, 1000)
	node.HandleBatch(&h, orderClose, 50, func(_ context.Context, tasks []*tocsin.Task[order]) []error {
		largest <- len(tasks)
		errs := make([]error, len(tasks))
		for i, task := range tasks {
			if task.BizID == 7 {
				errs[i] = tocsin.Bury(errors.New("seven"))
			}
		}
		return errs
	})
	added := addMany(t, p, 300)
	run(t, p.config("orders"), &h)
	for i, a := range added {
		want := tocsin.Done
		if i == 6 {
			want = tocsin.Dead
		}
		await(t, p, a.JobID, "a task of the batch", withStatus(want))
	}
	most := 0
	for len(largest) > 0 {
		most = max(most, <-largest)
	}
	if most < 2 || most > 50 {
		t.Errorf("the largest batch had %d tasks, want 2 to 50", most)
	}
}

// addMany adds n tasks that are due now, with biz_ids from 1 on.
func addMany(t *testing.T, p place, n uint64) []tocsin.Added {
	t.Helper()
	var tasks []tocsin.NewTask
	for id := range n {
		tasks = append(tasks, orderClose.New(id+1, order{id + 1}, tocsin.In(0)))
	}
	added, err := p.client.AddMany(t.Context(), tasks)
	if err != nil {
		t.Fatal(err)
	}
	return added
}

func TestATaskThatItsBatchPanicsOnDiesAlone(t *testing.T) {
	t.Parallel()
	policy := closePolicy()
	policy.Attempts, policy.Ladder = 3, []biztype.Duration{biztype.Duration(20 * time.Millisecond)}
	p := newPlace(t, policy)
	var h node.Handlers
	node.HandleBatch(&h, orderClose, 50, func(_ context.Context, tasks []*tocsin.Task[order]) []error {
		for _, task := range tasks {
			if task.BizID == 7 {
				panic("seven")
			}
		}
		return nil
	})
	added := addMany(t, p, 50)
	run(t, p.config("orders"), &h)
	for i, a := range added {
		want, attempts := tocsin.Done, 1
		if i == 6 {
			want, attempts = tocsin.Dead, 3
		}
		info := await(t, p, a.JobID, "the end of a task", func(i tocsin.Info) bool { return i.Status.Final() })
		if info.Status != want || info.Attempts > attempts {
			t.Errorf("task %d is %s after %d failed attempts, want %s after %d at most", i+1, info.Status, info.Attempts, want, attempts)
		}
	}
}

func TestStatusSaysWhetherTheNodeMayDeliver(t *testing.T) {
	t.Parallel()
	p := newPlace(t, closePolicy())
	cfg := p.config("orders")
	registry := prometheus.NewRegistry()
	cfg.Registerer = registry
	var h node.Handlers
	node.Handle(&h, orderClose, func(context.Context, *tocsin.Task[order]) error { return nil })
	for range 2 { // a node may run again
		n, stop := run(t, cfg, &h)
		until(t, "it may deliver", func() bool { return status(n).Code == http.StatusOK && owned(n) == 8 })
		if !exports(t, registry, "tocsin_store_round_trip_seconds") {
			t.Error("the store's metrics are not exported")
		}
		if err := n.Run(t.Context()); err == nil || status(n).Code != http.StatusOK {
			t.Errorf("two runs at once: %v, and the status is %d", err, status(n).Code)
		}
		stop()
		if code := status(n).Code; code != http.StatusServiceUnavailable {
			t.Errorf("status of a node that has ended is %d, want 503", code)
		}
	}
}

func TestTwoNodesOnOneRegistererAreAnErrorAndNoPanic(t *testing.T) {
	t.Parallel()
	p := newPlace(t, closePolicy())
	taken := prometheus.NewRegistry()
	taken.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "tocsin_dispatcher_open"})) // another component's
	shared := prometheus.NewRegistry()
	of := func(name string) prometheus.Registerer {
		return prometheus.WrapRegistererWith(prometheus.Labels{"node": name}, shared)
	}
	cfg := p.config("orders")
	cfg.Registerer = of("a")
	first, stop := run(t, cfg, &node.Handlers{})
	awaitOwned(t, first, 8)
	for name, registry := range map[string]prometheus.Registerer{"a second node": of("a"), "a name that is taken": taken} {
		cfg.Registerer = registry
		n, err := node.New(cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "a Registerer of its own") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: Run ended with %v", name, err)
		}
		s, err := node.NewSweeper(cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Sweep(t.Context()); err != nil {
			t.Errorf("%s: Sweep ended with %v: its metrics are no other's", name, err)
		}
	}
	if !exports(t, shared, "tocsin_dispatcher_open") || exports(t, taken, "tocsin_store_round_trip_seconds") {
		t.Error("the first node's metrics are gone, or some of the refused one's stay")
	}
	cfg.Registerer = of("b")
	second, _ := run(t, cfg, &node.Handlers{})
	awaitOwned(t, second, 4)
	stop()
}

// exports reports whether the registry has a metric of that name.
func exports(t *testing.T, r *prometheus.Registry, name string) bool {
	t.Helper()
	all, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if m.GetName() == name {
			return true
		}
	}
	return false
}

func status(n *node.Node) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	n.Status().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/status", nil))
	return w
}

func owned(n *node.Node) int {
	r, _ := n.Report()
	return r.Owned
}

func TestAScanIntervalThatTheDoorbellDoesNotCoverIsWarnedOf(t *testing.T) {
	t.Parallel()
	p := newPlace(t, closePolicy())
	logged := make(lines, 100)
	cfg := p.config("orders")
	cfg.Logger = devtest.NewLogger(logged)
	cfg.ScanInterval = 6 * time.Second // of a horizon of 10 s
	run(t, cfg, &node.Handlers{})
	warned := false
	for line := range logged {
		warned = warned || strings.Contains(line, `"doorbell_horizon":"10s"`)
		if strings.Contains(line, "node runs") { // a node that is stopped before ends with an error
			break
		}
	}
	if !warned {
		t.Error("not warned of")
	}
}

// lines is a log, line by line.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	select {
	case l <- string(line):
	default: // nobody reads on
	}
	return len(line), nil
}
