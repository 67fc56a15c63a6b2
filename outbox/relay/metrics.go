package relay

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/outbox"
)

// ops are what rows ask for.
var ops = []string{outbox.Add, outbox.Cancel, outbox.Reschedule}

// metrics of all outboxes.
type metrics struct {
	active, lag, waiting, parked, stuck *prometheus.GaugeVec
	moved, refused                      *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	gauge := func(name, help string) *prometheus.GaugeVec {
		return f.NewGaugeVec(prometheus.GaugeOpts{Namespace: "tocsin", Subsystem: "relay", Name: name, Help: help}, []string{"outbox"})
	}
	counter := func(name, help, by string) *prometheus.CounterVec {
		return f.NewCounterVec(prometheus.CounterOpts{Namespace: "tocsin", Subsystem: "relay", Name: name, Help: help}, []string{"outbox", by})
	}
	return &metrics{
		active:  gauge("active", "1 if this process moves the rows of the outbox, else 0."),
		lag:     gauge("lag_seconds", "Age of the oldest row that waits to be moved, without rows that wait for an operator or for the end of a delivery; 0 if none waits, or another process is active."),
		waiting: gauge("waiting", "Commands of a topic's partition that are not carried out yet, read or not; none of other outboxes."),
		parked:  gauge("parked", "Ids among which are the rows that wait to be read again, as their database is away or has enough; 0 if another process is active."),
		stuck:   gauge("stuck", "Rows that were set aside and wait for an operator; 0 if another process is active."),
		moved:   counter("moved_total", "Rows that were moved from the outbox, by what they ask for.", "op"),
		refused: counter("refused_total", "Rows that were set aside, or went to a dead-letter topic, by reason; reasons that did not come up are left out.", "reason"),
	}
}

// reasons of refusals, by what they are.
var reasons = []struct {
	is   error
	name string
}{
	{tocsin.ErrUnknownBizType, "biz_type"},
	{tocsin.ErrInvalid, "invalid"},
	{tocsin.ErrKeyCollision, "key_collision"},
}

// reasonOf names why a row was refused: "database" if its server refuses it.
func reasonOf(err error) string {
	for _, r := range reasons {
		if errors.Is(err, r.is) {
			return r.name
		}
	}
	return "database"
}

// of returns the metrics of one outbox.
func (m *metrics) of(name string) gauges {
	g := gauges{
		m.active.WithLabelValues(name), m.lag.WithLabelValues(name), m.parked.WithLabelValues(name), m.stuck.WithLabelValues(name),
		m.waiting.MustCurryWith(prometheus.Labels{"outbox": name}),
		m.moved.MustCurryWith(prometheus.Labels{"outbox": name}), m.refused.MustCurryWith(prometheus.Labels{"outbox": name}),
	}
	for _, op := range ops {
		g.moved.WithLabelValues(op)
	}
	return g
}

// gauges are the metrics of one outbox.
type gauges struct {
	active, lag, parked, stuck prometheus.Gauge
	waiting                    *prometheus.GaugeVec   // without a label; empty unless the outbox says it
	moved, refused             *prometheus.CounterVec // by op; by reason
}
