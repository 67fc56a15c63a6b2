package sweeper

import (
	"context"

	"github.com/tocsinhq/tocsin/internal/schedule"
)

// ParseSchedule reads a cron expression of five fields, or @every 1m and the
// like. Its error says what a right one looks like.
func ParseSchedule(expression string) (schedule.Schedule, error) { return schedule.Parse(expression) }

// Run sweeps at each time of the schedule until ctx ends, and returns nil then.
// A sweep that outlasts the next time delays it; none run side by side.
func (s *Sweeper) Run(ctx context.Context, at schedule.Schedule) error {
	schedule.Each(ctx, at, func(ctx context.Context) {
		result, err := s.Sweep(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			s.cfg.Logger.Error().Err(err).Stringer("result", result).Msg("sweep failed in part")
		case result.Overdue+result.Recovered+result.Buried > 0:
			s.cfg.Logger.Info().Stringer("result", result).Msg("swept")
		}
	})
	return nil
}
