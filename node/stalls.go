package node

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/tocsinhq/tocsin/internal/loglimit"
	"github.com/tocsinhq/tocsin/internal/wait"
)

const (
	stallEvery = 250 * time.Millisecond  // between two looks
	stallAfter = 1500 * time.Millisecond // without an answer for this long a server hangs; a statement waits for a lock for at most 1 s
	stallOver  = 4 * time.Second         // without a late statement for this long the server no longer hangs: its clock is asked for meanwhile
)

// pools is the part of the store that stalls needs.
type pools interface {
	Servers() []string
	Waiting(server int) time.Duration
}

// stalls reports servers that hang: they accept statements and don't answer, say because they are frozen or their disk
// is full. Without it a node would notice only when the statement times out, half a minute later.
type stalls struct {
	pools   pools
	log     *slog.Logger
	limit   loglimit.Limit
	waiting *prometheus.GaugeVec
	hangs   []hang // by server; belongs to run's goroutine
}

// hang is the present hang of a server; the zero hang means none.
type hang struct{ since, seen time.Time }

func newStalls(p pools, log *slog.Logger, r prometheus.Registerer) *stalls {
	return &stalls{
		pools: p, log: log, hangs: make([]hang, len(p.Servers())),
		waiting: promauto.With(r).NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "tocsin", Subsystem: "node", Name: "server_waiting_seconds",
			Help: "How long the oldest statement sent to the server has been without an answer.",
		}, []string{"server"}),
	}
}

// run looks at every server at intervals, until ctx ends.
func (s *stalls) run(ctx context.Context) {
	for wait.For(ctx, stallEvery) == nil {
		for i, name := range s.pools.Servers() {
			s.look(i, name, s.pools.Waiting(i), time.Now())
		}
	}
}

// hanging returns the servers that hang now, with how long they have not answered.
func (s *stalls) hanging() map[string]string {
	all := map[string]string{}
	for i, name := range s.pools.Servers() {
		if waiting := s.pools.Waiting(i); waiting >= stallAfter {
			all[name] = "no answer for " + waiting.Round(100*time.Millisecond).String()
		}
	}
	return all
}

// look records how long the server has not answered by now, and logs the begin and the end of a hang.
func (s *stalls) look(server int, name string, waiting time.Duration, now time.Time) {
	s.waiting.WithLabelValues(name).Set(waiting.Seconds())
	h := &s.hangs[server]
	switch {
	case waiting >= stallAfter:
		if h.since.IsZero() {
			h.since = now.Add(-waiting)
		}
		h.seen = now
		s.limit.Of(s.log, "hangs "+name).Warn("server hangs: a statement has no answer",
			"server", name, "waiting", waiting.Round(time.Millisecond).String())
	case !h.since.IsZero() && now.Sub(h.seen) >= stallOver:
		s.limit.Of(s.log, "answers "+name).Info("server hangs no more",
			"server", name, "lasted", h.seen.Sub(h.since).Round(time.Millisecond).String())
		*h = hang{}
	}
}
