// Package nodeotel traces and measures a node's deliveries with OpenTelemetry. It stands apart from package tocsinotel, as
// programs that only add tasks need nothing of package node.
package nodeotel

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/propagation"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/contrib/tocsinotel"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/webhook"
)

// Instrument wraps the handlers and callbacks of a node, and its OnOutcome. Call it before node.New. Middleware that the
// handlers already have runs outside the span of a delivery, middleware that is added later inside it.
func Instrument(t *tocsinotel.Telemetry, cfg *node.Config, h *node.Handlers) {
	h.Use(func(next node.HandlerFunc) node.HandlerFunc {
		return func(ctx context.Context, tasks []tocsin.Info) []error { return t.Deliver(ctx, tasks, next) }
	})
	h.UseCallbacks(func(next node.HandlerFunc) node.HandlerFunc {
		call := calling(next)
		return func(ctx context.Context, tasks []tocsin.Info) []error { return t.Deliver(ctx, tasks, call) }
	})
	first := cfg.OnOutcome
	cfg.OnOutcome = func(ctx context.Context, task tocsin.Info, o node.Outcome) {
		t.Delivered(ctx, task, o.Verb, o.Lateness)
		if first != nil {
			first(ctx, task, o)
		}
	}
}

// calling has the request of a callback carry the trace context of its delivery.
func calling(next node.HandlerFunc) node.HandlerFunc {
	return func(ctx context.Context, tasks []tocsin.Info) []error {
		h := make(http.Header)
		propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(h))
		return next(webhook.WithHeaders(ctx, h), tasks)
	}
}
