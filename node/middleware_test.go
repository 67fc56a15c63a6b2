package node_test

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
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/webhook"
)

// traced returns a middleware that notes its name before and after the next one.
func traced(name string, notes chan<- string) func(node.HandlerFunc) node.HandlerFunc {
	return func(next node.HandlerFunc) node.HandlerFunc {
		return func(ctx context.Context, tasks []tocsin.Info) []error {
			notes <- name
			defer func() { notes <- "/" + name }()
			return next(ctx, tasks)
		}
	}
}

func TestMiddlewareWrapsEveryHandlerTheFirstOutermost(t *testing.T) {
	t.Parallel()
	p := newPlace(t, closePolicy())
	notes := make(chan string, 5)
	var h node.Handlers
	h.Use(traced("outer", notes))
	node.Handle(&h, orderClose, func(context.Context, *tocsin.Task[order]) error {
		notes <- "handler"
		return nil
	})
	h.Use(traced("inner", notes)) // later than the handler, which it wraps all the same
	run(t, p.config("orders"), &h)
	id := add(t, p, orderClose.New(7, order{7}, tocsin.In(0)))
	await(t, p, id, "the delivery", withStatus(tocsin.Done))
	close(notes)
	var got []string
	for note := range notes {
		got = append(got, note)
	}
	if want := []string{"outer", "inner", "handler", "/inner", "/outer"}; !slices.Equal(got, want) {
		t.Errorf("the order was %q, want %q", got, want)
	}
}

func TestAMiddlewareMayAnswerInsteadOfTheHandler(t *testing.T) {
	t.Parallel()
	p := newPlace(t, closePolicy())
	var h node.Handlers
	node.Handle(&h, orderClose, func(context.Context, *tocsin.Task[order]) error {
		t.Error("the handler was called")
		return nil
	})
	h.Use(func(node.HandlerFunc) node.HandlerFunc {
		return func(_ context.Context, tasks []tocsin.Info) []error {
			if tasks[0].BizID == 8 {
				return nil // completes its tasks
			}
			return slices.Repeat([]error{tocsin.Bury(errors.New("closed for the night"))}, len(tasks))
		}
	})
	run(t, p.config("orders"), &h)
	await(t, p, add(t, p, orderClose.New(8, order{8}, tocsin.In(0))), "the delivery", withStatus(tocsin.Done))
	info := await(t, p, add(t, p, orderClose.New(7, order{7}, tocsin.In(0))), "the end", func(i tocsin.Info) bool { return i.Status.Final() })
	if info.Status != tocsin.Dead || info.LastError != "closed for the night" {
		t.Errorf("the task is %s of %q", info.Status, info.LastError)
	}
}

func TestAHandlersContextTellsItsTasks(t *testing.T) {
	t.Parallel()
	p := newPlace(t, closePolicy())
	type key struct{}
	seen, after := make(chan []tocsin.Info, 1), make(chan context.Context, 1)
	var h node.Handlers
	node.Handle(&h, orderClose, func(ctx context.Context, task *tocsin.Task[order]) error {
		seen <- node.Tasks(context.WithValue(ctx, key{}, 1)) // of a derived context too
		after <- ctx
		return nil
	})
	run(t, p.config("orders"), &h)
	id := add(t, p, orderClose.New(7, order{7}, tocsin.In(0)))
	tasks := receive(t, seen, "the delivery")
	if len(tasks) != 1 || tasks[0].JobID != id || tasks[0].BizID != 7 || tasks[0].BizType != orderClose.Name() || tasks[0].Payload != `{"id":7}` {
		t.Errorf("the context tells %+v", tasks)
	}
	await(t, p, id, "the end of the delivery", withStatus(tocsin.Done))
	if late := node.Tasks(receive(t, after, "the context")); late != nil {
		t.Errorf("after the delivery the context tells %+v", late)
	}
	if other := node.Tasks(t.Context()); other != nil {
		t.Errorf("another context tells %+v", other)
	}
}

// ended is what the hook was told.
type ended struct {
	task tocsin.Info
	node.Outcome
}

