package relay

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics of all outboxes.
type metrics struct {
	active, lag, stuck *prometheus.GaugeVec
	moved              *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	gauge := func(name, help string) *prometheus.GaugeVec {
		return f.NewGaugeVec(prometheus.GaugeOpts{Namespace: "tocsin", Subsystem: "relay", Name: name, Help: help}, []string{"outbox"})
	}
	return &metrics{
		active: gauge("active", "1 if this process moves the rows of the outbox, else 0."),
		lag:    gauge("lag_seconds", "Age of the oldest row that waits to be moved, without rows that wait for an operator or for the end of a delivery; 0 if none waits, or another process is active."),
		stuck:  gauge("stuck", "Rows that were set aside and wait for an operator; 0 if another process is active."),
		moved: f.NewCounterVec(prometheus.CounterOpts{
			Namespace: "tocsin", Subsystem: "relay", Name: "moved_total", Help: "Rows that were moved from the outbox.",
		}, []string{"outbox"}),
	}
}

// of returns the metrics of one outbox.
func (m *metrics) of(outbox string) gauges {
	return gauges{m.active.WithLabelValues(outbox), m.lag.WithLabelValues(outbox), m.stuck.WithLabelValues(outbox), m.moved.WithLabelValues(outbox)}
}

// gauges are the metrics of one outbox.
type gauges struct {
	active, lag, stuck prometheus.Gauge
	moved              prometheus.Counter
}
