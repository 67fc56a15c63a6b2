package dispatcher

import (
	"time"

	"github.com/rs/zerolog"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// A fault of a server or a target hits row after row. Its log lines are limited, per server and per biz type: the first
// at once, then one a minute with the number of lines left out.

// warn begins a line about a failure on the server; nil if the line is left out.
func (s *server) warn(what string, err error) *zerolog.Event {
	return s.limit.Of(s.d.cfg.Logger.Warn(), what).Err(err).Int("server", s.index)
}

// unreached logs that a statement is retried because the server does not answer. It ignores nil and the end of a
// context.
func (s *server) unreached(statement string, err error) {
	if class := mysql.ClassOf(err); class != mysql.OK && class != mysql.Canceled {
		s.warn("away", err).Str("statement", statement).Msg("server does not answer: its outcomes and due rows wait")
	}
}

// tell logs the attempts that failed, in three groups: the last attempts of tasks that are dead now, time-outs (whether
// the target or the time-out ended them), and other failures of the target.
func (k *kind) tell(results []result, took time.Duration, timedOut bool) {
	for _, r := range results {
		level, what, message := zerolog.WarnLevel, "failed", "delivery failed"
		switch {
		case r.verb == tocsin.GiveUp:
			level, what, message = zerolog.ErrorLevel, "dead", "delivery failed for good: the task is dead"
		case r.verb != tocsin.Retry:
			continue
		case timedOut:
			what, message = "timed out", "delivery timed out"
		}
		log := k.limit.Of(k.d.cfg.Logger.WithLevel(level), what)
		if log == nil {
			continue
		}
		log.Str("biz_type", r.row.BizType).Str("job_id", r.row.JobID.String()).Uint64("biz_id", r.row.BizID).Int("attempt", r.row.Attempts+1)
		if r.verb == tocsin.Retry {
			log.Time("next", time.UnixMilli(r.next).UTC())
		}
		log.Str("error", r.reason).Stringer("took", took.Round(time.Millisecond)).Msg(message)
	}
}
