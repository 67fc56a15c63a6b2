package store

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

// metrics counts by statement: the word in the statement's own comment.
type metrics struct {
	seconds *prometheus.HistogramVec
	rows    *prometheus.CounterVec
	errors  *prometheus.CounterVec
	server  *prometheus.HistogramVec
	failed  *prometheus.CounterVec
}

func newMetrics() *metrics {
	return &metrics{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tocsin_store_round_trip_seconds",
			Help: "Time from sending a statement, or several in one packet, to its last row.",

			// No classic buckets: there are many statements, and each bucket of each would be a series.
			NativeHistogramBucketFactor:    nativeFactor,
			NativeHistogramMaxBucketNumber: nativeBuckets, NativeHistogramMinResetDuration: time.Hour,
		}, []string{"statement"}),
		rows: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tocsin_store_rows_total",
			Help: "Rows read or changed.",
		}, []string{"statement"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tocsin_store_errors_total",
			Help: "Round trips that failed, by class of error.",
		}, []string{"statement", "class"}),
		server: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "tocsin_store_server_seconds",
			Help:    "Time from sending a statement, or several in one packet, to the server's first answer.",
			Buckets: []float64{.01, .1}, NativeHistogramBucketFactor: nativeFactor,
			NativeHistogramMaxBucketNumber: nativeBuckets, NativeHistogramMinResetDuration: time.Hour,
		}, []string{"server"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tocsin_store_server_errors_total",
			Help: "Statements to the server that failed, by class of error. Those that no connection was made for are not counted.",
		}, []string{"server", "class"}),
	}
}

// Native histograms have buckets that grow by nativeFactor, at most nativeBuckets of them.
const (
	nativeFactor  = 1.1
	nativeBuckets = 160
)

// of returns what is to be called after each statement to a server.
func (m *metrics) of(server string) func(time.Duration, error) {
	took := m.server.WithLabelValues(server)
	return func(d time.Duration, err error) {
		took.Observe(d.Seconds())
		if err != nil {
			m.failed.WithLabelValues(server, mysql.ClassOf(err).String()).Inc()
		}
	}
}

// RegisterMetrics makes the store's metrics visible. They count from Open on,
// registered or not.
func (s *Store) RegisterMetrics(reg prometheus.Registerer) error {
	var errs []error
	for _, c := range []prometheus.Collector{
		s.metrics.seconds, s.metrics.rows, s.metrics.errors, s.metrics.server, s.metrics.failed, newPoolMetrics(s.servers),
	} {
		errs = append(errs, reg.Register(c))
	}
	return errors.Join(errs...)
}

func (m *metrics) observe(statement string, start time.Time, rows int, err error) {
	m.seconds.WithLabelValues(statement).Observe(time.Since(start).Seconds())
	if rows > 0 {
		m.rows.WithLabelValues(statement).Add(float64(rows))
	}
	if err != nil {
		m.errors.WithLabelValues(statement, mysql.ClassOf(err).String()).Inc()
	}
}
