package node_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/webhook"
)

// The middleware is registered after the handler, which it wraps all the same.
func TestHandlersAndMiddlewareGetHeadersAndKeyAndTheContextTellsTheTask(t *testing.T) {
	t.Parallel()
	p := newPlace(t, closePolicy())
	type key struct{}
	seen, after := make(chan tocsin.Info, 10), make(chan context.Context, 10)
	var h node.Handlers
	node.HandleBatch(&h, orderClose, 50, func(ctx context.Context, tasks []*tocsin.Task[order]) []error {
		for i, task := range tasks {
			seen <- task.Info
			seen <- node.Tasks(context.WithValue(ctx, key{}, 1))[i] // of a derived context too
			after <- ctx
		}
		return nil
	})
	h.Use(func(next node.HandlerFunc) node.HandlerFunc {
		return func(ctx context.Context, tasks []tocsin.Info) []error {
			for _, task := range tasks {
				seen <- task
			}
			return next(ctx, tasks)
		}
	})
	run(t, p.config("orders"), &h)
	for name, when := range map[string]tocsin.When{"due now": tocsin.In(0), "held until it is due": tocsin.In(500 * time.Millisecond)} {
		id := add(t, p, orderClose.NewKey("ord_1", order{7}, when).Header("tenant", name))
		for range 3 {
			if got := receive(t, seen, "the delivery"); got.JobID != id || got.BizType != orderClose.Name() || got.Payload != `{"id":7}` ||
				got.BizKey != "ord_1" || got.Header("tenant") != name || got.BizID != tocsin.KeyID("ord_1") {
				t.Errorf("%s: %+v", name, got)
			}
		}
		await(t, p, id, "the end of the delivery", withStatus(tocsin.Done))
		if late := node.Tasks(receive(t, after, "the context")); late != nil {
			t.Errorf("after the delivery the context tells %+v", late)
		}
	}
	if other := node.Tasks(t.Context()); other != nil {
		t.Errorf("another context tells %+v", other)
	}
}

func TestHeadersThatAreNoObjectAreAFailedAttempt(t *testing.T) {
	t.Parallel()
	policy := closePolicy()
	policy.Ladder = []biztype.Duration{biztype.Duration(100 * time.Millisecond)}
	p := newPlace(t, policy)
	id := add(t, p, orderClose.New(7, order{7}, tocsin.In(time.Hour)))
	db := openDB(t, devtest.DSN(t))
	set := func(columns string) {
		t.Helper()
		execute(t, db, "UPDATE "+p.cfg.Layout.Table(id.Table())+" SET "+columns+" WHERE job_id = ?", uint64(id))
	}
	set("headers = '{\"tenant\": 7}'")
	handled := make(chan string, 1)
	run(t, p.config("orders"), closing(func(_ context.Context, task *tocsin.Task[order]) error { handled <- task.Header("tenant"); return nil }))
	if _, err := p.client.Reschedule(t.Context(), tocsin.ByID(id), tocsin.In(0)); err != nil {
		t.Fatal(err)
	}
	info := await(t, p, id, "a failed attempt", func(i tocsin.Info) bool { return i.Attempts >= 1 })
	if !strings.Contains(info.LastError, "headers are not a JSON object of texts") {
		t.Errorf("last error %q", info.LastError)
	}
	set("headers = '{\"tenant\": \"7\"}'")
	if got := receive(t, handled, "the delivery of the mended row"); got != "7" {
		t.Errorf("tenant %q", got)
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

// tocsintest behaves the same: see TestDeliverRetriesAPayloadThatDoesNotDecode.
func TestAPayloadThatDoesNotDecodeWaitsForAProgramThatReadsIt(t *testing.T) {
	t.Parallel()
	policy := closePolicy()
	policy.Ladder = []biztype.Duration{biztype.Duration(100 * time.Millisecond)}
	p := newPlace(t, policy)
	newer := tocsin.Define[[]order](orderClose.Name())
	id := add(t, p, newer.New(7, []order{{7}}, tocsin.In(0)))
	var old node.Handlers
	node.Handle(&old, orderClose, func(context.Context, *tocsin.Task[order]) error {
		t.Error("a payload that does not decode has reached the handler")
		return nil
	})
	var log devtest.Log
	cfg := p.config("orders")
	cfg.Logger = log.Logger()
	_, stop := run(t, cfg, &old)
	info := await(t, p, id, "a failed attempt", func(i tocsin.Info) bool { return i.Attempts >= 2 })
	if info.Status.Final() || !strings.Contains(info.LastError, "is not a node_test.order") {
		t.Errorf("%s, last error %q; want pending, and why", info.Status, info.LastError)
	}
	stop()
	said := 0
	for _, line := range log.Lines() {
		if strings.Contains(fmt.Sprint(line), "is not a node_test.order") && line["biz_type"] == "order.close" {
			said++
		}
	}
	if said != 1 {
		t.Errorf("the log names the payload in %d lines, want 1 in a minute", said)
	}
	var updated node.Handlers
	node.Handle(&updated, newer, func(context.Context, *tocsin.Task[[]order]) error { return nil })
	run(t, p.config("orders"), &updated)
	await(t, p, id, "the delivery by the program that can read it", withStatus(tocsin.Done))
}
