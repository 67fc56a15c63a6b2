package mysql

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// retryFor bounds Retry. It is longer than the lock wait of a session, so that
// at least one repeat follows a lock wait time-out.
const retryFor = 10 * time.Second

// Retry runs op until it succeeds, fails for good or ten seconds have passed,
// with exponential back-off from 2 ms to 500 ms and jitter. Contended errors
// alone are repeated: after a lost connection only op's caller can know whether
// the write happened. Never use it inside a caller's transaction: the server
// has rolled that back.
func Retry(ctx context.Context, op func() error) error { return RetryFor(ctx, retryFor, op) }

// RetryFor is Retry with a bound of its own.
func RetryFor(ctx context.Context, bound time.Duration, op func() error) error {
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := op()
		if err != nil && ClassOf(err) != Contended {
			return struct{}{}, backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(newBackOff()), backoff.WithMaxElapsedTime(bound))
	return err
}

func newBackOff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval = 2 * time.Millisecond
	b.MaxInterval = 500 * time.Millisecond
	return b
}
