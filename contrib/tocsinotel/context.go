package tocsinotel

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/tocsinhq/tocsin"
)

// maxBaggage is the length of baggage that is still stored with a task.
const maxBaggage = 256

// The headers of a task, in the order of their priority.
const (
	traceParent = "traceparent"
	traceState  = "tracestate"
	baggageName = "baggage"
)

var (
	w3c     propagation.TraceContext
	baggage propagation.Baggage
)

// carrierOf returns what travels with a task that is added under ctx; empty without a trace.
func carrierOf(ctx context.Context) propagation.MapCarrier {
	carrier := propagation.MapCarrier{}
	w3c.Inject(ctx, carrier)
	if baggage.Inject(ctx, carrier); len(carrier[baggageName]) > maxBaggage {
		delete(carrier, baggageName)
	}
	return carrier
}

// carrying returns the task with the carrier's texts as headers. A task that has a trace context keeps it.
func carrying(t tocsin.NewTask, carrier propagation.MapCarrier) tocsin.NewTask {
	for _, name := range []string{traceParent, traceState, baggageName} {
		if text := carrier[name]; text != "" {
			t = t.OptionalHeader(name, text)
		}
	}
	return t
}

// Context returns ctx with the trace context and the baggage that travel in a task's headers, for a program that handles
// tasks by other means than a node. A span that is started under it is a child of the add's.
func Context(ctx context.Context, h tocsin.Headers) context.Context {
	return extract(ctx, all(h))
}

// all returns headers by name; none if they are no object of texts, which fails the delivery.
func all(h tocsin.Headers) propagation.MapCarrier {
	texts, _ := h.All()
	return texts
}

func extract(ctx context.Context, carrier propagation.MapCarrier) context.Context {
	if len(carrier) == 0 {
		return ctx
	}
	return w3c.Extract(baggage.Extract(ctx, carrier), carrier)
}

// spanOf returns the span that a carrier names, not valid if there is none.
func spanOf(carrier propagation.MapCarrier) trace.SpanContext {
	if carrier[traceParent] == "" {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(w3c.Extract(context.Background(), carrier))
}
