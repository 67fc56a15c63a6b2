package purger

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/tocsinhq/tocsin/internal/lastrun"
)

type metrics struct {
	purges   *prometheus.CounterVec
	removed  *prometheus.CounterVec
	bells    prometheus.Counter
	runs     prometheus.Counter
	timeouts prometheus.Counter
	locked   prometheus.Counter
	seconds  prometheus.Histogram
	last     *last
}

// last is what the last purge did.
type last struct {
	*lastrun.Run
	bells, runs, locked, lacking, failed prometheus.Gauge

	removed *prometheus.GaugeVec
}

func newLast(r prometheus.Registerer) *last {
	f := promauto.With(r)
	opts := func(name, help string) prometheus.GaugeOpts {
		return prometheus.GaugeOpts{Namespace: "tocsin", Subsystem: "purger", Name: "last_" + name, Help: help}
	}
	return &last{
		Run:     lastrun.New(r, "purger"),
		bells:   f.NewGauge(opts("bells", "Rings of the doorbell that the last purge removed.")),
		runs:    f.NewGauge(opts("runs", "Runs of the history that the last purge removed.")),
		locked:  f.NewGauge(opts("locked", "Finished tasks that the last purge left because their row stayed locked.")),
		lacking: f.NewGauge(opts("lacking_databases", "Databases whose runs the last purge left since its user has no right to them.")),
		failed:  f.NewGauge(opts("failed_servers", "Servers that the last purge could not purge in full.")),
		removed: f.NewGaugeVec(opts("removed", "Finished tasks that the last purge removed, by status."), []string{"status"}),
	}
}

// observe notes the end of a purge.
func (l *last) observe(r Result, at time.Time, ok bool) {
	l.End(at, r.Took, ok)
	l.bells.Set(float64(r.Bells))
	l.runs.Set(float64(r.Runs))
	l.locked.Set(float64(r.Locked))
	l.lacking.Set(float64(len(r.Lacking)))
	l.failed.Set(float64(len(r.Failed)))
	total := r.Total()
	l.removed.WithLabelValues("done").Set(float64(total.Done))
	l.removed.WithLabelValues("cancelled").Set(float64(total.Cancelled))
	l.removed.WithLabelValues("dead").Set(float64(total.Dead))
}

// WriteTextfile writes the metrics of a single purge, which are those of the last purge of a resident one, into a directory
// of node_exporter's textfile collector. err is the error of the purge.
func WriteTextfile(dir, name string, labels prometheus.Labels, r Result, err error) error {
	l, registry := lastOf(labels, r, err)
	return l.Write(dir, name, registry)
}

// Push sends the metrics of WriteTextfile to the Pushgateway at url, as the job name.
func Push(ctx context.Context, url, name string, labels prometheus.Labels, r Result, err error) error {
	l, registry := lastOf(labels, r, err)
	return l.Push(ctx, url, name, registry)
}

func lastOf(labels prometheus.Labels, r Result, err error) (*last, *prometheus.Registry) {
	registry := prometheus.NewRegistry()
	l := newLast(prometheus.WrapRegistererWith(labels, registry))
	l.observe(r, time.Now(), err == nil)
	return l, registry
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	name := func(n, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "tocsin", Subsystem: "purger", Name: n, Help: help}
	}
	return &metrics{
		last:     newLast(r),
		purges:   f.NewCounterVec(name("purges_total", "Purges ended, by result: ok, failed."), []string{"result"}),
		removed:  f.NewCounterVec(name("removed_total", "Finished tasks removed, by status."), []string{"status"}),
		bells:    f.NewCounter(name("bells_total", "Rings of the doorbell removed.")),
		runs:     f.NewCounter(name("runs_total", "Runs of the history removed.")),
		timeouts: f.NewCounter(name("timeouts_total", "Batches that another's lock held up, and that were tried again with fewer rows.")),
		locked:   f.NewCounter(name("locked_total", "Finished tasks left because their row stayed locked.")),
		seconds: f.NewHistogram(prometheus.HistogramOpts{Namespace: "tocsin", Subsystem: "purger", Name: "purge_seconds",
			Help: "Duration of a purge.", Buckets: []float64{1, 10, 60, 600, 3600}}),
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
	m.last.observe(r, time.Now(), len(r.Failed) == 0)
	total := r.Total()
	m.removed.WithLabelValues("done").Add(float64(total.Done))
	m.removed.WithLabelValues("cancelled").Add(float64(total.Cancelled))
	m.removed.WithLabelValues("dead").Add(float64(total.Dead))
	m.bells.Add(float64(r.Bells))
	m.runs.Add(float64(r.Runs))
	m.timeouts.Add(float64(r.Timeouts))
	m.locked.Add(float64(r.Locked))
}
