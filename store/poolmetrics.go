package store

import (
	"github.com/prometheus/client_golang/prometheus"
)

// poolMetrics exports the pools of connections, which are read when they are scraped.
type poolMetrics struct {
	servers []*server

	connections, most, waits, waited *prometheus.Desc
}

func newPoolMetrics(servers []*server) *poolMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("tocsin_store_"+name, help, append([]string{"server"}, labels...), nil)
	}
	return &poolMetrics{
		servers:     servers,
		connections: desc("connections", "Open connections of the pool, by state: in_use, idle.", "state"),
		most:        desc("connections_limit", "Connections that the pool may open: its part of max_conns."),
		waits:       desc("connection_waits_total", "Statements that waited for a connection, as all were in use."),
		waited:      desc("connection_wait_seconds_total", "Time that statements waited for a connection."),
	}
}

// Describe sends what Collect will send.
func (p *poolMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{p.connections, p.most, p.waits, p.waited} {
		to <- desc
	}
}

// Collect reads the pools.
func (p *poolMetrics) Collect(to chan<- prometheus.Metric) {
	for _, sv := range p.servers {
		stats := sv.poolStats()
		send := func(desc *prometheus.Desc, of prometheus.ValueType, value float64, labels ...string) {
			to <- prometheus.MustNewConstMetric(desc, of, value, append([]string{sv.Name}, labels...)...)
		}
		send(p.connections, prometheus.GaugeValue, float64(stats.InUse), "in_use")
		send(p.connections, prometheus.GaugeValue, float64(stats.Idle), "idle")
		send(p.most, prometheus.GaugeValue, float64(stats.MaxOpenConnections))
		send(p.waits, prometheus.CounterValue, float64(stats.WaitCount))
		send(p.waited, prometheus.CounterValue, stats.WaitDuration.Seconds())
	}
}
