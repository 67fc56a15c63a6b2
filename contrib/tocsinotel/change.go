package tocsinotel

import (
	"context"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/tocsinhq/tocsin"
)

// Change traces the calls that cancel or reschedule tasks and those that change schedules, for tocsin.Config.UseChanges. A span of a
// call with a transaction is about its statements: the transaction may still be rolled back.
func (t *Telemetry) Change(next tocsin.ChangeFunc) tocsin.ChangeFunc {
	return func(ctx context.Context, call *tocsin.Changing) error {
		attributes := changing(call)
		if call.BizID != 0 {
			attributes = append(attributes, t.business(strconv.FormatUint(call.BizID, 10), call.BizKey)...)
		}
		ctx, span := t.tracer.Start(ctx, named(call.Op, call.BizType), trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attributes...))
		defer span.End()
		err := next(ctx, call)
		switch {
		case err != nil:
			t.failed(span, causeOf(err), err)
		case call.Done.Relayed:
			span.SetAttributes(Relayed.Bool(true))
		case call.Schedule == "" && (call.BizID != 0 || call.JobID != 0):
			span.SetAttributes(Changed.Int(call.Done.Changed))
		}
		return err
	}
}

// changing are the attributes of a change that are known when it starts.
func changing(call *tocsin.Changing) []attribute.KeyValue {
	all := append(make([]attribute.KeyValue, 0, 8), semconv.MessagingSystemKey.String(System), semconv.MessagingOperationName(call.Op))
	if call.BizType != "" {
		all = append(all, semconv.MessagingDestinationName(call.BizType))
	}
	if call.JobID != 0 {
		all = append(all, semconv.MessagingMessageID(call.JobID.String()))
	}
	if call.Schedule != "" {
		all = append(all, Schedule.String(call.Schedule))
	}
	return all
}
