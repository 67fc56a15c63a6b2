package contest

import (
	"context"
	"sync"
	"sync/atomic"
)

// Crew is the goroutines that deliver for a System between a Start and a Pause.
// The zero value is paused. Begin, Go and End are for one goroutine.
type Crew struct {
	working sync.WaitGroup
	end     context.CancelFunc    // nil while paused
	failed  atomic.Pointer[error] // of the first that failed
}

// Begin returns the context of those that are about to work, which outlasts ctx and
// ends with End. None are at work.
func (c *Crew) Begin(ctx context.Context) (run context.Context) {
	run, c.end = context.WithCancel(context.WithoutCancel(ctx))
	return run
}

// Go has one more work. What it returns is its failure.
func (c *Crew) Go(work func() error) {
	c.working.Go(func() {
		if err := work(); err != nil {
			c.failed.CompareAndSwap(nil, &err)
		}
	})
}

// End ends the context and waits for all. It may be called again.
func (c *Crew) End() error {
	if c.end != nil {
		c.end()
		c.working.Wait()
		c.end = nil
	}
	return c.Failure()
}

// Failure is why the first that failed has ended, nil while all is well. Safe for
// concurrent use.
func (c *Crew) Failure() error {
	if err := c.failed.Load(); err != nil {
		return *err
	}
	return nil
}
