package tocsin

import (
	"context"
	"slices"
)

// ChangeFunc makes a change: it returns the error of the call.
type ChangeFunc func(ctx context.Context, call *Changing) error

// Changing is a call that changes tasks or schedules, as the functions of Config.UseChanges see it. It names what the call
// names: a job_id, a biz type with a biz_id or key, or a schedule. What it does not name is zero.
type Changing struct {
	Op       string // cancel, cancel_tx, reschedule or reschedule_tx; schedule_ and apply, create, update, edit, activate, deactivate, run_now, backfill or delete
	JobID    JobID
	BizType  string
	BizID    uint64
	BizKey   string
	Schedule string // name of the schedule; "": Op is about tasks, about several schedules, or about one by its id
	Done     Change // of cancel and reschedule, when next has returned

	run func(context.Context) error
}

// chainChanges wraps the end of all calls in the functions of Config.UseChanges; nil if there are none.
func chainChanges(use []func(ChangeFunc) ChangeFunc) ChangeFunc {
	if len(use) == 0 {
		return nil
	}
	change := ChangeFunc(func(ctx context.Context, call *Changing) error {
		if err := noContext(ctx); err != nil {
			return err
		}
		return call.run(ctx)
	})
	for _, u := range slices.Backward(use) {
		change = u(change)
	}
	return change
}

// Changes returns what runs a call through the functions of UseChanges, for packages that change what is not a task.
func (c Config) Changes() func(ctx context.Context, call Changing, run func(context.Context) error) error {
	change := chainChanges(c.UseChanges)
	return func(ctx context.Context, call Changing, run func(context.Context) error) error {
		if change == nil {
			return run(ctx)
		}
		call.run = run
		return change(ctx, &call)
	}
}

// changeThrough changes tasks through the functions of Config.UseChanges.
func (c *Client) changeThrough(ctx context.Context, op string, ref Ref, run func(context.Context) (Change, error)) (Change, error) {
	if c.changes == nil {
		return run(ctx)
	}
	call := &Changing{Op: op, JobID: ref.id, BizType: ref.bizType, BizID: ref.bizID, BizKey: ref.bizKey}
	call.run = func(ctx context.Context) (err error) {
		call.Done, err = run(ctx)
		return err
	}
	err := c.changes(ctx, call)
	return call.Done, err
}
