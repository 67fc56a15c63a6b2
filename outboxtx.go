package tocsin

import (
	"context"
	"time"

	"github.com/tocsinhq/tocsin/internal/outboxrow"
)

// Exec runs one statement in a transaction of the caller's.
type Exec func(ctx context.Context, statement string, args ...any) error

// OutboxTx adds, cancels and reschedules tasks in a transaction that is not one of database/sql: all of it goes through
// the outbox of Config.Outbox, with the results and errors of AddTx, AddManyTx, CancelTx and RescheduleTx. Package
// tocsinpg makes one for a transaction of pgx. It is for the goroutines that may use the transaction.
type OutboxTx struct {
	client *Client
	exec   Exec
}

// OutboxTx makes an OutboxTx of what runs statements in a transaction. Without an outbox its calls are ErrOtherServer, and
// with one that has Beside ErrInvalid: AddTx stores some tasks directly then, and their order would be lost.
func (c *Client) OutboxTx(exec Exec) OutboxTx { return OutboxTx{c, exec} }

// usable refuses a call that can't go through an outbox.
func (o OutboxTx) usable(ctx context.Context) error {
	if err := noContext(ctx); err != nil {
		return err
	}
	switch of := o.client.outbox; {
	case of.Table == "":
		return refuse(ErrOtherServer, "no outbox: %s", useOutbox)
	case of.Beside != "":
		return refuse(ErrInvalid, "outbox %s is beside server %s: use the transactions of database/sql", of.Table, of.Beside)
	}
	return nil
}

// Add is AddTx.
func (o OutboxTx) Add(ctx context.Context, t NewTask) (added Added, err error) {
	c := o.client
	defer c.observeAdd("add_tx", c.begin(), t, &added, &err)
	if err := o.usable(ctx); err != nil {
		return Added{}, err
	}
	if c.use != nil {
		return c.addThrough(ctx, "add_tx", t, o.addTask)
	}
	return o.addTask(ctx, t)
}

// addTask is Add without Config.Use.
func (o OutboxTx) addTask(ctx context.Context, t NewTask) (Added, error) {
	r, err := o.client.row(ctx, t)
	if err == nil {
		err = o.client.noUnique(&r)
	}
	if err != nil {
		return Added{}, err
	}
	return relayed(o.client.put(ctx, o.exec, wishFor(t, r)))
}

// AddMany is AddManyTx.
func (o OutboxTx) AddMany(ctx context.Context, tasks []NewTask) (added []Added, err error) {
	c := o.client
	defer c.observeAll("add_many_tx", c.begin(), tasks, &added, &err)
	if err := o.usable(ctx); err != nil {
		added = make([]Added, len(tasks))
		return added, failAll(added, err)
	}
	if c.use != nil && len(tasks) > 0 {
		return c.allThrough(ctx, "add_many_tx", tasks, o.addTasks)
	}
	return o.addTasks(ctx, tasks)
}

// addTasks is AddMany without Config.Use.
func (o OutboxTx) addTasks(ctx context.Context, tasks []NewTask) (added []Added, err error) {
	added = make([]Added, len(tasks))
	wishes := make([]wish, len(tasks))
	for i, t := range tasks {
		r, err := o.client.row(ctx, t)
		if err == nil {
			err = o.client.noUnique(&r)
		}
		if err != nil {
			return added, failAll(added, err)
		}
		wishes[i], added[i] = wishFor(t, r), Added{Relayed: true}
	}
	if err := o.client.put(ctx, o.exec, wishes...); err != nil {
		return added, failAll(added, err)
	}
	return added, nil
}

// Cancel is CancelTx.
func (o OutboxTx) Cancel(ctx context.Context, ref Ref) (done Change, err error) {
	c := o.client
	defer c.observe("cancel_tx", c.begin(), &err)
	return o.change(ctx, "cancel_tx", ref, wish{op: outboxrow.Cancel})
}

// Reschedule is RescheduleTx.
func (o OutboxTx) Reschedule(ctx context.Context, ref Ref, when When) (done Change, err error) {
	c := o.client
	defer c.observe("reschedule_tx", c.begin(), &err)
	if err := when.valid(time.Now()); err != nil {
		return Change{}, err
	}
	return o.change(ctx, "reschedule_tx", ref, wish{op: outboxrow.Reschedule, when: when})
}

func (o OutboxTx) change(ctx context.Context, op string, ref Ref, w wish) (Change, error) {
	if err := o.usable(ctx); err != nil {
		return Change{}, err
	}
	if ref.id == 0 && ref.bizID == 0 && ref.err == nil {
		return Change{}, refuse(ErrInvalid, "%s: no job_id and no biz_id", w.op)
	}
	return o.client.changeThrough(ctx, op, ref, func(ctx context.Context) (Change, error) { return o.client.relayRef(ctx, o.exec, ref, w) })
}
