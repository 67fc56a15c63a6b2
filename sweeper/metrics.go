package sweeper

import (
	"context"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/tocsinhq/tocsin/internal/lastrun"
)

type metrics struct {
	sweeps    *prometheus.CounterVec
	overdue   prometheus.Counter
	claimed   prometheus.Counter
	tasks     *prometheus.CounterVec
	left      prometheus.Gauge
	recovered prometheus.Counter
	buried    prometheus.Counter
	seconds   prometheus.Histogram
	last      *last
}

// last is what the last sweep did.
type last struct {
	*lastrun.Run
	overdue, claimed, recovered, buried, unread, failed prometheus.Gauge

	tasks, left, upkeep *prometheus.GaugeVec
}

func newLast(r prometheus.Registerer) *last {
	f := promauto.With(r)
	opts := func(name, help string) prometheus.GaugeOpts {
		return prometheus.GaugeOpts{Namespace: "tocsin", Subsystem: "sweeper", Name: "last_" + name, Help: help}
	}
	return &last{
		Run:       lastrun.New(r, "sweeper"),
		overdue:   f.NewGauge(opts("overdue", "Overdue entries that the last sweep found.")),
		claimed:   f.NewGauge(opts("claimed", "Tasks that the last sweep claimed, whatever became of them.")),
		recovered: f.NewGauge(opts("recovered", "Run-out claims that the last sweep gave back or buried.")),
		buried:    f.NewGauge(opts("buried", "Those that it buried after the last crash.")),
		unread:    f.NewGauge(opts("unread_tables", "Tables that the last sweep did not read to their end.")),
		failed:    f.NewGauge(opts("failed_servers", "Servers that the last sweep could not sweep in full.")),
		tasks:     f.NewGaugeVec(opts("tasks", "Overdue tasks by what the last sweep did with them: delivered, retried, dead, skipped (by their schedules), elsewhere (another had them), in_delivery (they go on)."), []string{"outcome"}),
		upkeep:    f.NewGaugeVec(opts("upkeep", "What the last sweep did beside delivering, by what; in a resident sweeper since the sweep before."), []string{"what"}),
		left:      f.NewGaugeVec(opts("left", "Overdue tasks that the last sweep left, by reason."), []string{"biz_type", "reason"}),
	}
}

// observe notes the end of a sweep.
func (l *last) observe(r Result, at time.Time, ok bool) {
	l.End(at, r.Took, ok)
	l.overdue.Set(float64(r.Overdue))
	l.claimed.Set(float64(r.Claimed))
	l.recovered.Set(float64(r.Recovered))
	l.buried.Set(float64(r.Buried))
	l.unread.Set(float64(r.Unread))
	l.failed.Set(float64(len(r.Failed)))
	for outcome, n := range r.outcomes() {
		l.tasks.WithLabelValues(outcome).Set(float64(n))
	}
	for _, what := range Upkept {
		l.upkeep.WithLabelValues(what).Set(float64(r.Upkeep[what]))
	}
	l.tasks.WithLabelValues("in_delivery").Set(float64(r.InDelivery))
	l.left.Reset()
	for key, n := range r.Left {
		name, why, _ := strings.Cut(strings.TrimSuffix(key, ")"), " (")
		l.left.WithLabelValues(name, why).Set(float64(n))
	}
}

// outcomes are the tasks that a sweep is through with, by what became of them.
func (r Result) outcomes() map[string]int {
	return map[string]int{"delivered": r.Delivered, "retried": r.Retried, "dead": r.Dead, "skipped": r.Skipped, "elsewhere": r.Elsewhere}
}

// WriteTextfile writes the metrics of a single sweep, which are those of the last sweep of a resident one, into a directory
// of node_exporter's textfile collector. err is the error of the sweep.
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
	l.observe(r, time.Now(), err == nil && r.Err() == nil)
	return l, registry
}

func newMetrics(r prometheus.Registerer, upkeep func() map[string]int) *metrics {
	f := promauto.With(r)
	for _, what := range Upkept {
		f.NewCounterFunc(prometheus.CounterOpts{
			Namespace: "tocsin", Subsystem: "sweeper", Name: "upkeep_total", ConstLabels: prometheus.Labels{"what": what},
			Help: "What sweeps did beside delivering: runs_made, times_passed_over and schedules_failed (by schedules), alarms_raised, alarms_failed, runs_recorded and runs_not_recorded (in the history).",
		}, func() float64 { return float64(upkeep()[what]) })
	}
	name := func(n, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "tocsin", Subsystem: "sweeper", Name: n, Help: help}
	}
	return &metrics{
		last:      newLast(r),
		sweeps:    f.NewCounterVec(name("sweeps_total", "Sweeps ended, by result: ok, failed, timed_out."), []string{"result"}),
		overdue:   f.NewCounter(name("overdue_total", "Overdue entries found.")),
		claimed:   f.NewCounter(name("claimed_total", "Overdue tasks claimed, whatever became of them.")),
		tasks:     f.NewCounterVec(name("tasks_total", "Overdue tasks by what sweeps did with them: delivered, retried, dead, skipped (by their schedules), elsewhere (another had them)."), []string{"outcome"}),
		recovered: f.NewCounter(name("recovered_total", "Run-out claims given back.")),
		buried:    f.NewCounter(name("buried_total", "Run-out claims buried after the last crash.")),
		left: f.NewGauge(prometheus.GaugeOpts{Namespace: "tocsin", Subsystem: "sweeper", Name: "left",
			Help: "Overdue tasks that the last sweep could not deliver."}),
		seconds: f.NewHistogram(prometheus.HistogramOpts{Namespace: "tocsin", Subsystem: "sweeper", Name: "sweep_seconds",
			Help: "Duration of a sweep.", Buckets: []float64{1, 10, 60, 600}}),
	}
}

func (m *metrics) observe(r Result) {
	result := "ok"
	switch {
	case len(r.Failed) > 0:
		result = "failed"
	case r.TimedOut:
		result = "timed_out"
	}
	m.sweeps.WithLabelValues(result).Inc()
	m.overdue.Add(float64(r.Overdue))
	m.claimed.Add(float64(r.Claimed))
	for outcome, n := range r.outcomes() {
		m.tasks.WithLabelValues(outcome).Add(float64(n))
	}
	m.recovered.Add(float64(r.Recovered))
	m.buried.Add(float64(r.Buried))
	m.left.Set(float64(r.LeftTotal()))
	m.seconds.Observe(r.Took.Seconds())
	m.last.observe(r, time.Now(), len(r.Failed) == 0 && r.Err() == nil)
}
