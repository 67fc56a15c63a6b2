package tocsinotel

import (
	"context"
	"strconv"
	"time"

	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/tocsinhq/tocsin"
)

// Add traces the calls of a client that add tasks, for tocsin.Config.Use. As the last function there it sees the tasks as
// they are stored. A span of AddTx is about the statement: the transaction may still be rolled back.
func (t *Telemetry) Add(next tocsin.AddFunc) tocsin.AddFunc {
	return func(ctx context.Context, call *tocsin.Adding) ([]tocsin.Added, error) {
		begin := time.Now()
		destination := destinationOf(call.Tasks)
		attributes := started(send, destination, len(call.Tasks))
		if len(call.Tasks) == 1 {
			one := call.Tasks[0]
			attributes = append(attributes, t.business(strconv.FormatUint(one.BizID(), 10), one.BizKey())...)
		}
		ctx, span := t.tracer.Start(ctx, named(send, destination), trace.WithSpanKind(trace.SpanKindProducer),
			trace.WithTimestamp(begin), trace.WithAttributes(attributes...))
		defer span.End()
		t.carry(ctx, span, call.Tasks)
		added, err := next(ctx, call)
		t.added(span, call.Tasks, added, err)
		t.metrics.sent(ctx, call.Tasks, added, err, time.Since(begin))
		return added, err
	}
}

// destinationOf returns the biz type of tasks, "" if they are of several.
func destinationOf(tasks []tocsin.NewTask) string {
	name := tasks[0].BizType()
	for _, t := range tasks {
		if t.BizType() != name {
			return ""
		}
	}
	return name
}

// carry gives the tasks the span's context. The span links to that of each task which has one of its own.
func (t *Telemetry) carry(ctx context.Context, span trace.Span, tasks []tocsin.NewTask) {
	carrier := carrierOf(ctx)
	for i, task := range tasks {
		if own := task.Headers(); own[traceParent] != "" {
			if of := spanOf(own); of.IsValid() {
				span.AddLink(trace.Link{SpanContext: of})
			}
			continue
		}
		tasks[i] = carrying(task, carrier)
	}
}

// added tells the span what became of the tasks.
func (t *Telemetry) added(span trace.Span, tasks []tocsin.NewTask, added []tocsin.Added, err error) {
	if !span.IsRecording() {
		return
	}
	for _, a := range added {
		if err == nil {
			err = a.Err
		}
	}
	if err != nil {
		t.failed(span, causeOf(err), err)
	}
	if len(tasks) != 1 || len(added) != 1 {
		return
	}
	if one := added[0]; one.JobID != 0 {
		span.SetAttributes(semconv.MessagingMessageID(one.JobID.String()))
	}
	if added[0].Existing {
		span.SetAttributes(Existing.Bool(true))
	}
	if added[0].Relayed {
		span.SetAttributes(Relayed.Bool(true))
	}
}
