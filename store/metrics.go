package store

import (
	"errors"
	"strings"
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

	slow, slowFor *prometheus.CounterVec
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
			Help: "Statements to the server that failed, by statement and class of error. Those that no connection was made for are not counted.",
		}, []string{"server", "statement", "class"}),
		slow: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tocsin_store_slow_total",
			Help: "Statements, or several in one packet, whose first answer took the server 100 ms or more.",
		}, []string{"server", "statement"}),
		slowFor: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tocsin_store_slow_seconds_total",
			Help: "Time that these statements took until their first answer.",
		}, []string{"server", "statement"}),
	}
}

// Native histograms have buckets that grow by nativeFactor, at most nativeBuckets of them.
const (
	nativeFactor  = 1.1
	nativeBuckets = 160
)

// of returns what is to be called after each statement to a server.
//
// Each statement of each server with a series of its own would be too many, so only those that are slow or fail have some.
func (m *metrics) of(server string) mysql.Observe {
	took := m.server.WithLabelValues(server)
	return func(query string, d time.Duration, err error) {
		took.Observe(d.Seconds())
		if err != nil {
			m.failed.WithLabelValues(server, senderIn(query), mysql.ClassOf(err).String()).Inc()
		}
		if d >= slowFrom {
			statement := senderIn(query)
			m.slow.WithLabelValues(server, statement).Inc()
			m.slowFor.WithLabelValues(server, statement).Add(d.Seconds())
		}
	}
}

// slowFrom is a bound of a bucket of tocsin_store_server_seconds, so both tell the same statements.
const slowFrom = 100 * time.Millisecond

// senderIn returns the word in a statement's comment; that of the first, if several are sent together.
func senderIn(query string) string {
	_, rest, found := strings.Cut(query, "/* tocsin ")
	word, _, ended := strings.Cut(rest, " */")
	if !found || !ended {
		return "other" // SET, COMMIT: no statement of ours
	}
	return word
}

// RegisterMetrics makes the store's metrics visible. They count from Open on,
// registered or not.
func (s *Store) RegisterMetrics(reg prometheus.Registerer) error {
	var errs []error
	for _, c := range []prometheus.Collector{
		s.metrics.seconds, s.metrics.rows, s.metrics.errors, s.metrics.server, s.metrics.failed, s.metrics.slow, s.metrics.slowFor, newPoolMetrics(s.servers),
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

// poolMetrics exports the pools of connections, which are read when they are scraped.
type poolMetrics struct {
	servers []*server

	connections, most, waits, waited *prometheus.Desc
}

func newPoolMetrics(servers []*server) *poolMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("tocsin_store_"+name, help, append([]string{"server"}, labels...), nil)
	}
	return &poolMetrics{
		servers:     servers,
		connections: desc("connections", "Open connections of the pool, by state: in_use, idle.", "state"),
		most:        desc("connections_limit", "Connections that the pool may open: its part of max_conns."),
		waits:       desc("connection_waits_total", "Statements that waited for a connection, as all were in use."),
		waited:      desc("connection_wait_seconds_total", "Time that statements waited for a connection."),
	}
}

// Describe sends what Collect will send.
func (p *poolMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{p.connections, p.most, p.waits, p.waited} {
		to <- desc
	}
}

// Collect reads the pools.
func (p *poolMetrics) Collect(to chan<- prometheus.Metric) {
	for _, sv := range p.servers {
		stats := sv.DB.Stats()
		send := func(desc *prometheus.Desc, of prometheus.ValueType, value float64, labels ...string) {
			to <- prometheus.MustNewConstMetric(desc, of, value, append([]string{sv.Name}, labels...)...)
		}
		send(p.connections, prometheus.GaugeValue, float64(stats.InUse), "in_use")
		send(p.connections, prometheus.GaugeValue, float64(stats.Idle), "idle")
		send(p.most, prometheus.GaugeValue, float64(stats.MaxOpenConnections))
		send(p.waits, prometheus.CounterValue, float64(stats.WaitCount))
		send(p.waited, prometheus.CounterValue, stats.WaitDuration.Seconds())
	}
}
