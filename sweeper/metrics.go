package sweeper

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/tocsinhq/tocsin/upkeep"
)

type metrics struct {
	last    *upkeep.LastRun
	totals  upkeep.Totals
	sweeps  *prometheus.CounterVec
	left    prometheus.Gauge
	seconds prometheus.Histogram
}

// Ended returns the metrics of the sweep. ok says that no server failed.
func (r Result) Ended(ok bool) upkeep.Ended {
	outcomes := map[string]int{"delivered": r.Delivered, "retried": r.Retried, "dead": r.Dead, "skipped": r.Skipped, "elsewhere": r.Elsewhere}
	through := func(set func(n int, labels ...string)) {
		for outcome, n := range outcomes {
			set(n, outcome)
		}
	}
	return upkeep.Ended{Subsystem: "sweeper", Took: r.Took, OK: ok && r.Err() == nil, Figures: []upkeep.Figure{
		{Name: "overdue", Last: "Overdue entries that the last sweep found.", Total: "Overdue entries found.", Value: r.Overdue},
		{Name: "claimed", Last: "Tasks that the last sweep claimed, whatever became of them.", Total: "Overdue tasks claimed, whatever became of them.", Value: r.Claimed},
		{Name: "recovered", Last: "Run-out claims that the last sweep gave back or buried.", Total: "Run-out claims given back.", Value: r.Recovered},
		{Name: "buried", Last: "Those that it buried after the last crash.", Total: "Run-out claims buried after the last crash.", Value: r.Buried},
		{Name: "unread_tables", Last: "Tables that the last sweep did not read to their end.", Value: r.Unread},
		{Name: "failed_servers", Last: "Servers that the last sweep could not sweep in full.", Value: len(r.Failed)},
		{Name: "tasks", Total: "Overdue tasks by what sweeps did with them: delivered, retried, dead, skipped (by their schedules), elsewhere (another had them).",
			Labels: []string{"outcome"}, Values: through},
		{Name: "tasks", Last: "Overdue tasks by what the last sweep did with them: delivered, retried, dead, skipped (by their schedules), elsewhere (another had them), in_delivery (they go on).",
			Labels: []string{"outcome"}, Values: func(set func(n int, labels ...string)) {
				through(set)
				set(r.InDelivery, "in_delivery")
			}},
		{Name: "upkeep", Last: "What the last sweep did beside delivering, by what; in a resident sweeper since the sweep before.",
			Labels: []string{"what"}, Values: func(set func(n int, labels ...string)) {
				for _, what := range Upkept {
					set(r.Upkeep[what], what)
				}
			}},
		{Name: "left", Last: "Overdue tasks that the last sweep left, by reason.",
			Labels: []string{"biz_type", "reason"}, Values: func(set func(n int, labels ...string)) {
				for key, n := range r.Left {
					name, why, _ := strings.Cut(strings.TrimSuffix(key, ")"), " (")
					set(n, name, why)
				}
			}},
	}}
}

func newMetrics(r prometheus.Registerer, upkept func() map[string]int) *metrics {
	f, none := promauto.With(r), Result{}.Ended(false)
	for _, what := range Upkept {
		f.NewCounterFunc(prometheus.CounterOpts{
			Namespace: "tocsin", Subsystem: "sweeper", Name: "upkeep_total", ConstLabels: prometheus.Labels{"what": what},
			Help: "What sweeps did beside delivering: runs_made, times_passed_over and schedules_failed (by schedules), alarms_raised, alarms_failed, runs_recorded and runs_not_recorded (in the history).",
		}, func() float64 { return float64(upkept()[what]) })
	}
	return &metrics{
		last: upkeep.NewLastRun(r, none), totals: upkeep.NewTotals(r, none),
		sweeps: f.NewCounterVec(prometheus.CounterOpts{Namespace: "tocsin", Subsystem: "sweeper", Name: "sweeps_total",
			Help: "Sweeps ended, by result: ok, failed, timed_out."}, []string{"result"}),
		left: f.NewGauge(prometheus.GaugeOpts{Namespace: "tocsin", Subsystem: "sweeper", Name: "left",
			Help: "Overdue tasks that the last sweep could not deliver."}),
		seconds: f.NewHistogram(prometheus.HistogramOpts{Namespace: "tocsin", Subsystem: "sweeper", Name: "sweep_seconds",
			Help: "Duration of a sweep.", Buckets: []float64{1, 10, 60, 600}}),
	}
}

func (m *metrics) observe(r Result) {
	word := "ok"
	switch {
	case len(r.Failed) > 0:
		word = "failed"
	case r.TimedOut:
		word = "timed_out"
	}
	m.sweeps.WithLabelValues(word).Inc()
	m.left.Set(float64(r.LeftTotal()))
	m.seconds.Observe(r.Took.Seconds())
	ended := r.Ended(len(r.Failed) == 0)
	m.last.End(time.Now(), ended)
	m.totals.Add(ended)
}
