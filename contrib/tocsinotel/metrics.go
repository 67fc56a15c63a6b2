package tocsinotel

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/semconv/v1.43.0/messagingconv"

	"github.com/tocsinhq/tocsin"
)

// buckets of durations are those of the conventions.
var buckets = metric.WithExplicitBucketBoundaries(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)

// metrics are the instruments.
type metrics struct {
	sentMessages messagingconv.ClientSentMessages
	operation    messagingconv.ClientOperationDuration
	consumed     messagingconv.ClientConsumedMessages
	process      messagingconv.ProcessDuration
	outcomes     metric.Int64Counter
	lateness     metric.Float64Histogram

	sets  sync.Map // of labels: attribute.Set
	exist sync.Map // its keys are the names of biz types to which a task was added successfully
}

// labels are what a measurement is told apart by. Empty ones are left out.
type labels struct{ operation, destination, cause, outcome string }

func newMetrics(m metric.Meter) (*metrics, error) {
	var all metrics
	var errs [6]error
	all.sentMessages, errs[0] = messagingconv.NewClientSentMessages(m)
	all.operation, errs[1] = messagingconv.NewClientOperationDuration(m, buckets)
	all.consumed, errs[2] = messagingconv.NewClientConsumedMessages(m)
	all.process, errs[3] = messagingconv.NewProcessDuration(m, buckets)
	all.outcomes, errs[4] = m.Int64Counter("tocsin.delivery.outcomes", metric.WithUnit("{delivery}"),
		metric.WithDescription("Deliveries that have ended, by what became of their task."))
	all.lateness, errs[5] = m.Float64Histogram("tocsin.delivery.lateness", metric.WithUnit("s"), buckets,
		metric.WithDescription("Start of a delivery minus the action time, by the database server's clock."))
	return &all, errors.Join(errs[:]...)
}

// set returns the attributes of labels, made once.
func (m *metrics) set(l labels) attribute.Set {
	if set, known := m.sets.Load(l); known {
		return set.(attribute.Set)
	}
	all := []attribute.KeyValue{semconv.MessagingSystemKey.String(System)}
	if l.operation != "" {
		all = append(all, semconv.MessagingOperationName(l.operation), semconv.MessagingOperationTypeKey.String(l.operation))
	}
	if l.destination != "" {
		all = append(all, semconv.MessagingDestinationName(l.destination))
	}
	if l.cause != "" {
		all = append(all, semconv.ErrorTypeKey.String(l.cause))
	}
	if l.outcome != "" {
		all = append(all, Outcome.String(l.outcome))
	}
	set, _ := m.sets.LoadOrStore(l, attribute.NewSet(all...))
	return set.(attribute.Set)
}

// sent measures a call that adds. A biz type that is not known to exist is no label: programs may make up names.
func (m *metrics) sent(ctx context.Context, tasks []tocsin.NewTask, added []tocsin.Added, err error, took time.Duration) {
	counts := make(map[labels]int64)
	for i, t := range tasks {
		failure := err
		if i < len(added) && (len(tasks) > 1 || failure == nil) {
			failure = added[i].Err
		}
		counts[m.sending(t.BizType(), failure)]++
	}
	for l, n := range counts {
		m.sentMessages.AddSet(ctx, n, m.set(l))
	}
	m.operation.RecordSet(ctx, took.Seconds(), m.set(m.sending(destinationOf(tasks), err)))
}

// sending are the labels of an add.
func (m *metrics) sending(destination string, err error) labels {
	l := labels{operation: send, destination: destination}
	if err == nil {
		m.exist.LoadOrStore(destination, true)
		return l
	}
	l.cause = causeOf(err)
	if _, exists := m.exist.Load(destination); !exists || errors.Is(err, tocsin.ErrInvalid) || errors.Is(err, tocsin.ErrUnknownBizType) {
		l.destination = ""
	}
	return l
}

// processed measures a delivery.
func (m *metrics) processed(ctx context.Context, destination string, tasks int, cause string, took time.Duration) {
	set := m.set(labels{operation: process, destination: destination, cause: cause})
	m.consumed.AddSet(ctx, int64(tasks), set)
	m.process.RecordSet(ctx, took.Seconds(), set)
}

// Delivered measures what became of a task, and how late its delivery began. It is what nodeotel.Instrument calls from
// node.Config.OnOutcome.
func (t *Telemetry) Delivered(ctx context.Context, task tocsin.Info, verb tocsin.Verb, lateness time.Duration) {
	m := t.metrics
	m.outcomes.Add(ctx, 1, metric.WithAttributeSet(m.set(labels{destination: task.BizType, outcome: verb.String()})))
	m.lateness.Record(ctx, lateness.Seconds(), metric.WithAttributeSet(m.set(labels{destination: task.BizType})))
}
