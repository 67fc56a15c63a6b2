package assign

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics counts what a node does to own its tables.
type metrics struct {
	renewals        prometheus.Counter
	renewalFailures prometheus.Counter
	leasesLost      prometheus.Counter
	plans           prometheus.Counter
	rebalances      prometheus.Counter
	taken           prometheus.Counter
	givenUp         prometheus.Counter
	takeFailures    prometheus.Counter
}

func newMetrics() *metrics {
	return &metrics{
		renewals:        counter("lease_renewals_total", "Successful renewals of the node's lease."),
		renewalFailures: counter("lease_renewal_failures_total", "Attempts to renew the node's lease that failed."),
		leasesLost:      counter("leases_lost_total", "Leases that ended while the node wanted to own tables."),
		plans:           counter("plans_total", "Plans made of who should own what."),
		rebalances:      counter("rebalances_total", "Times that tables of the node moved: those that move together count once."),
		taken:           counter("tables_taken_total", "Tables taken."),
		givenUp:         counter("tables_given_up_total", "Tables given up or lost."),
		takeFailures:    counter("take_failures_total", "Tables whose key was taken but given back, as the node could not start on them."),
	}
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: "tocsin_assign_" + name, Help: help})
}

func gauge[T int | float64](name, help string, value func() T) prometheus.Collector {
	opts := prometheus.GaugeOpts{Name: "tocsin_assign_" + name, Help: help}
	return prometheus.NewGaugeFunc(opts, func() float64 { return float64(value()) })
}

// register publishes the counters, and gauges of what a owns and wants. r may be nil.
func (m *metrics) register(r prometheus.Registerer, a *Assign) error {
	if r == nil {
		return nil
	}
	for _, c := range []prometheus.Collector{
		m.renewals, m.renewalFailures, m.leasesLost, m.plans, m.rebalances, m.taken, m.givenUp, m.takeFailures,
		gauge("tables_owned", "Tables that the node owns.", a.Owned),
		gauge("foreign_nodes", "Live nodes of the group whose databases are those of another cluster with the same id.", func() int { return int(a.foreign.Load()) }),
		gauge("tables_unowned", "Tables of the group that no live node owned when the node last saw etcd's keys.", func() int { return int(a.unowned.Load()) }),
		gauge("lease_seconds", "For how long the node may still rely on its lease; 0: not any more.", func() float64 { return max(a.trust.left().Seconds(), 0) }),
		gauge("peers", "Live nodes of the group when the node last saw etcd's keys, the node included.", a.Peers),
		gauge("tables_wanted", "Tables that the node should own by its last plan.", a.Wanted),
	} {
		if err := r.Register(c); err != nil {
			return fmt.Errorf("assign: register metrics: %w", err)
		}
	}
	return nil
}
