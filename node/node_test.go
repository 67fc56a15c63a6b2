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

// first returns a handler that does something at the first attempt alone.
func first(do func() error) func(context.Context, *tocsin.Task[order]) error {
	return func(_ context.Context, task *tocsin.Task[order]) error {
		if task.Attempts > 0 {
			return nil
		}
		return do()
	}
}

// fate is what a handler does with a task, and what becomes of it.
type fate struct {
	name    string
	handler func(ctx context.Context, task *tocsin.Task[order]) error
	verbs   []tocsin.Verb // that the hook is told
	status  tocsin.Status
	tries   int
	reason  string
}

// fates are those of the tasks of biz_id 1, 2 and so on.
func fates() []fate {
	done, again, dead := []tocsin.Verb{tocsin.Completed}, []tocsin.Verb{tocsin.Retried, tocsin.Completed}, []tocsin.Verb{tocsin.Retried, tocsin.Retried, tocsin.Buried}
	snoozed := make(chan struct{}, 1) // touched by one task
	return []fate{
		{"nil completes", closes, done, tocsin.Done, 0, ""},
		{"an error retries until the last attempt", func(context.Context, *tocsin.Task[order]) error { return errors.New("no stock") }, dead, tocsin.Dead, 3, "no stock"},
		{"Bury gives up at once", func(context.Context, *tocsin.Task[order]) error { return tocsin.Bury(errors.New("no such order")) }, []tocsin.Verb{tocsin.Buried}, tocsin.Dead, 1, "no such order"},
		{"RetryIn and then nil", first(func() error { return tocsin.RetryIn(10*time.Millisecond, errors.New("busy")) }), again, tocsin.Done, 1, "busy"},
		{"an error and then nil keeps what went wrong", first(func() error { return errors.New("first time") }), again, tocsin.Done, 1, "first time"},
		{"a panic is a failed attempt", first(func() error { panic("boom") }), again, tocsin.Done, 1, "panic: boom"},
		{"Snooze counts no attempt", func(context.Context, *tocsin.Task[order]) error {
			select {
			case snoozed <- struct{}{}:
				return tocsin.Snooze(10 * time.Millisecond)
			default:
				return nil
			}
		}, []tocsin.Verb{tocsin.Snoozed, tocsin.Completed}, tocsin.Done, 0, ""},
		{"timed out", func(ctx context.Context, _ *tocsin.Task[order]) error {
			<-ctx.Done()
			<-time.After(100 * time.Millisecond)
			return ctx.Err()
		}, dead, tocsin.Dead, 3, "delivery timed out after 1s"},
	}
}

// ended is what the hook was told.
type ended struct {
	task tocsin.Info
	node.Outcome
}

// A hook that panics changes nothing.
func TestAHandlerDecidesTheFateOfItsTaskAndTheHookIsTold(t *testing.T) {
	t.Parallel()
	policy := closePolicy()
	policy.Attempts, policy.Timeout = 3, biztype.Duration(time.Second)
	policy.Backoff = biztype.Backoff{Base: biztype.Duration(20 * time.Millisecond), Max: biztype.Duration(50 * time.Millisecond)}
	p, all := newPlace(t, policy), fates()
	told := make([]chan ended, len(all))
	for i := range told {
		told[i] = make(chan ended, 10)
	}
	var log devtest.Log
	cfg := p.config("orders")
	cfg.Logger = log.Logger()
	cfg.OnOutcome = func(_ context.Context, task tocsin.Info, o node.Outcome) {
		told[task.BizID-1] <- ended{task, o}
		panic("no dashboard")
	}
	run(t, cfg, closing(func(ctx context.Context, task *tocsin.Task[order]) error { return all[task.BizID-1].handler(ctx, task) }))
	ids := make([]tocsin.JobID, len(all))
	for i := range all {
		ids[i] = add(t, p, orderClose.New(uint64(i+1), order{7}, tocsin.In(0)))
	}
	for n, c := range all {
		tries := 0
		for i, want := range c.verbs {
			got := receive(t, told[n], "the hook")
			switch last := c.reason != "" && i == max(c.tries-1, 0); {
			case got.Verb != want || got.task.JobID != ids[n] || got.task.Attempts != tries || got.task.Payload != `{"id":7}`:
				t.Errorf("%s, outcome %d: %+v, want %s of task %s", c.name, i, got, want, ids[n])
			case want == tocsin.Retried && !got.Next.After(got.task.ActionTime):
				t.Errorf("%s: the retry is at %s, not after %s", c.name, got.Next, got.task.ActionTime)
			case last && got.Reason != c.reason || got.TimedOut != (c.name == "timed out"):
				t.Errorf("%s, outcome %d: %+v", c.name, i, got)
			}
			if want == tocsin.Retried {
				tries++
			}
		}
		info := await(t, p, ids[n], c.name, func(i tocsin.Info) bool { return i.Status.Final() })
		if info.Status != c.status || info.Attempts != c.tries || info.LastError != c.reason || len(told[n]) > 0 {
			t.Errorf("%s: got %s after %d attempts, last error %q; want %s, %d, %q", c.name, info.Status, info.Attempts, info.LastError, c.status, c.tries, c.reason)
		}
	}
	lines := log.Lines("OnOutcome panicked: the outcome stands")
	if len(lines) != 1 || lines[0]["panic"] != "no dashboard" || !strings.Contains(lines[0]["stack"].(string), "node_test.go") {
		t.Errorf("logged %v", lines)
	}
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

func TestStatusSaysWhetherTheNodeMayDeliver(t *testing.T) {
	t.Parallel()
	p := newPlace(t, closePolicy())
	cfg := p.config("orders")
	registry := prometheus.NewRegistry()
	cfg.Registerer = registry
	h := closing(closes)
	for range 2 { // a node may run again
		n, stop := run(t, cfg, h)
		until(t, "it may deliver", func() bool { return status(n).Code == http.StatusOK && owned(n) == 8 })
		if !has(t, registry, "tocsin_store_round_trip_seconds") {
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
		s := newSweeper(t, cfg, nil)
		if _, err := s.Sweep(t.Context()); err != nil {
			t.Errorf("%s: Sweep ended with %v: its metrics are no other's", name, err)
		}
	}
	if !has(t, shared, "tocsin_dispatcher_open") || has(t, taken, "tocsin_store_round_trip_seconds") {
		t.Error("the first node's metrics are gone, or some of the refused one's stay")
	}
	cfg.Registerer = of("b")
	second, _ := run(t, cfg, &node.Handlers{})
	awaitOwned(t, second, 4)
	stop()
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
	var log devtest.Log
	cfg := p.config("orders")
	cfg.Logger = log.Logger()
	cfg.ScanInterval = 6 * time.Second // of a horizon of 10 s
	run(t, cfg, &node.Handlers{})
	log.Await(t, "node runs") // a node that is stopped before ends with an error
	warned := log.Lines("the scan interval is more than half of the tables' doorbell horizon: tasks that are due between them may be late")
	if len(warned) != 1 || warned[0]["doorbell_horizon"] != "10s" {
		t.Errorf("warned of: %v", warned)
	}
}
