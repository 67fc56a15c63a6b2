// Package nodetest is for the tests of programs that run a node. It works on a
// cluster of package tocsintest, and needs no etcd.
//
// RunDue does, now, all that nodes do until a time: a test of a three-day chain, or of a schedule's year, takes seconds. It
// uses the program's own Handlers, with batches, middleware and CompleteTx, and real rows. Config is the config of a node that
// a test runs itself. Receiver stands in for a program that gets HTTP callbacks.
//
// On failure both end the test with one line.
package nodetest

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/tocsintest"
	"github.com/tocsinhq/tocsin/webhook"
)

// patience bounds Config on a busy machine.
const patience = time.Minute

// Config is the config of a node that delivers the biz types of tocsintest.Start. It
// logs warnings to the test. From then on nobody owns tables in the cluster, and
// nodes claim each row (node.ByRows), so no etcd is needed.
func Config(tb testing.TB, c *tocsintest.Cluster) node.Config {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	if _, err := ddl.SetOwnership(ctx, c.Config, node.ByRows, false); err != nil {
		tb.Fatalf("nodetest: %v", err)
	}
	cfg := config(tb, c)
	cfg.Ownership = node.ByRows
	return cfg
}

func config(tb testing.TB, c *tocsintest.Cluster) node.Config {
	return node.Config{
		Tables: c.Config, Group: tocsintest.Group, Name: "test", SweepGrace: node.NoGrace, SweepTimeout: node.NoTimeout,
		Getenv: getenv,
		Logger: slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
}

// Delivery is a task as the handler got it, and what came of it.
type Delivery struct {
	Task    tocsin.Info
	Outcome node.Outcome
}

// String gives a line: "order.close 7: retry: no stock". A task with a business key is
// named by the key: "order.close ord_01J8Z3: complete".
func (d Delivery) String() string {
	of := cmp.Or(d.Task.BizKey, strconv.FormatUint(d.Task.BizID, 10))
	text := fmt.Sprintf("%s %s: %s", d.Task.BizType, of, d.Outcome.Verb)
	if d.Outcome.Reason != "" {
		text += ": " + d.Outcome.Reason
	}
	return text
}

// RunDue moves the time of the cluster on to until, without waiting, and does all that nodes do by then: it relays the cluster's
// outboxes, makes the runs of schedules, and delivers tasks to the handlers of h and to callbacks, of any group, in the order of
// their action times, one after the other. What a delivery adds or puts off is delivered too, if it is due by then, and so are
// alarms. It returns the deliveries in their order.
//
// The clock of the database is at each task's own action time while it is delivered: a retry in an hour comes an hour after
// the attempt that failed, and a run is never late. The clock of the handlers does not move: a task that a handler adds with
// tocsin.In counts from now. In a chain use tocsin.At(task.DueTime.Add(d)), or the next link comes too early. The next
// RunDue goes on where this one ended.
//
// Tasks that are due later stay as they are, and those of paused types, without a handler or with a newer payload too. No node may run on the cluster
// meanwhile. The test fails if an outbox has a row that can't be moved, or if deliveries go on for ever at the same time.
func RunDue(tb testing.TB, c *tocsintest.Cluster, h *node.Handlers, until time.Time) []Delivery {
	tb.Helper()
	r := &run{cluster: c, handlers: h, config: config(tb, c), until: until, tried: map[tocsin.JobID]time.Time{}}
	r.config.OnOutcome = r.note
	if err := r.run(tb.Context()); err != nil {
		tb.Fatalf("nodetest: %v", err)
	}
	return r.all
}

// The secret that signs the callbacks of a Receiver; the nodes of this package find it.
const (
	secretName  = "NODETEST_WEBHOOK_SECRET"
	secretValue = "whsec_bm9kZXRlc3Qgc2lnbnMgd2l0aCB0aGlzIGtleSE="
)

// getenv gives the nodes of this package the secret of a Receiver.
func getenv(name string) string {
	if name == secretName {
		return secretValue
	}
	return os.Getenv(name)
}

// Receiver stands in for the program that gets HTTP callbacks. It checks their signature and age as package webhook does, and
// keeps the tasks. Make one with NewReceiver. Safe for concurrent use.
type Receiver struct {
	url string

	mu    sync.Mutex
	tasks []webhook.Task
}

// NewReceiver starts one on a loopback port, until the test ends. answer says what becomes of a task, as in package webhook;
// it is called concurrently, with the task already kept; nil: all tasks are done. A callback that is refused, say for its
// signature, fails the test.
func NewReceiver(tb testing.TB, answer func(context.Context, webhook.Task) error) *Receiver {
	tb.Helper()
	r := &Receiver{}
	handler, err := webhook.New(webhook.Config{Secrets: []string{secretValue}, Failed: func(_ context.Context, task webhook.Task, err error) {
		if task.JobID == 0 {
			tb.Errorf("nodetest: a callback is refused: %v", err)
		}
	}}, func(ctx context.Context, task webhook.Task) error {
		r.mu.Lock()
		r.tasks = append(r.tasks, task)
		r.mu.Unlock()
		if answer == nil {
			return nil
		}
		return answer(ctx, task)
	})
	if err != nil {
		tb.Fatalf("nodetest: %v", err)
	}
	server := httptest.NewServer(handler)
	tb.Cleanup(server.Close)
	r.url = server.URL
	return r
}

// Webhook is the target of a biz type whose callbacks the Receiver gets, for the policies of tocsintest.StartWith. The nodes of
// this package have its secret.
func (r *Receiver) Webhook() *biztype.Webhook {
	return &biztype.Webhook{URL: r.url, Secrets: []string{secretName}, Allow: []string{"127.0.0.0/8"}}
}

// Tasks returns what has come so far, a task once for each callback.
func (r *Receiver) Tasks() []webhook.Task {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.tasks)
}
