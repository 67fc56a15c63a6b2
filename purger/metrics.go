package purger

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	purges   *prometheus.CounterVec
	removed  *prometheus.CounterVec
	bells    prometheus.Counter
	timeouts prometheus.Counter
	locked   prometheus.Counter
	seconds  prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	name := func(n, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "tocsin", Subsystem: "purger", Name: n, Help: help}
	}
	return &metrics{
		purges:   f.NewCounterVec(name("purges_total", "Purges ended, by result: ok, failed."), []string{"result"}),
		removed:  f.NewCounterVec(name("removed_total", "Finished tasks removed, by status."), []string{"status"}),
		bells:    f.NewCounter(name("bells_total", "Rings of the doorbell removed.")),
		timeouts: f.NewCounter(name("timeouts_total", "Batches that another's lock held up, and that were tried again with fewer rows.")),
		locked:   f.NewCounter(name("locked_total", "Finished tasks left because their row stayed locked.")),
		seconds: f.NewHistogram(prometheus.HistogramOpts{Namespace: "tocsin", Subsystem: "purger", Name: "purge_seconds",
			Help: "Duration of a purge.", Buckets: prometheus.ExponentialBuckets(0.1, 3, 12)}),
	}
}

func (m *metrics) observe(r Result) {
	result := "ok"
	if len(r.Failed) > 0 {
		result = "failed"
	}
	m.purges.WithLabelValues(result).Inc()
	m.seconds.Observe(r.Took.Seconds())
	if r.DryRun {
		return
	}
	total := r.Total()
	m.removed.WithLabelValues("done").Add(float64(total.Done))
	m.removed.WithLabelValues("cancelled").Add(float64(total.Cancelled))
	m.removed.WithLabelValues("dead").Add(float64(total.Dead))
	m.bells.Add(float64(r.Bells))
	m.timeouts.Add(float64(r.Timeouts))
	m.locked.Add(float64(r.Locked))
}
