package loop

import (
	"context"
	"time"
)

// Wait returns nil after d, or ctx's error as soon as ctx ends. It starts nothing, and leaves no timer behind. A d that is not above 0
// is over at once.
func Wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// WaitUntil is Wait until at.
func WaitUntil(ctx context.Context, at time.Time) error { return Wait(ctx, time.Until(at)) }
