// Package wait is how a goroutine waits for a time to pass: not a moment longer
// than its context lasts. It starts nothing, and leaves no timer behind.
package wait

import (
	"context"
	"time"
)

// For returns nil after d, or ctx's error as soon as ctx ends. A d that is not
// above 0 is over at once.
func For(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// Until is For until at.
func Until(ctx context.Context, at time.Time) error { return For(ctx, time.Until(at)) }
