package dispatcher

import (
	"context"
	"log/slog"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// A fault of a server or a target hits row after row. Its log lines are limited, per server and per biz type: the first
// at once, then one a minute with the number of lines left out.

// warn logs a failure on the server, at most once a minute for each cause.
func (s *server) warn(what, message string, err error, args ...any) {
	s.limit.Of(s.d.cfg.Logger, what).Warn(message, append([]any{"error", err, "server", s.index}, args...)...)
}

// unreached logs that a statement is retried because the server does not answer. It ignores nil and the end of a
// context.
func (s *server) unreached(statement string, err error) {
	if class := mysql.ClassOf(err); class != mysql.OK && class != mysql.Canceled {
		s.warn("away", "server does not answer: its outcomes and due rows wait", err, "statement", statement)
	}
}

// tell logs the attempts that failed, in three groups: the last attempts of tasks that are dead now, time-outs (whether
// the target or the time-out ended them), and other failures of the target.
func (k *kind) tell(results []result, took time.Duration, timedOut bool) {
	for _, r := range results {
		level, what, message := slog.LevelWarn, "failed", "delivery failed"
		switch {
		case r.verb == tocsin.Buried:
			level, what, message = slog.LevelError, "dead", "delivery failed for good: the task is dead"
		case r.verb != tocsin.Retried:
			continue
		case timedOut:
			what, message = "timed out", "delivery timed out"
		}
		log := k.limit.Of(k.d.cfg.Logger, what)
		if !log.Enabled(context.Background(), level) {
			continue
		}
		args := []any{"biz_type", r.row.BizType, "job_id", r.row.JobID.String(), "biz_id", r.row.BizID, "attempt", r.row.Attempts + 1}
		if r.row.BizKey != "" {
			args = append(args, "biz_key", r.row.BizKey)
		}
		if r.verb == tocsin.Retried {
			args = append(args, "next", time.UnixMilli(r.next).UTC())
		}
		log.Log(context.Background(), level, message, append(args, "error", r.reason, "took", took.Round(time.Millisecond).String())...)
	}
}
