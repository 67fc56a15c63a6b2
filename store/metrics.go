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
}

func newMetrics() *metrics {
	return &metrics{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "tocsin_store_round_trip_seconds",
			Help:    "Time from sending a statement, or several in one packet, to its last row.",
			Buckets: prometheus.ExponentialBuckets(0.00025, 2, 14),
		}, []string{"statement"}),
		rows: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tocsin_store_rows_total",
			Help: "Rows read or changed.",
		}, []string{"statement"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tocsin_store_errors_total",
			Help: "Round trips that failed, by class of error.",
		}, []string{"statement", "class"}),
	}
}

// RegisterMetrics makes the store's metrics visible. They count from Open on,
// registered or not.
func (s *Store) RegisterMetrics(reg prometheus.Registerer) error {
	return errors.Join(reg.Register(s.metrics.seconds), reg.Register(s.metrics.rows), reg.Register(s.metrics.errors))
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
