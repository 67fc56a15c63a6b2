package tocsinotel_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/contrib/tocsinotel"
	"github.com/tocsinhq/tocsin/contrib/tocsinotel/nodeotel"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/node/nodetest"
	"github.com/tocsinhq/tocsin/tocsintest"
	"github.com/tocsinhq/tocsin/webhook"
)

type order struct {
	ID uint64 `json:"id"`
}

var (
	orderClose   = tocsin.Define[order]("order.close")
	couponRemind = tocsin.Define[string]("coupon.remind")
)

const (
	secretName = "TOCSIN_COUPON_SECRET"
	secret     = "whsec_bm9kZXRlc3Qgc2lnbnMgd2l0aCB0aGlzIGtleSE="
)

// receive starts the program that gets callbacks. It traces its requests, as any other server with otelhttp.
func receive(t *testing.T, r *recorder, answers func(context.Context, webhook.Task) error) (hook *biztype.Webhook, stop func()) {
	t.Helper()
	receiver, err := webhook.New(webhook.Config{Secrets: []string{secret}}, answers)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(otelhttp.NewHandler(receiver, "remind",
		otelhttp.WithTracerProvider(r.provider), otelhttp.WithPropagators(propagation.TraceContext{})))
	t.Cleanup(server.Close)
	return &biztype.Webhook{URL: server.URL, Secrets: []string{secretName}, Allow: []string{"127.0.0.0/8"}}, server.Close
}

// run runs a node until the function that it returns is called.
func run(t *testing.T, cfg node.Config, h *node.Handlers) (stop func()) {
	t.Helper()
	n, err := node.New(cfg, h)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the node: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// nodeConfig is that of a node which knows the callbacks' secret, and tells what became of each delivery.
func nodeConfig(t *testing.T, c *tocsintest.Cluster) (node.Config, <-chan tocsin.Verb) {
	cfg := nodetest.Config(t, c)
	cfg.Group, cfg.ScanInterval = tocsintest.Group, time.Second
	cfg.Getenv = func(name string) string {
		if name == secretName {
			return secret
		}
		return os.Getenv(name)
	}
	outcomes := make(chan tocsin.Verb, 10)
	cfg.OnOutcome = func(_ context.Context, _ tocsin.Info, o node.Outcome) { outcomes <- o.Verb }
	return cfg, outcomes
}

// addInAnotherProcess returns the spans of a process that adds.
func addInAnotherProcess(t *testing.T, cfg tocsin.Config) (spans []seen) {
	t.Helper()
	config, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	adder := exec.CommandContext(t.Context(), self)
	adder.Env, adder.Stderr = append(os.Environ(), adderEnv+"="+string(config)), os.Stderr
	out, err := adder.Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &spans); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return spans
}

func TestATraceOverTwoProcessesAndACallback(t *testing.T) {
	t.Parallel()
	worker, coupons := newRecorder("worker"), newRecorder("coupons")
	var inReceiver trace.SpanContext // of the function that package webhook calls
	hook, stopReceiver := receive(t, coupons, func(ctx context.Context, _ webhook.Task) error {
		inReceiver = trace.SpanContextFromContext(ctx)
		return nil
	})
	c := tocsintest.StartWith(t,
		biztype.Policy{Name: orderClose.Name(), Number: 1, Group: tocsintest.Group},
		biztype.Policy{Name: couponRemind.Name(), Number: 2, Group: tocsintest.Group, Webhook: hook})
	cfg, outcomes := nodeConfig(t, c)
	var h node.Handlers
	node.Handle(&h, orderClose, func(ctx context.Context, task *tocsin.Task[order]) error {
		_, span := worker.provider.Tracer("worker").Start(ctx, "UPDATE orders")
		span.End()
		return nil
	})
	nodeotel.Instrument(worker.telemetry(t, tocsinotel.Config{}), &cfg, &h)
	stop := run(t, cfg, &h)
	spans := addInAnotherProcess(t, c.Config)
	for range 2 {
		if verb := <-outcomes; verb != tocsin.Completed {
			t.Errorf("a delivery ended with %s", verb)
		}
	}
	stop()
	stopReceiver() // its spans end after its answers
	spans = append(append(spans, worker.spans()...), coupons.spans()...)
	show(t, spans)

	request := find(t, spans, "shop", "POST /orders")
	for name, inside := range map[string]string{"order.close": "UPDATE orders", "coupon.remind": "POST"} {
		sent, delivered := find(t, spans, "shop", "send "+name), find(t, spans, "worker", "process "+name)
		if sent.Kind != "producer" || sent.Parent != request.ID || sent.Trace != request.Trace || sent.Status != "Unset" {
			t.Errorf("%+v", sent)
		}
		common := map[string]string{"messaging.system": "tocsin", "messaging.destination.name": name, "messaging.message.id": sent.Attributes["messaging.message.id"], "tocsin.biz_id": ""}
		holds(t, sent, common)
		holds(t, sent, map[string]string{"messaging.operation.type": "send", "messaging.operation.name": "send"})
		if delivered.Kind != "consumer" || delivered.Parent != "" || delivered.Trace == sent.Trace || delivered.Status != "Unset" {
			t.Errorf("%+v", delivered)
		}
		holds(t, delivered, common)
		holds(t, delivered, map[string]string{"messaging.operation.type": "process", "messaging.operation.name": "process", "tocsin.attempt": "1", "tocsin.outcome": "complete"})
		if len(delivered.Links) != 1 || delivered.Links[0].ID != sent.ID || delivered.Links[0].Trace != sent.Trace || delivered.Attributes["tocsin.lateness"] == "" || sent.Attributes["messaging.message.id"] == "" {
			t.Errorf("%+v", delivered)
		}
		of := map[string]string{"UPDATE orders": "worker", "POST": "coupons"}[inside]
		if child := find(t, spans, of, inside); child.Parent != delivered.ID || child.Trace != delivered.Trace {
			t.Errorf("%+v is not a child of %+v", child, delivered)
		}
	}
	if inReceiver.SpanID().String() != find(t, spans, "coupons", "POST").ID {
		t.Error("the receiver's function does not have the request's span")
	}
}

