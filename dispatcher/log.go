package dispatcher

import (
	"context"
	"log/slog"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/store"
)

// A fault of a server or a target hits row after row. Its log lines are limited, per server and per biz type: the first
// at once, then one a minute with the number of lines left out.

// warn logs a failure on the server, at most once a minute for each cause.
func (s *server) warn(what, message string, err error, args ...any) {
	s.limit.Of(s.d.cfg.Logger, what).Warn(message, append([]any{"error", err, "server", s.index}, args...)...)
}

// tell logs the attempts that failed: time-outs (whether the target or the time-out ended them), and other failures of the
// target. Whether a task is dead is known when that is stored: see tellDead.
func (k *kind) tell(results []result, timedOut bool) {
	for _, r := range results {
		switch {
		case r.verb != tocsin.Retried:
		case timedOut:
			k.log(slog.LevelWarn, "timed out", "delivery timed out", r, "next", time.UnixMilli(r.next).UTC())
		default:
			k.log(slog.LevelWarn, "failed", "delivery failed", r, "next", time.UnixMilli(r.next).UTC())
		}
	}
}

// tellDead logs the last attempts of tasks that are dead now. A task that was cancelled, rescheduled or completed meanwhile is not.
func tellDead(batch []result, fates []store.Fate) {
	for i, r := range batch {
		switch {
		case r.verb != tocsin.Buried || r.after:
		case fates[i] == store.Stored:
			r.lane.kind.log(slog.LevelError, "dead", "delivery failed for good: the task is dead", r)
		default:
			r.lane.kind.log(slog.LevelWarn, "not dead", "delivery failed for good, but its task had changed meanwhile and is not dead", r, "fate", fates[i].String())
		}
	}
}

func (k *kind) log(level slog.Level, what, message string, r result, more ...any) {
	log := k.limit.Of(k.d.cfg.Logger, what)
	if !log.Enabled(context.Background(), level) {
		return
	}
	args := []any{"biz_type", r.row.BizType, "job_id", r.row.JobID.String(), "biz_id", r.row.BizID, "attempt", r.row.Attempts + 1}
	if r.row.BizKey != "" {
		args = append(args, "biz_key", r.row.BizKey)
	}
	args = append(append(args, more...), "error", r.reason, "took", r.took.Round(time.Millisecond).String())
	log.Log(context.Background(), level, message, args...)
}
