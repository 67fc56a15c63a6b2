package operator

import (
	"context"
	"errors"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
)

// Redrive makes a dead task pending and due at once, and returns it. Its attempts begin anew, and so does its idempotency
// key. It returns ErrStatus, and the task as it is, if the task is not dead, and tocsin.ErrNotFound if there is none.
func (o *Operator) Redrive(ctx context.Context, id tocsin.JobID) (tocsin.Info, error) {
	return o.redrive(ctx, id, false)
}

// RedriveSameKey is Redrive with the idempotency key that the task has: a receiver that remembers keys takes the task once.
func (o *Operator) RedriveSameKey(ctx context.Context, id tocsin.JobID) (tocsin.Info, error) {
	return o.redrive(ctx, id, true)
}

func (o *Operator) redrive(ctx context.Context, id tocsin.JobID, same bool) (tocsin.Info, error) {
	return o.rewrite(ctx, id, func() (bool, error) { return o.tables.Redrive(ctx, id, same) }, "only a dead task can be redriven")
}

// Bury makes a task dead that is not final, with the reason as its last error, cut at tocsin.MaxError characters, and returns
// it. A delivery that is under way goes on, and its success still completes the task; of a strict biz type nothing is changed
// then, and the error is tocsin.ErrInDelivery. It returns ErrStatus, and the task as it is, if the task is final, and
// tocsin.ErrNotFound if there is none.
func (o *Operator) Bury(ctx context.Context, id tocsin.JobID, reason string) (tocsin.Info, error) {
	info, err := o.rewrite(ctx, id, func() (bool, error) { return o.tables.Bury(ctx, id, reason) }, "only a task that is not final can be buried")
	if errors.Is(err, ErrStatus) && info.Status == tocsin.Claimed {
		err = refuse(tocsin.ErrInDelivery, "task %s is in delivery, and biz type %s is strict: nothing is changed, try again later", id, info.BizType)
	}
	return info, err
}

// rewrite changes one task and reads it again.
func (o *Operator) rewrite(ctx context.Context, id tocsin.JobID, write func() (bool, error), unfit string) (tocsin.Info, error) {
	if o.tables.ServerOf(id.Table()) < 0 || id == 0 {
		return tocsin.Info{}, refuse(tocsin.ErrNotFound, "no task %s", id)
	}
	written, err := write()
	if err != nil {
		return tocsin.Info{}, err
	}
	info, err := o.get(ctx, id)
	if err == nil && !written {
		err = refuse(ErrStatus, "task %s is %s: %s", id, info.Status, unfit)
	}
	return info, err
}

// get reads one task.
func (o *Operator) get(ctx context.Context, id tocsin.JobID) (tocsin.Info, error) {
	server := o.tables.ServerOf(id.Table())
	rows, err := o.tables.Look(ctx, server, []tocsin.JobID{id})
	if err != nil {
		return tocsin.Info{}, err
	}
	if len(rows) == 0 {
		return tocsin.Info{}, refuse(tocsin.ErrNotFound, "no task %s in %s on %s", id,
			o.tables.Layout().Table(id.Table()), o.tables.Servers()[server])
	}
	policies, err := biztype.Load(ctx, o.cfg)
	return o.info(policies, rows[0]), err
}
