package sweeper

import (
	"context"
	"fmt"
	"time"

	"github.com/robfig/cron/v3"
)

// ParseSchedule reads a cron expression of five fields, or @every 1m and the
// like. Its error says what a right one looks like.
func ParseSchedule(expression string) (cron.Schedule, error) {
	schedule, err := cron.ParseStandard(expression)
	if err != nil {
		return nil, fmt.Errorf("cron expression %q: %v: want five fields such as \"*/5 * * * *\", or \"@every 1m\"", expression, err)
	}
	return schedule, nil
}

// Run sweeps at each time of the schedule until ctx ends, and returns nil then.
// A sweep that outlasts the next time delays it; none run side by side.
func (s *Sweeper) Run(ctx context.Context, schedule cron.Schedule) error {
	for pause(ctx, time.Until(schedule.Next(time.Now()))) == nil {
		result, err := s.Sweep(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			s.cfg.Logger.Error().Err(err).Stringer("result", result).Msg("sweep failed in part")
		case result.Overdue+result.Recovered+result.Buried > 0:
			s.cfg.Logger.Info().Stringer("result", result).Msg("swept")
		}
	}
	return nil
}
