package alarms

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	raised   *prometheus.CounterVec
	failures prometheus.Counter
}

// newMetrics registers the metrics; r may be nil.
func newMetrics(r prometheus.Registerer, waiting func() int) *metrics {
	f := promauto.With(r)
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "tocsin", Subsystem: "alarms", Name: name, Help: help}
	}
	f.NewGaugeFunc(prometheus.GaugeOpts(opts("waiting", "Alarms that this process has to raise and has not: they collect, or may not come yet, or can't be added.")),
		func() float64 { return float64(waiting()) })
	return &metrics{
		raised: f.NewCounterVec(prometheus.CounterOpts(opts("raised_total", "Alarms that this process has added as tasks, by the biz type that they are about.")),
			[]string{"biz_type", "kind"}),
		failures: f.NewCounter(prometheus.CounterOpts(opts("failures_total", "Failed tries to raise an alarm; each is tried again."))),
	}
}
