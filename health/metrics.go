package health

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	offset *prometheus.GaugeVec
	up     *prometheus.GaugeVec
	usable *prometheus.GaugeVec

	waiting *prometheus.GaugeVec

	used, writes *prometheus.GaugeVec // of servers with several addresses, as is failovers
	failovers    *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return f.NewGaugeVec(prometheus.GaugeOpts{Namespace: "tocsin", Subsystem: "node", Name: name, Help: help}, labels)
	}
	return &metrics{
		offset:  gauge("clock_offset_seconds", "The server's clock minus this process's, as last measured.", "server"),
		up:      gauge("server_up", "1 if the server answered when last looked at, else 0.", "server"),
		usable:  gauge("database_usable", "1 if this node can use the database, 0 if its server does not answer or its layout row is not as the config says.", "server", "database"),
		waiting: gauge("server_waiting_seconds", "How long the oldest statement sent to the server has been without an answer.", "server"),
		used:    gauge("server_address_used", "1 if statements go to this address of the server, else 0; of servers with several addresses.", "server", "address"),
		writes:  gauge("server_address_writable", "1 if the server at this address takes writes, else 0; of servers with several addresses.", "server", "address"),
		failovers: f.NewCounterVec(prometheus.CounterOpts{
			Namespace: "tocsin", Subsystem: "node", Name: "server_failovers_total", Help: "Moves to another address of the server.",
		}, []string{"server"}),
	}
}

func (m *metrics) export(s State) {
	for _, d := range s {
		m.usable.WithLabelValues(d.Server, d.Name).Set(oneIf(d.Is == Usable))
	}
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
