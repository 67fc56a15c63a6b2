package chaos

import (
	"context"
	"fmt"
	"time"

	"github.com/tocsinhq/tocsin/internal/loop"
)

// How long the checker waits for a server that was killed shortly before, and how often it asks.
const (
	evidenceWithin = time.Minute
	evidencePause  = 200 * time.Millisecond
)

// patient has a read of evidence repeated until the servers answer. Every attempt drops the connections that failed.
func patient[T any](read func(context.Context) (T, error)) func(context.Context) (T, error) {
	return patientFor(evidenceWithin, read)
}

func patientFor[T any](within time.Duration, read func(context.Context) (T, error)) func(context.Context) (T, error) {
	return func(ctx context.Context) (T, error) {
		until := time.Now().Add(within)
		for {
			found, err := read(ctx)
			if err == nil || ctx.Err() != nil {
				return found, err
			}
			if time.Now().After(until) {
				return found, fmt.Errorf("asked for %s: %w", within, err)
			}
			_ = loop.Wait(ctx, evidencePause) // the next attempt sees the end of ctx
		}
	}
}
