package sweeper

import (
	"context"
	"time"

	"github.com/tocsinhq/tocsin/upkeep"
)

// Run sweeps at each time of the schedule until ctx ends, and then returns nil.
// Sweeps never overlap. Without a Config.Timeout each sweep has 5/6 of the time to
// the next. Deliveries still in progress then go on, and the next sweep counts their
// outcomes.
func (s *Sweeper) Run(ctx context.Context, at upkeep.Times) error {
	upkeep.Each(ctx, at, func(ctx context.Context) {
		timeout := s.cfg.Timeout
		if timeout == 0 {
			timeout = untilNext(at, time.Now())
		}
		result, err := s.sweep(ctx, timeout)
		s.log(ctx, result, err)
	})
	return nil
}

// untilNext returns 5/6 of the time to the next sweep; negative if there is none.
func untilNext(at upkeep.Times, now time.Time) time.Duration {
	next := at.Next(now)
	if next.IsZero() {
		return -1
	}
	return next.Sub(now) / 6 * 5
}

// log writes what a sweep did, unless it found nothing.
func (s *Sweeper) log(ctx context.Context, result Result, err error) {
	log := s.cfg.Logger
	switch left := result.Err(); {
	case result.Overdue+result.Recovered+result.Buried+result.Made == 0 && (ctx.Err() != nil || err == nil && left == nil):
	case ctx.Err() != nil:
		log.Info("sweep stopped before its end", "result", result.String())
	case err != nil:
		log.Error("sweep failed in part", "error", err, "result", result.String())
	case left != nil:
		log.Warn("swept; overdue tasks are left", "error", left, "result", result.String())
	default:
		log.Info("swept", "result", result.String())
	}
}
