// Package schedule is the authority for when work that comes round again is
// done: at the times of a cron expression, one at a time.
//
// Work that outlasts the next time delays it; none runs side by side, and times
// that were missed are not made up for. Each returns no error; work reports its
// own.
package schedule

import (
	"context"
	"fmt"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/tocsinhq/tocsin/internal/wait"
)

// Schedule gives the next time after another, as cron.Schedule does: the zero
// time if there is none within five years.
type Schedule interface{ Next(time.Time) time.Time }

// Parse reads a cron expression of five fields, or @every 1m and the like. Its
// error says what a right one looks like. An expression that never fires, such as
// one of the 30th of February, is refused.
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

// Each calls work at each time of the schedule until ctx ends. A schedule that has
// come to its end, so that there is no next time, is waited for until then.
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
