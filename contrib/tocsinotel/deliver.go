package tocsinotel

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/tocsinhq/tocsin"
)

// Deliver traces a delivery that next does: that of one task, or of several of one biz type. It is what
// nodeotel.Instrument wraps handlers and callbacks in.
func (t *Telemetry) Deliver(ctx context.Context, tasks []tocsin.Info, next func(context.Context, []tocsin.Info) []error) []error {
	if len(tasks) == 0 {
		return next(ctx, tasks)
	}
	d := &delivery{telemetry: t, tasks: tasks, begin: time.Now()}
	ctx = d.start(ctx)
	ended := false
	defer func() {
		if !ended { // the handler panicked, which is its node's to handle
			d.span.SetAttributes(Outcome.String(tocsin.Retried.String()))
			d.end(ctx, panicked, nil)
		}
	}()
	errs := next(ctx, tasks)
	ended = true
	cause, err := d.failure(errs)
	d.outcome(errs)
	d.end(ctx, cause, err)
	return errs
}

// delivery is one under way.
type delivery struct {
	telemetry *Telemetry
	tasks     []tocsin.Info
	begin     time.Time
	span      trace.Span
}

// start starts the span and returns its context. With a single task that has the task's baggage too.
func (d *delivery) start(ctx context.Context) context.Context {
	t, first := d.telemetry, d.tasks[0]
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithTimestamp(d.begin)}
	attributes := started(process, first.BizType, len(d.tasks))
	if len(d.tasks) == 1 {
		carrier := all(first.Headers)
		ctx = d.under(ctx, carrier)
		if of := spanOf(carrier); of.IsValid() {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: of}))
		}
		attributes = append(append(attributes, d.about(first)...), t.business(strconv.FormatUint(first.BizID, 10), first.BizKey)...)
	} else {
		options = append(options, trace.WithLinks(d.links()...))
	}
	ctx, d.span = t.tracer.Start(ctx, named(process, first.BizType), append(options, trace.WithAttributes(attributes...))...)
	return ctx
}

// under returns the context that the span of a single task starts under.
func (d *delivery) under(ctx context.Context, carrier propagation.MapCarrier) context.Context {
	if d.telemetry.cfg.Parent {
		return extract(ctx, carrier)
	}
	return baggage.Extract(ctx, carrier)
}

// links returns one for each task of a batch that has a trace context.
func (d *delivery) links() (links []trace.Link) {
	for _, task := range d.tasks {
		if of := spanOf(all(task.Headers)); of.IsValid() {
			links = append(links, trace.Link{SpanContext: of, Attributes: d.about(task)})
		}
	}
	return links
}

// about are the attributes of one task.
func (d *delivery) about(task tocsin.Info) []attribute.KeyValue {
	return []attribute.KeyValue{
		semconv.MessagingMessageID(task.JobID.String()),
		Attempt.Int(task.Attempts + 1),
		Lateness.Float64(max(d.begin.Sub(task.ActionTime), 0).Seconds()),
	}
}

// failure returns the error.type of a delivery, "" for success, and what failed. Tasks of a batch may fail one by one.
func (d *delivery) failure(errs []error) (cause string, err error) {
	failed := 0
	for _, e := range errs {
		if verb, _, _ := tocsin.AsOutcome(e); verb != tocsin.Retried && verb != tocsin.Buried {
			continue
		}
		if failed++; failed == 1 {
			cause, err = causeOf(e), e
		}
	}
	if failed > 0 && len(d.tasks) > 1 {
		err = fmt.Errorf("%d of %d tasks failed, the first: %w", failed, len(d.tasks), err)
	}
	return cause, err
}

// outcome tells the span what the handler asked for. The last attempt that fails buries its task all the same.
func (d *delivery) outcome(errs []error) {
	text := tocsin.Completed.String()
	for i, err := range errs {
		verb, _, _ := tocsin.AsOutcome(err)
		switch {
		case i == 0:
			text = verb.String()
		case text != verb.String():
			text = "mixed"
		}
	}
	d.span.SetAttributes(Outcome.String(text))
}

// end ends the span and measures.
func (d *delivery) end(ctx context.Context, cause string, err error) {
	if cause != "" {
		d.telemetry.failed(d.span, cause, err)
	}
	d.span.End()
	d.telemetry.metrics.processed(ctx, d.tasks[0].BizType, len(d.tasks), cause, time.Since(d.begin))
}
