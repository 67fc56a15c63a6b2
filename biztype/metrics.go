package biztype

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics counts what a Watcher does.
type metrics struct {
	polls    prometheus.Counter
	failures prometheus.Counter
	changes  prometheus.Counter
	revision prometheus.Gauge
}

// newMetrics registers with reg; nil leaves them unregistered.
func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	return &metrics{
		polls:    f.NewCounter(prometheus.CounterOpts{Name: "tocsin_biztype_polls_total", Help: "Questions to a database whether a biz type changed."}),
		failures: f.NewCounter(prometheus.CounterOpts{Name: "tocsin_biztype_poll_failures_total", Help: "Those that failed."}),
		changes:  f.NewCounter(prometheus.CounterOpts{Name: "tocsin_biztype_changes_total", Help: "Times that the biz types were read anew and passed on."}),
		revision: f.NewGauge(prometheus.GaugeOpts{Name: "tocsin_biztype_revision", Help: "Highest revision of a biz type that this process knows."}),
	}
}

func (m *metrics) poll(err error) {
	m.polls.Inc()
	if err != nil {
		m.failures.Inc()
	}
}

func (m *metrics) publish(revision uint64) {
	m.changes.Inc()
	m.revision.Set(float64(revision))
}
