// Package schedule is the authority for when work that comes round again is
// done: at the times of a cron expression, one at a time.
//
// Work that outlasts the next time delays it; none runs side by side, and times
// that were missed are not made up for. It fails never: what goes wrong in the
// work is the work's to tell.
package schedule

import (
	"context"
	"fmt"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/tocsinhq/tocsin/internal/wait"
)

// Schedule gives the next time after another, as cron.Schedule does.
type Schedule interface{ Next(time.Time) time.Time }

// Parse reads a cron expression of five fields, or @every 1m and the like. Its
// error says what a right one looks like.
func Parse(expression string) (Schedule, error) {
	s, err := cron.ParseStandard(expression)
	if err != nil {
		return nil, fmt.Errorf("cron expression %q: %w: want five fields such as \"*/5 * * * *\", or \"@every 1m\"", expression, err)
	}
	return s, nil
}

// Each calls work at each time of the schedule until ctx ends.
func Each(ctx context.Context, s Schedule, work func(context.Context)) {
	for wait.Until(ctx, s.Next(time.Now())) == nil {
		work(ctx)
	}
}
