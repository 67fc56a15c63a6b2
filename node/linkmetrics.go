package node

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/sink"
)

// linkMetrics are those of sinks, by their names in the config, and of fallbacks, by biz type.
type linkMetrics struct {
	records *prometheus.CounterVec
	acks    *prometheus.HistogramVec
	stored  *prometheus.GaugeVec
	taken   *prometheus.CounterVec
}

// newLinkMetrics registers the metrics. r may be nil.
func newLinkMetrics(r prometheus.Registerer) *linkMetrics {
	f := promauto.With(r)
	return &linkMetrics{
		records: f.NewCounterVec(prometheus.CounterOpts{
			Name: "tocsin_sink_records_total",
			Help: "Records for a sink of the config, each time one was sent, by result: stored; unavailable, the task waits without an attempt; refused, the broker will never take it and the task is dead; unfit, the same found without asking the broker; failed, an attempt.",
		}, []string{"sink", "result"}),
		acks: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tocsin_sink_ack_seconds", Help: "Time of a delivery to a sink until the broker had stored its records, if it stored any.",
			Buckets: []float64{.01, .1, 1, 10}, NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160, NativeHistogramMinResetDuration: time.Hour,
		}, []string{"sink"}),
		stored: f.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tocsin_sink_last_stored_timestamp_seconds", Help: "When this node last learnt that a record of the sink was stored, in Unix time.",
		}, []string{"sink"}),
		taken: f.NewCounterVec(prometheus.CounterOpts{
			Name: "tocsin_fallback_tasks_total", Help: "Tasks of a biz type that its fallback has taken, while the first link was away.",
		}, []string{"biz_type"}),
	}
}

// countedSink counts what becomes of the records of a sink.
type countedSink struct {
	to      sink.Sink
	metrics *linkMetrics
	name    string // of the sink in the config
}

// Deliver implements sink.Sink.
func (s *countedSink) Deliver(ctx context.Context, tasks []tocsin.Info) []error {
	began := time.Now()
	errs := s.to.Deliver(ctx, tasks)
	results := map[string]int{}
	for _, err := range errs {
		results[resultOf(err)]++
	}
	for result, n := range results {
		s.metrics.records.WithLabelValues(s.name, result).Add(float64(n))
	}
	if results[stored] > 0 {
		s.metrics.acks.WithLabelValues(s.name).Observe(time.Since(began).Seconds())
		s.metrics.stored.WithLabelValues(s.name).SetToCurrentTime()
	}
	return errs
}

// stored is the result of a record that the broker has.
const stored = "stored"

// resultOf is the label of a record with this error.
func resultOf(err error) string {
	switch verb, _, _ := tocsin.AsOutcome(err); {
	case err == nil:
		return stored
	case sink.IsUnavailable(err):
		return "unavailable"
	case sink.IsUnfit(err):
		return "unfit"
	case verb == tocsin.Buried:
		return "refused"
	}
	return "failed"
}

// fallbackAway describes what targets collect.
var fallbackAway = prometheus.NewDesc("tocsin_fallback_seconds",
	"For how long the first link of a biz type has been away while its fallback delivers; 0: the first link delivers.", []string{"biz_type"}, nil)

// export registers the metrics of links. r may be nil.
func (t *targets) export(r prometheus.Registerer) {
	if r != nil {
		t.metrics = newLinkMetrics(r)
		r.MustRegister(t)
	}
}

// Describe sends the one description.
func (t *targets) Describe(to chan<- *prometheus.Desc) { to <- fallbackAway }

// Collect sends a value for each biz type with two links.
func (t *targets) Collect(to chan<- prometheus.Metric) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, m := range t.made {
		if l, both := m.Sink.(*links); both {
			to <- prometheus.MustNewConstMetric(fallbackAway, prometheus.GaugeValue, l.away(time.Now()).Seconds(), name)
		}
	}
}
