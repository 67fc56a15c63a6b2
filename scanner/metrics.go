package scanner

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are labelled by server, never by table.
type metrics struct {
	peeks     *prometheus.HistogramVec
	entries   *prometheus.CounterVec
	refusals  *prometheus.CounterVec
	bells     *prometheus.CounterVec
	recovered *prometheus.CounterVec
	leases    *prometheus.CounterVec
	failures  *prometheus.CounterVec
	lag       *prometheus.GaugeVec
	bellLag   *bellLag
}

// bellLag exports, when it is scraped, how long ago each server's doorbells were last read.
type bellLag struct {
	desc    *prometheus.Desc
	servers []*server
}

// Describe sends the one description.
func (b *bellLag) Describe(to chan<- *prometheus.Desc) { to <- b.desc }

// Collect sends a gauge for each server.
func (b *bellLag) Collect(to chan<- prometheus.Metric) {
	for _, sv := range b.servers {
		lag := time.Duration(0)
		if heard := sv.heard.Load(); heard != nil {
			lag = max(time.Since(*heard), 0)
		}
		to <- prometheus.MustNewConstMetric(b.desc, prometheus.GaugeValue, lag.Seconds(), sv.name)
	}
}

func newMetrics() *metrics {
	counter := func(name, help string, more ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tocsin_scanner_" + name, Help: help}, append([]string{"server"}, more...))
	}
	return &metrics{
		peeks: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tocsin_scanner_peek_seconds",
			Help: "Time of one peek statement, failed ones included.",

			// No classic buckets: each would be a series for each server.
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160, NativeHistogramMinResetDuration: time.Hour,
		}, []string{"server"}),
		entries:   counter("entries_total", "Entries offered to the intake, known ones included."),
		refusals:  counter("refusals_total", "Offers with an entry for which the intake had no room."),
		bells:     counter("bells_total", "Rings of the doorbell seen for the first time."),
		recovered: counter("recovered_total", "Run-out claims given back or buried."),
		leases:    counter("leases_expired_total", "Leases of workers that ran out: the task is due again after a failed attempt."),
		failures:  counter("failures_total", "Failures: peek and bells of a server, full looks that took too long, table, row and recover of single ones.", "of"),
		lag: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tocsin_scanner_lag_seconds",
			Help: "How late the last regular peek of a group was.",
		}, []string{"server"}),
		bellLag: &bellLag{desc: prometheus.NewDesc("tocsin_scanner_bell_lag_seconds",
			"How long ago the server's doorbells were last read without an error; 0 while the node owns no table there.", []string{"server"}, nil)},
	}
}

func (m *metrics) register(reg prometheus.Registerer) error {
	if reg == nil {
		return nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.peeks, m.entries, m.refusals, m.bells, m.recovered, m.leases, m.failures, m.lag, m.bellLag} {
		errs = append(errs, reg.Register(c))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("register the scanner's metrics: %w", err)
	}
	return nil
}
