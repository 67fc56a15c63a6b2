package node

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/dispatcher"
	"github.com/tocsinhq/tocsin/internal/loglimit"
)

// Outcome is how a delivery ended, for Config.OnOutcome.
type Outcome struct {
	Verb     tocsin.Verb   // Completed, Retried, Snoozed, Buried (the task is dead: Bury, or its last attempt failed) or Skipped (a run that its schedule does not want)
	Reason   string        // Retried, Buried, Skipped: what is stored as last_error
	Next     time.Time     // Retried, Snoozed: the next action time, by the server's clock
	Lateness time.Duration // the start minus the action time, by the server's clock
	Took     time.Duration // from the start until the handler returned or the time-out passed
	TimedOut bool          // the handler had not returned by then; if it succeeds later and before the next attempt, the task is completed without another call
}

// observer returns what tells the hook of each delivery; nil without a hook. The hook's
// context has the values of ctx, but does not end.
func (c Config) observer(ctx context.Context) func(dispatcher.Delivery) {
	if c.OnOutcome == nil {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	var limit loglimit.Limit
	return func(d dispatcher.Delivery) {
		defer func() {
			if p := recover(); p != nil {
				limit.Of(c.Logger, "hook").Error("OnOutcome panicked: the outcome stands",
					"biz_type", d.Task.BizType, "panic", p, "stack", string(debug.Stack()))
			}
		}()
		c.OnOutcome(ctx, d.Task, Outcome{Verb: d.Verb, Reason: d.Reason, Next: d.Next, Lateness: d.Lateness, Took: d.Took, TimedOut: d.TimedOut})
	}
}
