// Package tocsinotel traces and measures tasks with OpenTelemetry, from add to delivery. It is a module of its own, so that
// other programs do not require OpenTelemetry.
//
//	Telemetry.Add        wraps the calls of a client that add tasks: append it to tocsin.Config.Use
//	nodeotel.Instrument  wraps the handlers and callbacks of a node
//
// An add is a span of kind producer, "send order.close". Its W3C trace context travels in the task's headers traceparent and
// tracestate, and baggage of at most 256 characters in the header baggage. They are optional headers: an add never fails for
// them. A task that already has a header traceparent keeps it, and the span links to it.
//
// A delivery is a span of kind consumer, "process order.close", with a link to the span of the add. A task may be delivered
// days after the add, and more than once, so that a delivery begins a trace of its own, unless Config.Parent is set. A batch
// is one span with a link for each task.
//
// A callback's request carries the trace context of its delivery. If a node traces nothing, it carries that of the add.
//
// Spans and metrics follow the messaging conventions of OpenTelemetry, of version 1.43.0. What they don't name begins with
// "tocsin.". docs/go.md lists both. Payloads never appear, and ids of your own and texts of errors only with Config.Details.
package tocsinotel
