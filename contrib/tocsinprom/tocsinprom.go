// Package tocsinprom counts the calls of a tocsin.Client for Prometheus. It is a package of its own so that a program which
// only adds tasks does not link Prometheus.
//
//	observe, err := tocsinprom.Observe(prometheus.DefaultRegisterer)
//	...
//	client, err := tocsin.Open(ctx, tocsin.Config{ ..., Observe: observe})
//
// The labels are bounded: operations and results are those listed here, and a biz type counts by its name only if it
// exists.
package tocsinprom

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin"
)

// results are the values of the label "result", by error; in the order in which they are looked for.
var results = []struct {
	err    error
	result string
}{
	{tocsin.ErrUnknownOutcome, "unknown_outcome"},
	{tocsin.ErrInvalid, "invalid"},
	{tocsin.ErrUnknownBizType, "unknown_biz_type"},
	{tocsin.ErrNotFound, "not_found"},
	{tocsin.ErrOtherServer, "other_server"},
	{tocsin.ErrLayout, "layout"},
	{tocsin.ErrUnreachable, "unreachable"},
	{tocsin.ErrConflict, "conflict"},
	{tocsin.ErrInDelivery, "in_delivery"},
	{context.Canceled, "canceled"},
	{context.DeadlineExceeded, "canceled"},
}

func resultOf(err error) string {
	if err == nil {
		return "ok"
	}
	if over := (*tocsin.InsertLimitError)(nil); errors.As(err, &over) {
		return "insert_limit"
	}
	for _, r := range results {
		if errors.Is(err, r.err) {
			return r.result
		}
	}
	return "other"
}

type metrics struct {
	calls *prometheus.CounterVec
	took  *prometheus.HistogramVec
	tasks *prometheus.CounterVec

	mu  sync.RWMutex
	ops map[string]op // guarded by mu
}

// op has the metrics of the successful calls of one operation, looked up once.
type op struct {
	ok   prometheus.Counter
	took prometheus.Observer
}

// Observe registers the metrics with r and returns a function for tocsin.Config.Observe. It may serve several clients. Of
// two calls with one Registerer the second returns an error.
func Observe(r prometheus.Registerer) (func(tocsin.Call), error) {
	m := &metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tocsin_client_calls_total",
			Help: "Calls of the client, by result: ok, invalid, unknown_biz_type, not_found, other_server, layout, unreachable, unknown_outcome, conflict, in_delivery, insert_limit, canceled, other.",
		}, []string{"op", "result"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tocsin_client_call_seconds", Help: "How long calls of the client took, failed ones included.", Buckets: []float64{.001, .01, .1, 1, 10},
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160, NativeHistogramMinResetDuration: time.Hour,
		}, []string{"op"}),
		tasks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tocsin_client_tasks_total",
			Help: "Tasks that calls were to add, by result: new, existing (by their dedup_key), failed. Those of AddTx are new even if the transaction is rolled back.",
		}, []string{"biz_type", "result"}),
		ops: make(map[string]op),
	}
	for _, c := range []prometheus.Collector{m.calls, m.took, m.tasks} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("tocsinprom: %w", err)
		}
	}
	return m.observe, nil
}

func (m *metrics) observe(c tocsin.Call) {
	op := m.of(c.Op)
	op.took.Observe(c.Took.Seconds())
	if c.Err == nil {
		op.ok.Inc()
	} else {
		m.calls.WithLabelValues(c.Op, resultOf(c.Err)).Inc()
	}
	for _, t := range c.Tasks {
		for result, n := range map[string]int{"new": t.New, "existing": t.Existing, "failed": t.Failed} {
			if n > 0 {
				m.tasks.WithLabelValues(t.BizType, result).Add(float64(n))
			}
		}
	}
}

// of finds or makes the metrics of an operation.
func (m *metrics) of(name string) op {
	m.mu.RLock()
	found, ok := m.ops[name]
	m.mu.RUnlock()
	if ok {
		return found
	}
	found = op{ok: m.calls.WithLabelValues(name, "ok"), took: m.took.WithLabelValues(name)}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ops[name] = found
	return found
}
