package store

import (
	"database/sql"
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
	seconds := func(name, help string, buckets []float64, label string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tocsin_store_" + name, Help: help, Buckets: buckets, NativeHistogramBucketFactor: nativeFactor,
			NativeHistogramMaxBucketNumber: nativeBuckets, NativeHistogramMinResetDuration: time.Hour,
		}, []string{label})
	}
	count := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tocsin_store_" + name, Help: help}, labels)
	}
	return &metrics{
		// No classic buckets: there are many statements, and each bucket of each would be a series.
		seconds: seconds("round_trip_seconds", "Time from sending a statement, or several in one packet, to its last row.", nil, "statement"),
		rows:    count("rows_total", "Rows read or changed.", "statement"),
		errors:  count("errors_total", "Round trips that failed, by class of error.", "statement", "class"),
		server: seconds("server_seconds", "Time from sending a statement, or several in one packet, to the server's first answer.",
			[]float64{.01, .1}, "server"),
		failed: count("server_errors_total", "Statements to the server that failed, by statement and class of error. Those that no connection was made for are not counted.",
			"server", "statement", "class"),
		slow:    count("slow_total", "Statements, or several in one packet, whose first answer took the server 100 ms or more.", "server", "statement"),
		slowFor: count("slow_seconds_total", "Time that these statements took until their first answer.", "server", "statement"),
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
	all := []prometheus.Collector{s.metrics.seconds, s.metrics.rows, s.metrics.errors, s.metrics.server, s.metrics.failed, s.metrics.slow, s.metrics.slowFor}
	for _, sv := range s.servers {
		all = append(all, poolMetrics(sv)...)
	}
	for _, c := range all {
		errs = append(errs, reg.Register(c))
	}
	return errors.Join(errs...)
}

func (m *metrics) observe(statement string, start time.Time, rows int, err error) {
	m.seconds.WithLabelValues(statement).Observe(time.Since(start).Seconds())
	if rows > 0 {
		m.rows.WithLabelValues(statement).Add(float64(rows))
	}
	m.fault(statement, err)
}

// fault counts an error; nil is none.
func (m *metrics) fault(statement string, err error) {
	if err != nil {
		m.errors.WithLabelValues(statement, mysql.ClassOf(err).String()).Inc()
	}
}

// poolMetrics are of a server's pool of connections, which is read when they are scraped.
func poolMetrics(sv *server) []prometheus.Collector {
	connections := func(state string, number func(sql.DBStats) int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "tocsin_store_connections", Help: "Open connections of the pool, by state: in_use, idle.",
			ConstLabels: prometheus.Labels{"server": sv.Name, "state": state},
		}, func() float64 { return float64(number(sv.DB.Stats())) })
	}
	of := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Name: "tocsin_store_" + name, Help: help, ConstLabels: prometheus.Labels{"server": sv.Name}}
	}
	return []prometheus.Collector{
		connections("in_use", func(s sql.DBStats) int { return s.InUse }),
		connections("idle", func(s sql.DBStats) int { return s.Idle }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts(of("connections_limit", "Connections that the pool may open: its part of max_conns.")),
			func() float64 { return float64(sv.DB.Stats().MaxOpenConnections) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts(of("connection_waits_total", "Statements that waited for a connection, as all were in use.")),
			func() float64 { return float64(sv.DB.Stats().WaitCount) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts(of("connection_wait_seconds_total", "Time that statements waited for a connection.")),
			func() float64 { return sv.DB.Stats().WaitDuration.Seconds() }),
	}
}
