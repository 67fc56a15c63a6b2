package history

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	recorded, dropped, failed prometheus.Counter
}

func newMetrics(r prometheus.Registerer, queued func() int, capacity int) *metrics {
	f := promauto.With(r)
	count := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Namespace: "tocsin", Subsystem: "history", Name: name + "_total", Help: help})
	}
	gauge := func(name, help string, value func() int) {
		f.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "tocsin", Subsystem: "history", Name: name, Help: help},
			func() float64 { return float64(value()) })
	}
	gauge("queue_bytes", "Size of the runs that wait to be recorded.", queued)
	gauge("queue_capacity_bytes", "Bound of tocsin_history_queue_bytes, beyond which runs are dropped.", func() int { return capacity })
	return &metrics{
		recorded: count("recorded", "Runs recorded."),
		dropped:  count("dropped", "Runs not recorded since too many waited, or the process ended."),
		failed:   count("failed", "Runs not recorded since their database refused them or could not take them."),
	}
}
