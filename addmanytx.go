package tocsin

import (
	"context"
)

// AddManyTx is AddTx for many tasks: all of them exist exactly if the caller's transaction commits. It returns what became
// of each, in the order given. Nothing is sent if a task is wrong in itself; after any other error roll the transaction
// back. Tasks that go through an outbox are written a few hundred to a statement, others one by one.
func (c *Client) AddManyTx(ctx context.Context, tx Tx, tasks []NewTask) (added []Added, err error) {
	defer c.observeAll("add_many_tx", c.begin(), tasks, &added, &err)
	if err := noTx(ctx, tx); err != nil {
		added = make([]Added, len(tasks))
		return added, failAll(added, err)
	}
	if c.use != nil && len(tasks) > 0 {
		return c.allThrough(ctx, "add_many_tx", tasks, func(ctx context.Context, tasks []NewTask) ([]Added, error) { return c.addTasksTx(ctx, tx, tasks) })
	}
	return c.addTasksTx(ctx, tx, tasks)
}

// addTasksTx is AddManyTx without Config.Use.
func (c *Client) addTasksTx(ctx context.Context, tx Tx, tasks []NewTask) (added []Added, err error) {
	added = make([]Added, len(tasks))
	rows := make([]row, len(tasks))
	for i, t := range tasks {
		r, err := c.row(ctx, t)
		if err == nil && c.relays(r.table) {
			err = c.noUnique(&r)
		}
		if err != nil {
			return added, failAll(added, err)
		}
		rows[i] = r
	}
	var relayed []wish
	for i, t := range tasks {
		if c.relays(rows[i].table) {
			relayed = append(relayed, wishFor(t, rows[i]))
			added[i] = Added{Relayed: true}
			continue
		}
		if added[i], err = c.addRowTx(ctx, tx, &rows[i]); err != nil {
			return added, failAll(added, err)
		}
	}
	if err := c.put(ctx, execIn(tx), relayed...); err != nil {
		return added, failAll(added, err)
	}
	return added, nil
}

// failAll notes that no task exists, as the transaction can't be committed.
func failAll(added []Added, err error) error {
	for i := range added {
		added[i] = Added{Err: err}
	}
	return err
}
