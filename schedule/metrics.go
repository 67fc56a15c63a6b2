package schedule

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// The labels of what was decided about a run.
const (
	verdictDelivered = "delivered"
	verdictMissed    = "missed"
	verdictSkipped   = "skipped"
	verdictQueued    = "queued"
	verdictReplaced  = "replaced"
	verdictOutdated  = "outdated"
	verdictFailed    = "failed"
)

// metrics have a series for a verdict from its first on.
type metrics struct {
	runs   *prometheus.CounterVec
	paused prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	return &metrics{f.NewCounterVec(prometheus.CounterOpts{Name: "tocsin_judge_runs_total",
		Help: "Runs of schedules by what was decided about them: delivered, missed (too late), skipped (an earlier run was open), queued (waits for an earlier run, counted each time it looks), replaced (by a later run), outdated (of a former revision of its schedule), failed (its schedule could not be read: it is judged again)."},
		[]string{"verdict"}),
		f.NewCounter(prometheus.CounterOpts{Name: "tocsin_schedules_paused_total",
			Help: "Schedules that this process paused, as their runs failed as often in a row as pause_after says."})}
}

func (m *metrics) count(verdict string) { m.runs.WithLabelValues(verdict).Inc() }
