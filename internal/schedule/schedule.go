// Package schedule is the authority for when recurring work is done: at the times of
// a cron expression, one at a time.
//
// Work that runs past the next time delays it. Work never overlaps, and missed times
// are not made up for. Each returns no error; work reports its own.
package schedule

import (
	"context"
	"fmt"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/tocsinhq/tocsin/internal/wait"
)

// Schedule returns the next time after another, as cron.Schedule does: the zero time
// if there is none within five years.
type Schedule interface{ Next(time.Time) time.Time }

// Parse reads a cron expression of five fields, or one like @every 1m. Its error
// shows a correct example. An expression that never fires, such as one of the 30th of
// February, is refused.
func Parse(expression string) (Schedule, error) {
	s, err := cron.ParseStandard(expression)
	if err != nil {
		return nil, fmt.Errorf("cron expression %q: %w: want five fields such as \"*/5 * * * *\", or \"@every 1m\"", expression, err)
	}
	if s.Next(time.Now()).IsZero() {
		return nil, fmt.Errorf("cron expression %q never fires within five years", expression)
	}
	return s, nil
}

// Each calls work at each time of the schedule until ctx ends. After the last time of
// a schedule it waits for the end of ctx.
func Each(ctx context.Context, s Schedule, work func(context.Context)) {
	for {
		at := s.Next(time.Now())
		if at.IsZero() {
			<-ctx.Done()
			return
		}
		if wait.Until(ctx, at) != nil {
			return
		}
		work(ctx)
	}
}