func TestTheHookIsToldHowEachDeliveryEnded(t *testing.T) {
	t.Parallel()
	policy := closePolicy()
	policy.Attempts, policy.Ladder, policy.Timeout = 2, []biztype.Duration{biztype.Duration(time.Millisecond)}, biztype.Duration(time.Second)
	p := newPlace(t, policy)
	for name, c := range map[string]struct {
		handler func(ctx context.Context, attempts int) error
		want    []tocsin.Verb
		reason  string // of the last
	}{
		"done":   {func(context.Context, int) error { return nil }, []tocsin.Verb{tocsin.Completed}, ""},
		"failed": {func(context.Context, int) error { return errors.New("no stock") }, []tocsin.Verb{tocsin.Retried, tocsin.Buried}, "no stock"},
		"buried": {func(context.Context, int) error { return tocsin.Bury(errors.New("no order")) }, []tocsin.Verb{tocsin.Buried}, "no order"},
		"timed out": {func(ctx context.Context, _ int) error {
			<-ctx.Done()
			<-time.After(100 * time.Millisecond)
			return ctx.Err()
		}, []tocsin.Verb{tocsin.Retried, tocsin.Buried}, "delivery timed out after 1s"},
		"in a panic": {func(context.Context, int) error { panic("nil order") }, []tocsin.Verb{tocsin.Retried, tocsin.Buried}, "panic: nil order"},
	} {
		t.Run(name, func(t *testing.T) {
			told := make(chan ended, 10)
			cfg := p.config("orders")
			cfg.OnOutcome = func(_ context.Context, task tocsin.Info, o node.Outcome) { told <- ended{task, o} }
			var h node.Handlers
			node.Handle(&h, orderClose, func(ctx context.Context, task *tocsin.Task[order]) error { return c.handler(ctx, task.Attempts) })
			_, stop := run(t, cfg, &h)
			defer stop()
			id := add(t, p, orderClose.New(7, order{7}, tocsin.In(0)))
			for i, want := range c.want {
				got := receive(t, told, "the hook")
				last := i == len(c.want)-1
				switch {
				case got.Verb != want || got.task.JobID != id || got.task.Attempts != i || got.task.Payload != `{"id":7}`:
					t.Fatalf("outcome %d: %+v, want %s of task %s", i, got, want, id)
				case want == tocsin.Retried && !got.Next.After(got.task.ActionTime):
					t.Errorf("the retry is at %s, not after %s", got.Next, got.task.ActionTime)
				case last && got.Reason != c.reason || got.TimedOut != (name == "timed out"):
					t.Errorf("outcome %d: %+v", i, got)
				}
			}
		})
	}
}

func TestAHookThatPanicsChangesNothing(t *testing.T) {
	t.Parallel()
	p := newPlace(t, closePolicy())
	var log devtest.Log
	cfg := p.config("orders")
	cfg.Logger = log.Logger()
	cfg.OnOutcome = func(context.Context, tocsin.Info, node.Outcome) { panic("no dashboard") }
	var h node.Handlers
	node.Handle(&h, orderClose, func(context.Context, *tocsin.Task[order]) error { return nil })
	run(t, cfg, &h)
	id := add(t, p, orderClose.New(7, order{7}, tocsin.In(0)))
	await(t, p, id, "the delivery", withStatus(tocsin.Done))
	lines := log.Lines("OnOutcome panicked: the outcome stands")
	if len(lines) != 1 || lines[0]["panic"] != "no dashboard" || !strings.Contains(lines[0]["stack"].(string), "middleware_test.go") {
		t.Errorf("logged %v", lines)
	}
}

func TestMiddlewareWrapsCallbacksAndAddsToTheirRequests(t *testing.T) {
	t.Parallel()
	requests := make(chan http.Header, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests <- r.Header
		w.WriteHeader(http.StatusGone)
	}))
	t.Cleanup(server.Close)
	p := newPlace(t, closePolicy(), biztype.Policy{Name: "coupon.remind", Number: 2, Webhook: &biztype.Webhook{URL: server.URL, Allow: []string{"127.0.0.0/8"}}})
	verbs := make(chan tocsin.Verb, 1)
	serves := func(next node.HandlerFunc) node.HandlerFunc {
		return func(ctx context.Context, tasks []tocsin.Info) []error {
			errs := next(webhook.WithHeaders(ctx, http.Header{"X-Tenant": {tasks[0].BizType}}), tasks)
			verb, _, _ := tocsin.AsOutcome(errs[0])
			verbs <- verb
			return errs
		}
	}
	var h node.Handlers
	h.UseCallbacks(serves)
	run(t, p.config(""), &h)
	id := add(t, p, tocsin.Define[string]("coupon.remind").New(7, "x", tocsin.In(0)))
	if got := receive(t, requests, "the callback").Get("X-Tenant"); got != "coupon.remind" {
		t.Errorf("the request's header is %q", got)
	}
	if verb := receive(t, verbs, "the answer"); verb != tocsin.Buried {
		t.Errorf("the middleware saw %s", verb)
	}
	await(t, p, id, "the end", withStatus(tocsin.Dead))
}
