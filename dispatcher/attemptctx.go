package dispatcher

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
)

// tasksKey is the key of a delivery's tasks among the values of its context.
type tasksKey struct{}

// Tasks returns the tasks that are being delivered under ctx, a handler's context or
// one derived from it; nil for any other context, and once the handler has returned.
func Tasks(ctx context.Context) []tocsin.Info {
	tasks, _ := ctx.Value(tasksKey{}).([]tocsin.Info)
	return tasks
}

// attemptContext is the context of one delivery. Most handlers never wait for
// it, so it becomes a real one, with a timer and a place among its parent's
// children, only when somebody first asks for more than the deadline. Whether a
// delivery is over its time-out does not hang on it: see kind.expire.
type attemptContext struct {
	parent   context.Context
	deadline time.Time
	resent   prometheus.Counter // of secondResent

	mu     sync.Mutex
	tasks  []tocsin.Info   // the worker's own slice; nil after the delivery
	output *client.Outputs // nil: none is kept
	full   context.Context // nil until it is needed
	stop   context.CancelCauseFunc
	off    map[tocsin.JobID]error // the tasks that were called off, and why
}

// Deadline is the end of the delivery time-out.
func (c *attemptContext) Deadline() (time.Time, bool) { return c.deadline, true }

// Done is closed at the deadline, when the node stops, when the tasks are called off, and after the delivery.
func (c *attemptContext) Done() <-chan struct{} { return c.real().Done() }

// Value returns the tasks, what keeps their outputs, what counts a request that was sent again, or what the real context does:
// that is also how the standard library finds out that its own kind of context is
// behind this one.
func (c *attemptContext) Value(key any) any {
	switch key {
	case tasksKey{}:
		c.mu.Lock()
		defer c.mu.Unlock()
		return slices.Clone(c.tasks)
	case client.OutputKey:
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.output
	case client.ResentKey:
		return c.resent.Inc
	}
	return c.real().Value(key)
}

// Err tells without a real context as long as there is nothing to tell.
func (c *attemptContext) Err() error {
	c.mu.Lock()
	calm := c.full == nil && c.tasks != nil && c.cause() == nil
	c.mu.Unlock()
	if calm && c.parent.Err() == nil && time.Now().Before(c.deadline) {
		return nil
	}
	return c.real().Err()
}

func (c *attemptContext) real() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.full == nil {
		timed, cancel := context.WithDeadline(c.parent, c.deadline)
		full, stop := context.WithCancelCause(timed)
		c.full, c.stop = full, func(cause error) { stop(cause); cancel() }
		if cause := c.cause(); cause != nil || c.tasks == nil {
			c.stop(cause)
		}
	}
	return c.full
}

// end cancels the context, for good.
func (c *attemptContext) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tasks, c.output = nil, nil
	if c.stop != nil {
		c.stop(nil)
	}
}
