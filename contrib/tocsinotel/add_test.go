package tocsinotel_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/trace"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/contrib/tocsinotel"
	"github.com/tocsinhq/tocsin/tocsintest"
)

// adding calls Add of a Telemetry around an end that returns err, and returns the tasks as they would be stored.
func adding(t *testing.T, ctx context.Context, telemetry *tocsinotel.Telemetry, err error, tasks ...tocsin.NewTask) []tocsin.NewTask {
	t.Helper()
	call := &tocsin.Adding{Op: "add_many", Tasks: tasks}
	added, got := telemetry.Add(func(_ context.Context, call *tocsin.Adding) ([]tocsin.Added, error) {
		added := make([]tocsin.Added, len(call.Tasks))
		for i := range added {
			added[i] = tocsin.Added{JobID: tocsin.JobID(i + 1), Err: err}
		}
		return added, err
	})(ctx, call)
	if !errors.Is(got, err) || len(added) != len(tasks) {
		t.Errorf("%v, %v", added, got)
	}
	return call.Tasks
}

func TestTraceContextAndSmallBaggageTravelInHeaders(t *testing.T) {
	t.Parallel()
	telemetry := newRecorder("shop").telemetry(t, tocsinotel.Config{})
	x := couponRemind.New(7, "x", tocsin.In(time.Hour))
	state, err := trace.ParseTraceState("vendor=1")
	if err != nil {
		t.Fatal(err)
	}
	from := trace.ContextWithRemoteSpanContext(t.Context(), remote(trace.FlagsSampled).WithTraceState(state))
	for name, size := range map[string]int{"small": 10, "large": 257} {
		member, err := baggage.NewMember("tenant", strings.Repeat("x", size-len("tenant=")))
		if err != nil {
			t.Fatal(err)
		}
		bag, err := baggage.New(member)
		if err != nil {
			t.Fatal(err)
		}
		got := adding(t, baggage.ContextWithBaggage(from, bag), telemetry, nil, x, x.Header("traceparent", "own"))
		all := got[0].Headers()
		if !strings.HasPrefix(all["traceparent"], "00-"+remote(0).TraceID().String()) || all["tracestate"] != "vendor=1" || (all["baggage"] != "") != (name == "small") {
			t.Errorf("%s: %v", name, all)
		}
		if own := got[1].Headers(); own["traceparent"] != "own" || len(own) != 1 {
			t.Errorf("%s: a task with a context of its own has %v", name, own)
		}
	}
}

func TestWithoutATraceAddsCarryNothingOrTheContextOfTheirCaller(t *testing.T) {
	t.Parallel()
	telemetry, err := tocsinotel.New(tocsinotel.Config{}) // the global providers, which do nothing
	if err != nil {
		t.Fatal(err)
	}
	x := couponRemind.New(7, "x", tocsin.In(time.Hour))
	if all := adding(t, t.Context(), telemetry, nil, x)[0].Headers(); len(all) != 0 {
		t.Errorf("%v", all)
	}
	from := trace.ContextWithRemoteSpanContext(t.Context(), remote(0))
	if got, want := adding(t, from, telemetry, nil, x)[0].Headers()["traceparent"], "00-"+remote(0).TraceID().String()+"-"+remote(0).SpanID().String()+"-00"; got != want {
		t.Errorf("traceparent %q, want %q", got, want)
	}
}

