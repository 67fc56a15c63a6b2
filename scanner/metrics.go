package scanner

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are labelled by server, never by table.
type metrics struct {
	peeks     *prometheus.HistogramVec
	entries   *prometheus.CounterVec
	refusals  *prometheus.CounterVec
	bells     *prometheus.CounterVec
	recovered *prometheus.CounterVec
	failures  *prometheus.CounterVec
	lag       *prometheus.GaugeVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string, more ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tocsin_scanner_" + name, Help: help}, append([]string{"server"}, more...))
	}
	m := &metrics{
		peeks: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "tocsin_scanner_peek_seconds",
			Help:    "Time of one peek statement, failed ones included.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2.5, 12),
		}, []string{"server"}),
		entries:   counter("entries_total", "Entries offered to the intake, known ones included."),
		refusals:  counter("refusals_total", "Offers of which the intake had no room for an entry."),
		bells:     counter("bells_total", "Rings of the doorbell seen for the first time."),
		recovered: counter("recovered_total", "Run-out claims given back or buried."),
		failures:  counter("failures_total", "Failures: peek and bells of a server, table, row and recover of single ones.", "of"),
		lag: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tocsin_scanner_lag_seconds",
			Help: "How late the last regular peek of a group was.",
		}, []string{"server"}),
	}
	return m, m.register(reg)
}

func (m *metrics) register(reg prometheus.Registerer) error {
	if reg == nil {
		return nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.peeks, m.entries, m.refusals, m.bells, m.recovered, m.failures, m.lag} {
		errs = append(errs, reg.Register(c))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("register the scanner's metrics: %w", err)
	}
	return nil
}
