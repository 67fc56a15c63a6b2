package standin

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	tables   prometheus.Gauge
	entries  prometheus.Counter
	failures prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	count := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Namespace: "tocsin", Subsystem: "standin", Name: name, Help: help})
	}
	return &metrics{
		tables: f.NewGauge(prometheus.GaugeOpts{
			Namespace: "tocsin", Subsystem: "standin", Name: "tables",
			Help: "Tables of other nodes in which this node delivers biz types that their owners lack.",
		}),
		entries:  count("entries_total", "Rows found in tables of other nodes, each time they were found."),
		failures: count("failures_total", "Looks at tables of other nodes that failed."),
	}
}
