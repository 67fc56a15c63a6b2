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
type metrics struct{ runs *prometheus.CounterVec }

func newMetrics(r prometheus.Registerer) *metrics {
	return &metrics{promauto.With(r).NewCounterVec(prometheus.CounterOpts{Name: "tocsin_judge_runs_total",
		Help: "Runs of schedules by what was decided about them: delivered, missed (too late), skipped (an earlier run was open), queued (waits for an earlier run, counted each time it looks), replaced (by a later run), outdated (of a former revision of its schedule), failed (its schedule could not be read: it is judged again)."},
		[]string{"verdict"})}
}

func (m *metrics) count(verdict string) { m.runs.WithLabelValues(verdict).Inc() }
