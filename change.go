package tocsin

import (
	"context"
	"slices"

	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/outbox"
)

// Change says what became of the tasks that a Cancel or Reschedule was about.
type Change struct {
	Changed    int `json:"changed"`     // are now cancelled or rescheduled
	InDelivery int `json:"in_delivery"` // of these, were claimed or due: a delivery may be under way. It settles nothing any more
	Final      int `json:"final"`       // were done, cancelled or dead before; not changed

	// Relayed: it is in the outbox, and a relay makes the change after the commit; of a strict biz type once no delivery is
	// under way. What it changes is not known yet.
	Relayed bool `json:"relayed,omitempty"`
}

// Cancel cancels tasks that are not final, also while they are delivered:
// the delivery then settles nothing, and the handler's context ends within about
// two seconds with the cause ErrCancelled. Change.InDelivery counts tasks that may
// be in delivery. Of a strict biz type no delivery is under way after Cancel
// returned, and none starts: if one of the tasks is claimed, nothing is changed
// and the error is ErrInDelivery. Cancelling by an unknown job_id is ErrNotFound; by
// a biz type and biz_id without tasks it is a Change of zeros. A cancelled task's
// dedup_key is free again.
func (c *Client) Cancel(ctx context.Context, ref Ref) (Change, error) {
	return c.change(ctx, "cancel", client.NoContext(ctx), ref, func(ctx context.Context) (client.Change, error) {
		return c.client.Change(ctx, outbox.Cancel, ref.ref, client.When{})
	})
}

// CancelTx is Cancel in the caller's own transaction; see AddTx. Through an outbox
// it takes a biz type and biz_id, no job_id. What was added through an outbox must be cancelled through it:
// only there are both in order.
func (c *Client) CancelTx(ctx context.Context, tx Tx, ref Ref) (Change, error) {
	return c.change(ctx, "cancel_tx", client.NoTx(ctx, tx), ref, func(ctx context.Context) (client.Change, error) {
		return c.client.ChangeTx(ctx, tx, outbox.Cancel, ref.ref, client.When{})
	})
}

// Reschedule gives tasks that are not final another action time, also while they
// are delivered, as Cancel does; the cause is ErrRescheduled. Their attempts begin
// anew, and so does their idempotency key (Info.Key). In another process the next
// delivery may start while the handler of the former one has not returned. Errors
// are those of Cancel.
func (c *Client) Reschedule(ctx context.Context, ref Ref, when When) (Change, error) {
	return c.change(ctx, "reschedule", client.NoContext(ctx), ref, func(ctx context.Context) (client.Change, error) {
		return c.client.Change(ctx, outbox.Reschedule, ref.ref, when.when)
	})
}

// RescheduleTx is Reschedule in the caller's own transaction; see CancelTx.
func (c *Client) RescheduleTx(ctx context.Context, tx Tx, ref Ref, when When) (Change, error) {
	return c.change(ctx, "reschedule_tx", client.NoTx(ctx, tx), ref, func(ctx context.Context) (client.Change, error) {
		return c.client.ChangeTx(ctx, tx, outbox.Reschedule, ref.ref, when.when)
	})
}

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
		if err := client.NoContext(ctx); err != nil {
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

// change is a call that changes tasks: run, around which stand the functions of Config.UseChanges. refused says why the call
// can't be made.
func (c *Client) change(ctx context.Context, op string, refused error, ref Ref, run func(context.Context) (client.Change, error)) (changed Change, err error) {
	defer c.observe(op, c.begin(), &err)
	if refused != nil {
		return Change{}, refused
	}
	if c.changes == nil {
		done, err := run(ctx)
		return Change(done), err
	}
	call := &Changing{Op: op, JobID: JobID(ref.ref.ID), BizType: ref.ref.BizType, BizID: ref.ref.BizID, BizKey: ref.ref.BizKey}
	call.run = func(ctx context.Context) error {
		done, err := run(ctx)
		call.Done = Change(done)
		return err
	}
	err = c.changes(ctx, call)
	return call.Done, err
}
