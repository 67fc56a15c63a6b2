package upkeep

import (
	"context"
	"fmt"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/tocsinhq/tocsin/internal/wait"
)

// Times are when recurring work is done. Next returns the next time after another, as that of cron.Schedule does: the zero
// time if there is none within five years.
type Times interface{ Next(time.Time) time.Time }

// ParseTimes reads a cron expression of five fields, or one like @every 1m. Its error
// shows a correct example. An expression that never fires, such as one of the 30th of
// February, is refused.
func ParseTimes(expression string) (Times, error) {
	s, err := cron.ParseStandard(expression)
	if err != nil {
		return nil, fmt.Errorf("cron expression %q: %w: want five fields such as \"*/5 * * * *\", or \"@every 1m\"", expression, err)
	}
	if s.Next(time.Now()).IsZero() {
		return nil, fmt.Errorf("cron expression %q never fires within five years", expression)
	}
	return s, nil
}

// Each calls work at each of the times until ctx ends. After the last one it waits for the end of ctx. Work that runs past the
// next time delays it: work never overlaps, and missed times are not made up for.
func Each(ctx context.Context, times Times, work func(context.Context)) {
	for {
		at := times.Next(time.Now())
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
