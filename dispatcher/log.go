package dispatcher

import (
	"time"

	"github.com/rs/zerolog"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// A fault of a server or of a target meets row after row. What is logged of it is limited, per server and per biz type:
// the first line at once, then one a minute, which counts those left out.

// warn begins a line about what fails on the server, or gives nil.
func (s *server) warn(what string, err error) *zerolog.Event {
	return s.limit.Of(s.d.cfg.Logger.Warn(), what).Err(err).Int("server", s.index)
}

// unreached logs that a statement is tried again since the server does not answer it; nil and the end of a context are no
// such thing.
func (s *server) unreached(statement string, err error) {
	if class := mysql.ClassOf(err); class != mysql.OK && class != mysql.Canceled {
		s.warn("away", err).Str("statement", statement).Msg("server does not answer: its outcomes and due rows wait")
	}
}

// tell logs the attempts that failed: timed-out ones, whichever of target and time-out was first to end them, apart from
// those that the target failed, and the last of a task, which is dead then, apart from both.
func (k *kind) tell(results []result, took time.Duration, timedOut bool) {
	for _, r := range results {
		log, what, message := k.d.cfg.Logger.Warn(), "failed", "delivery failed"
		switch {
		case r.verb == tocsin.GiveUp:
			log, what, message = k.d.cfg.Logger.Error(), "dead", "delivery failed for good: the task is dead"
		case r.verb != tocsin.Retry:
			continue
		case timedOut:
			what, message = "timed out", "delivery timed out"
		}
		log = k.limit.Of(log, what)
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
