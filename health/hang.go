package health

import (
	"context"
	"time"

	"github.com/tocsinhq/tocsin/internal/wait"
)

const (
	hangEvery = 250 * time.Millisecond // between two looks
	hangOver  = 4 * time.Second        // without a late statement for this long the server no longer hangs: its clock is asked for meanwhile
)

// HangsAfter is for how long a server has to have a statement without an answer to count as hanging: a statement waits for a
// lock for at most 1 s.
const HangsAfter = 1500 * time.Millisecond

// hang is the present hang of a server: it accepts statements and doesn't answer, say because it is frozen or its disk is full. Without
// it a node would notice only when the statement times out, half a minute later. The zero hang means none.
type hang struct{ since, seen time.Time }

// Hanging returns the servers that hang now, by name, with how long they have not answered.
func (h *Health) Hanging() map[string]string {
	all := map[string]string{}
	for i, name := range h.names {
		if waiting := h.cfg.Servers.Waiting(i); waiting >= HangsAfter {
			all[name] = "no answer for " + waiting.Round(100*time.Millisecond).String()
		}
	}
	return all
}

// watchHangs looks at every server at intervals, until ctx ends.
func (h *Health) watchHangs(ctx context.Context) {
	hangs := make([]hang, len(h.names))
	for wait.For(ctx, hangEvery) == nil {
		for i := range h.names {
			hangs[i] = h.lookForHang(i, hangs[i], h.cfg.Servers.Waiting(i), time.Now())
		}
	}
}

// lookForHang records how long the server has not answered by now, and logs the begin and the end of a hang.
func (h *Health) lookForHang(server int, was hang, waiting time.Duration, now time.Time) hang {
	name := h.names[server]
	h.metrics.waiting.WithLabelValues(name).Set(waiting.Seconds())
	switch {
	case waiting >= HangsAfter:
		if was.since.IsZero() {
			was.since = now.Add(-waiting)
		}
		was.seen = now
		h.limit.Of(h.cfg.Logger, "hangs "+name).Warn("server hangs: a statement has no answer",
			"server", name, "waiting", waiting.Round(time.Millisecond).String())
	case !was.since.IsZero() && now.Sub(was.seen) >= hangOver:
		h.limit.Of(h.cfg.Logger, "hangs no more "+name).Info("server hangs no more",
			"server", name, "lasted", was.seen.Sub(was.since).Round(time.Millisecond).String())
		return hang{}
	}
	return was
}
