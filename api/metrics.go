package api

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// tookBuckets are the classic buckets, which are few, since each is a series for each operation. Native histograms, which
// Prometheus stores as one series, have the fine ones.
var tookBuckets = []float64{.01, .1, 1}

// noOperation is the label of requests that were answered before an operation was found.
const noOperation = "none"

// reasons are the values of the label "reason", by the code of the problem. Other problems are answers of an operation.
var reasons = map[string]string{
	"token": "token", "scope": "scope", "biz_types": "scope", "rate": "rate", "busy": "rate", "body_too_large": "size", "host": "page", "origin": "page",
	"no_such_path": "path", "method_not_allowed": "path", "malformed": "malformed", "invalid_utf8": "malformed", "unsupported_media_type": "malformed", "slow_body": "malformed",
}

// metrics of an API. No label repeats anything of a request: operations, classes and reasons are those of the code.
type metrics struct {
	requests *prometheus.CounterVec
	took     *prometheus.HistogramVec
	refusals map[string]prometheus.Counter // by reason
	inFlight prometheus.Gauge
}

// newMetrics registers the metrics; r may be nil.
func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "tocsin", Subsystem: "api", Name: name, Help: help}
	}
	m := &metrics{
		refusals: map[string]prometheus.Counter{},
		requests: f.NewCounterVec(prometheus.CounterOpts(opts("requests_total",
			"Requests answered, by operation (none: it was refused before one was found) and class of the status: 2xx, 4xx, 5xx.")), []string{"operation", "class"}),
		took: f.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "tocsin", Subsystem: "api", Name: "request_seconds", Help: "Time from the headers of a request to the end of its answer, its body included.",
			Buckets: tookBuckets, NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160, NativeHistogramMinResetDuration: time.Hour,
		}, []string{"operation"}),
		inFlight: f.NewGauge(prometheus.GaugeOpts(opts("requests_in_flight", "Requests that are being answered."))),
	}
	refusals := f.NewCounterVec(prometheus.CounterOpts(opts("refusals_total",
		"Requests refused whatever they ask for, by reason: token, scope (or biz types), rate, size, page (host or origin), path, malformed.")), []string{"reason"})
	for _, reason := range reasons {
		m.refusals[reason] = refusals.WithLabelValues(reason)
	}
	return m
}

// end counts an answer.
func (m *metrics) end(c *call, status int, took time.Duration) {
	m.inFlight.Dec()
	operation := cmp.Or(c.operation, noOperation)
	m.requests.WithLabelValues(operation, strconv.Itoa(cmp.Or(status, http.StatusOK)/100)+"xx").Inc()
	m.took.WithLabelValues(operation).Observe(took.Seconds())
	if refused := m.refusals[reasons[c.code]]; refused != nil {
		refused.Inc()
	}
}