func TestFailedAddsAreNamedByTheirError(t *testing.T) {
	t.Parallel()
	x := couponRemind.New(7, "x", tocsin.In(time.Hour))
	for cause, err := range map[string]error{
		"schema": tocsin.ErrSchema, "unreachable": fmt.Errorf("%w: %w", tocsin.ErrUnreachable, errors.New("refused")), "conflict": tocsin.ErrConflict, "invalid": tocsin.ErrInvalid, "unknown_biz_type": tocsin.ErrUnknownBizType, "timeout": context.DeadlineExceeded, "*errors.errorString": errors.New("order 7"),
	} {
		r := newRecorder("shop")
		telemetry := r.telemetry(t, tocsinotel.Config{})
		adding(t, t.Context(), telemetry, nil, x)
		adding(t, t.Context(), telemetry, err, x, orderClose.New(7, order{}, tocsin.In(0)))
		s := r.spans()[1]
		if s.Name != "send" || s.Status != "Error" || s.Text != "" || s.Attributes["error.type"] != cause || s.Attributes["messaging.destination.name"] != "" {
			t.Errorf("%s: %+v", cause, s)
		}
		destination := "messaging.destination.name=coupon.remind "
		if cause == "invalid" || cause == "unknown_biz_type" {
			destination = "" // or a program that makes up names would make labels without bound
		}
		got := r.measured(t)
		if got["messaging.client.sent.messages{error.type="+cause+" messaging.destination.name=order.close messaging.operation.name=send messaging.operation.type=send}"] != 0 {
			t.Errorf("a biz type is a label that nobody knows to exist: %v", got)
		}
		if got["messaging.client.sent.messages{error.type="+cause+" "+destination+"messaging.operation.name=send messaging.operation.type=send}"] == 0 {
			t.Errorf("%s: %v", cause, got)
		}
	}
}

func TestAnAddDoesNotFailForItsTraceContext(t *testing.T) {
	t.Parallel()
	c := tocsintest.StartWith(t, biztype.Policy{Name: couponRemind.Name(), Number: 1, Group: tocsintest.Group})
	cfg := c.Config
	cfg.Use = append(cfg.Use, newRecorder("shop").telemetry(t, tocsinotel.Config{}).Add)
	client, err := tocsin.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for room, want := range map[int]bool{0: false, 100: true} {
		full := strings.Repeat("x", tocsin.MaxHeaders-len(`{"note":""}`)-room)
		added, err := client.Add(t.Context(), couponRemind.New(7, "x", tocsin.In(time.Hour)).Header("note", full))
		if err != nil {
			t.Fatal(err)
		}
		info, err := client.Get(t.Context(), added.JobID)
		if err != nil || info.Header("note") != full || (info.Header("traceparent") != "") != want {
			t.Errorf("room for %d characters: %v, traceparent %q", room, err, info.Header("traceparent"))
		}
	}
}

func TestChangesAreSpans(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		call tocsin.Changing
		err  error
		name string
		want map[string]string
	}{
		{tocsin.Changing{Op: "cancel", BizType: "coupon.remind", BizID: 7, Done: tocsin.Change{Changed: 2}}, nil, "cancel coupon.remind",
			map[string]string{"messaging.destination.name": "coupon.remind", "tocsin.changed": "2", "tocsin.biz_id": "7"}},
		{tocsin.Changing{Op: "reschedule_tx", JobID: 5 << 22}, tocsin.ErrNotFound, "reschedule_tx",
			map[string]string{"messaging.message.id": "20971520", "error.type": "not_found"}},
		{tocsin.Changing{Op: "schedule_run_now", Schedule: "report.daily"}, nil, "schedule_run_now", map[string]string{"tocsin.schedule": "report.daily"}},
		{tocsin.Changing{Op: "cancel_tx", BizType: "coupon.remind", BizID: 7, BizKey: "k", Done: tocsin.Change{Relayed: true}}, nil, "cancel_tx coupon.remind",
			map[string]string{"messaging.destination.name": "coupon.remind", "tocsin.relayed": "true", "tocsin.biz_key": "k"}},
	} {
		r := newRecorder("shop")
		telemetry := r.telemetry(t, tocsinotel.Config{Details: true})
		from := trace.ContextWithRemoteSpanContext(t.Context(), remote(trace.FlagsSampled))
		err := telemetry.Change(func(ctx context.Context, _ *tocsin.Changing) error {
			if !trace.SpanContextFromContext(ctx).IsValid() {
				t.Error("the call has no span")
			}
			return c.err
		})(from, &c.call)
		s := r.spans()[0]
		c.want["messaging.system"], c.want["messaging.operation.name"] = "tocsin", c.call.Op
		if !errors.Is(err, c.err) || s.Name != c.name || s.Kind != "client" || s.Parent == "" || !maps.Equal(s.Attributes, c.want) {
			t.Errorf("%v: %+v, want %v", err, s, c.want)
		}
	}
}
