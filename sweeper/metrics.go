package sweeper

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	sweeps    *prometheus.CounterVec
	overdue   prometheus.Counter
	left      prometheus.Gauge
	recovered prometheus.Counter
	buried    prometheus.Counter
	seconds   prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	name := func(n, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "tocsin", Subsystem: "sweeper", Name: n, Help: help}
	}
	return &metrics{
		sweeps:    f.NewCounterVec(name("sweeps_total", "Sweeps ended, by result: ok, failed, timed_out."), []string{"result"}),
		overdue:   f.NewCounter(name("overdue_total", "Overdue entries found.")),
		recovered: f.NewCounter(name("recovered_total", "Run-out claims given back.")),
		buried:    f.NewCounter(name("buried_total", "Run-out claims buried after the last crash.")),
		left: f.NewGauge(prometheus.GaugeOpts{Namespace: "tocsin", Subsystem: "sweeper", Name: "left",
			Help: "Overdue tasks that the last sweep could not deliver."}),
		seconds: f.NewHistogram(prometheus.HistogramOpts{Namespace: "tocsin", Subsystem: "sweeper", Name: "sweep_seconds",
			Help: "Duration of a sweep.", Buckets: prometheus.ExponentialBuckets(0.05, 2, 14)}),
	}
}

func (m *metrics) observe(r Result) {
	result := "ok"
	switch {
	case len(r.Failed) > 0:
		result = "failed"
	case r.TimedOut:
		result = "timed_out"
	}
	m.sweeps.WithLabelValues(result).Inc()
	m.overdue.Add(float64(r.Overdue))
	m.recovered.Add(float64(r.Recovered))
	m.buried.Add(float64(r.Buried))
	m.left.Set(float64(r.LeftTotal()))
	m.seconds.Observe(r.Took.Seconds())
}