// infos are tasks as a node gets them, if they were added as their headers say.
func infos(t *testing.T, tasks []tocsin.NewTask) []tocsin.Info {
	t.Helper()
	all := make([]tocsin.Info, len(tasks))
	for i, task := range tasks {
		text, err := json.Marshal(task.Headers())
		if err != nil {
			t.Fatal(err)
		}
		all[i] = tocsin.Info{JobID: tocsin.JobID(i + 1), BizID: task.BizID(), BizType: task.BizType(), Attempts: i, ActionTime: time.Now(), Headers: tocsin.Headers(text)}
	}
	return all
}

func TestABatchIsOneSpanWithALinkForEachTask(t *testing.T) {
	t.Parallel()
	r := newRecorder("shop")
	telemetry := r.telemetry(t, tocsinotel.Config{Parent: true, Details: true})
	own := "00-" + remote(1).TraceID().String() + "-" + remote(1).SpanID().String() + "-01"
	x := orderClose.New(7, order{7}, tocsin.In(0))
	tasks := infos(t, append(adding(t, t.Context(), telemetry, nil, x, x, x.Header("traceparent", own)), x)) // the last without a context
	telemetry.Deliver(t.Context(), tasks, func(context.Context, []tocsin.Info) []error {
		return []error{nil, tocsin.Bury(errors.New("no such order")), nil, nil}
	})
	spans := r.spans()
	show(t, spans)
	sent, batch := find(t, spans, "shop", "send order.close"), find(t, spans, "shop", "process order.close")
	holds(t, sent, map[string]string{"messaging.batch.message_count": "3", "messaging.message.id": "", "tocsin.biz_id": ""})
	holds(t, batch, map[string]string{"messaging.batch.message_count": "4", "messaging.message.id": "", "tocsin.outcome": "mixed", "error.type": "*errors.errorString", "tocsin.biz_id": ""})
	if batch.Kind != "consumer" || batch.Status != "Error" || batch.Text != "1 of 4 tasks failed, the first: no such order" || batch.Parent != "" || batch.Trace == sent.Trace {
		t.Errorf("%+v", batch)
	}
	if len(sent.Links) != 1 || sent.Links[0].ID != remote(1).SpanID().String() {
		t.Errorf("the add of a task with a context of its own links to %+v", sent.Links)
	}
	if len(batch.Links) != 3 {
		t.Fatalf("%d links", len(batch.Links))
	}
	for i, id := range []string{sent.ID, sent.ID, remote(1).SpanID().String()} {
		l := batch.Links[i]
		if l.ID != id || l.Attributes["messaging.message.id"] != tasks[i].JobID.String() || l.Attributes["tocsin.attempt"] != strconv.Itoa(i+1) || l.Attributes["tocsin.lateness"] == "" {
			t.Errorf("link %d: %+v", i, l)
		}
	}
}

