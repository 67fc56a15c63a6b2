package generator

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	passes, runs, passedOver, lost, failures prometheus.Counter
}

func newMetrics(r prometheus.Registerer, behind func() time.Duration) *metrics {
	f := promauto.With(r)
	count := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Name: "tocsin_generator_" + name + "_total", Help: help})
	}
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tocsin_generator_behind_seconds",
		Help: "How long the earliest fire time has passed for which this process should have made a run, and has not; 0 if there is none.",
	}, func() float64 { return behind().Seconds() })
	return &metrics{
		passes:     count("passes", "Passes over the schedules of a server that ended."),
		runs:       count("runs", "Runs of schedules made."),
		passedOver: count("passed_over", "Fire times that were missed, and no run was made for, by the policies of their schedules."),
		lost:       count("lost", "Schedules that were due, but whose runs another process made first."),
		failures:   count("failures", "Schedules whose runs could not be made, and passes in which not all schedules could be read."),
	}
}

// observe counts a pass.
func (m *metrics) observe(r Result, err error) {
	m.passes.Inc()
	if err != nil {
		m.failures.Inc()
	}
	m.runs.Add(float64(r.Runs))
	m.passedOver.Add(float64(r.PassedOver))
	m.lost.Add(float64(r.Lost))
	m.failures.Add(float64(r.Failed))
}
