package tocsinotel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/tocsinhq/tocsin"
)

// System is the value of messaging.system.
const System = "tocsin"

// Attributes that the messaging conventions lack.
const (
	Attempt  = attribute.Key("tocsin.attempt")  // int: 1 for the first delivery
	Lateness = attribute.Key("tocsin.lateness") // double: seconds from the action time to the start, by this machine's clock
	Outcome  = attribute.Key("tocsin.outcome")  // string: complete, retry, snooze or bury; "mixed" for a batch whose tasks differ
	Existing = attribute.Key("tocsin.existing") // bool: the task was there already, by its dedup key
	Relayed  = attribute.Key("tocsin.relayed")  // bool: the task is in an outbox
	Changed  = attribute.Key("tocsin.changed")  // int: tasks that a cancel or reschedule has changed
	Schedule = attribute.Key("tocsin.schedule") // string: name of the schedule that a call is about
	BizID    = attribute.Key("tocsin.biz_id")   // string, with Config.Details
	BizKey   = attribute.Key("tocsin.biz_key")  // string, with Config.Details
)

// The operations.
const (
	send    = "send"
	process = "process"
)

// started are the attributes of a span that are known when it starts. destination is "" if the tasks are of several types.
func started(operation, destination string, tasks int, extra ...attribute.KeyValue) []attribute.KeyValue {
	all := append(make([]attribute.KeyValue, 0, 10),
		semconv.MessagingSystemKey.String(System),
		semconv.MessagingOperationName(operation),
		semconv.MessagingOperationTypeKey.String(operation))
	if destination != "" {
		all = append(all, semconv.MessagingDestinationName(destination))
	}
	if tasks > 1 {
		all = append(all, semconv.MessagingBatchMessageCount(tasks))
	}
	return append(all, extra...)
}

// named is the name of a span.
func named(operation, destination string) string {
	if destination == "" {
		return operation
	}
	return operation + " " + destination
}

// business are the ids of a task's user.
func (t *Telemetry) business(id, key string) []attribute.KeyValue {
	switch {
	case !t.cfg.Details:
		return nil
	case key != "":
		return []attribute.KeyValue{BizKey.String(key)}
	}
	return []attribute.KeyValue{BizID.String(id)}
}

// failed marks a span.
func (t *Telemetry) failed(span trace.Span, cause string, err error) {
	text := ""
	if t.cfg.Details && err != nil {
		text = err.Error()
	}
	span.SetStatus(codes.Error, text)
	span.SetAttributes(semconv.ErrorTypeKey.String(cause))
}

// panicked is the error.type of a handler that panicked.
const panicked = "panic"

// refusals are the errors of package tocsin that adds and changes return.
var refusals = []struct {
	err  error
	name string
}{
	{tocsin.ErrUnknownOutcome, "unknown_outcome"},
	{tocsin.ErrInvalid, "invalid"},
	{tocsin.ErrUnknownBizType, "unknown_biz_type"},
	{tocsin.ErrNotFound, "not_found"},
	{tocsin.ErrSchema, "schema"},
	{tocsin.ErrLayout, "layout"},
	{tocsin.ErrOtherServer, "other_server"},
	{tocsin.ErrKeyCollision, "key_collision"},
	{tocsin.ErrInDelivery, "in_delivery"},
	{context.DeadlineExceeded, "timeout"},
	{context.Canceled, "cancelled"},
	{tocsin.ErrUnreachable, "unreachable"},
	{tocsin.ErrConflict, "conflict"},
}

// causeOf is the error.type of an error: the cause that it names itself, as those of callbacks do, or the name of one of
// package tocsin's errors, or else its Go type.
func causeOf(err error) string {
	var told interface{ FailureCause() string }
	if errors.As(err, &told) {
		return told.FailureCause()
	}
	for _, r := range refusals {
		if errors.Is(err, r.err) {
			return r.name
		}
	}
	if inner := errors.Unwrap(err); inner != nil && asked(err) {
		err = inner
	}
	return semconv.ErrorType(err).Value.AsString()
}

// asked reports whether a handler asked for more than a retry by the policy, with Bury or RetryIn.
func asked(err error) bool {
	verb, in, _ := tocsin.AsOutcome(err)
	return verb == tocsin.Buried || in >= 0
}