// Errors may quote payloads, and are recorded only on demand.
func TestADeliveriesSpanTellsItsOutcomeAndNoText(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err                    error
		status, outcome, cause string
	}{
		"done":      {nil, "Unset", "complete", ""},
		"snoozed":   {tocsin.Snooze(time.Hour), "Unset", "snooze", ""},
		"retried":   {fmt.Errorf("order 7: %w", context.DeadlineExceeded), "Error", "retry", "timeout"},
		"retry in":  {tocsin.RetryIn(time.Hour, &url.Error{Err: errors.New("x")}), "Error", "retry", "*url.Error"},
		"buried":    {tocsin.Bury(io.EOF), "Error", "bury", "*errors.errorString"},
		"a webhook": {tocsin.Bury(answered{}), "Error", "bury", "status_4xx"},
	} {
		r := newRecorder("shop")
		x := infos(t, []tocsin.NewTask{orderClose.New(7, order{7}, tocsin.In(0))})
		r.telemetry(t, tocsinotel.Config{}).Deliver(t.Context(), x, func(context.Context, []tocsin.Info) []error { return []error{c.err} })
		s := r.spans()[0]
		if s.Status != c.status || s.Text != "" || len(s.Links) != 0 {
			t.Errorf("%s: %+v", name, s)
		}
		holds(t, s, map[string]string{"tocsin.outcome": c.outcome, "error.type": c.cause, "tocsin.biz_id": ""})
	}
}

// answered is an error as callbacks return it.
type answered struct{}

func (answered) Error() string        { return "callback answered 404 Not Found" }
func (answered) FailureCause() string { return "status_4xx" }

func TestADeliveryMayBeAChildOfItsAdd(t *testing.T) {
	t.Parallel()
	r := newRecorder("shop")
	telemetry := r.telemetry(t, tocsinotel.Config{Parent: true, Details: true})
	c := tocsintest.Start(t, couponRemind)
	with := c.Config
	with.Use = append(with.Use, telemetry.Add)
	client, err := tocsin.Open(t.Context(), with)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Add(t.Context(), couponRemind.NewKey("ord_1", "secret", tocsin.In(0))); err != nil {
		t.Fatal(err)
	}
	cfg, outcomes := nodeConfig(t, c)
	var h node.Handlers
	node.Handle(&h, couponRemind, func(context.Context, *tocsin.Task[string]) error { panic("no stock") })
	nodeotel.Instrument(telemetry, &cfg, &h)
	stop := run(t, cfg, &h)
	if verb := <-outcomes; verb != tocsin.Retried {
		t.Errorf("the delivery ended with %s", verb)
	}
	stop()
	spans := r.spans()
	show(t, spans)
	sent, delivered := find(t, spans, "shop", "send coupon.remind"), find(t, spans, "shop", "process coupon.remind")
	if delivered.Parent != sent.ID || delivered.Trace != sent.Trace || len(delivered.Links) != 1 || delivered.Links[0].ID != sent.ID {
		t.Errorf("%+v", delivered)
	}
	holds(t, sent, map[string]string{"tocsin.biz_key": "ord_1", "tocsin.biz_id": ""})
	holds(t, delivered, map[string]string{"tocsin.biz_key": "ord_1", "error.type": "panic", "tocsin.outcome": "retry"})
	if delivered.Status != "Error" {
		t.Errorf("%+v", delivered)
	}
	want := map[string]int64{
		"messaging.client.sent.messages{messaging.destination.name=coupon.remind messaging.operation.name=send messaging.operation.type=send}":                            1,
		"messaging.client.operation.duration{messaging.destination.name=coupon.remind messaging.operation.name=send messaging.operation.type=send}":                       1,
		"messaging.client.consumed.messages{error.type=panic messaging.destination.name=coupon.remind messaging.operation.name=process messaging.operation.type=process}": 1,
		"messaging.process.duration{error.type=panic messaging.destination.name=coupon.remind messaging.operation.name=process messaging.operation.type=process}":         1,
		"tocsin.delivery.outcomes{messaging.destination.name=coupon.remind tocsin.outcome=retry}":                                                                         1,
		"tocsin.delivery.lateness{messaging.destination.name=coupon.remind}":                                                                                              1,
	}
	got := r.measured(t)
	for name, n := range want {
		if got[name] != n {
			t.Errorf("%s is %d, want %d", name, got[name], n)
		}
	}
	if len(got) != len(want) {
		t.Errorf("measured %v", got)
	}
}
