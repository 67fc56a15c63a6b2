package presence

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	nodes, first prometheus.Gauge
	failures     *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return promauto.With(r).NewGauge(prometheus.GaugeOpts{Namespace: "tocsin", Subsystem: "presence", Name: name, Help: help})
	}
	return &metrics{
		nodes: gauge("nodes", "Nodes of the group that are there, by the node tables."),
		first: gauge("tables_first", "Tables that this node looks at first; it takes rows of the others a quarter of a second later."),
		failures: promauto.With(r).NewCounterVec(prometheus.CounterOpts{
			Namespace: "tocsin", Subsystem: "presence", Name: "failures_total",
			Help: "Rounds in which the node tables of the server could not be written or read.",
		}, []string{"server"}),
	}
}
