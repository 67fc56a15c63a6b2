package tocsin

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

// AddTx stores a task in the caller's own transaction: it exists exactly if that
// commits. If the task's table is on another server than the transaction, the task
// goes through the outbox of Config.Outbox: Relayed is set, JobID is 0, and its
// existence by Dedup is decided later. Without an outbox that is ErrOtherServer,
// or ErrLayout if the config's own database is wrong. Any session will do, whatever its time zone, isolation
// level and character set. A duplicate leaves the transaction usable; after any
// other error roll it back. MariaDB's 1020 (a row is newer than the snapshot) and
// 1213 (deadlock) mean: repeat the transaction.
func (c *Client) AddTx(ctx context.Context, tx Tx, t NewTask) (added Added, err error) {
	defer c.observeAdd("add_tx", c.begin(), t, &added, &err)
	if err := noTx(ctx, tx); err != nil {
		return Added{}, err
	}
	if c.use != nil {
		return c.addThrough(ctx, "add_tx", t, func(ctx context.Context, t NewTask) (Added, error) { return c.addTaskTx(ctx, tx, t) })
	}
	return c.addTaskTx(ctx, tx, t)
}

// addTaskTx is AddTx without Config.Use.
func (c *Client) addTaskTx(ctx context.Context, tx Tx, t NewTask) (Added, error) {
	r, err := c.row(ctx, t)
	if err != nil {
		return Added{}, err
	}
	if c.relays(r.table) {
		if err := c.noUnique(&r); err != nil {
			return Added{}, err
		}
		return relayed(c.put(ctx, execIn(tx), wishFor(t, r)))
	}
	return c.addRowTx(ctx, tx, &r)
}

// relayed is what AddTx returns for a task in an outbox.
func relayed(err error) (Added, error) { return Added{Relayed: err == nil}, err }

// addRowTx stores a row in its table.
func (c *Client) addRowTx(ctx context.Context, tx Tx, r *row) (Added, error) {
	if r.unique.asked {
		return c.uniqueTx(ctx, tx, r)
	}
	for range maxCollisions {
		added, err := c.addTx(ctx, tx, r)
		if !errors.Is(err, errCollision) {
			return added, err
		}
		r.id = c.ids.next(time.Now(), r.table)
	}
	return Added{}, fmt.Errorf("add task to %s: %d ids in a row are taken", c.where(r.table), maxCollisions)
}

func (c *Client) addTx(ctx context.Context, tx Tx, r *row) (Added, error) {
	text, micros := r.when.args()
	query, ours := c.ours(addSQL, r.table)
	n, err := execute(ctx, tx, query, r.addArgs(append([]any{text, micros, text, micros}, ours...)...)...)
	switch {
	case mysql.ClassOf(err) == mysql.Duplicate:
		return c.standingTx(ctx, tx, r)
	case err != nil:
		return Added{}, c.inTx(ctx, "add task to", r.table, err)
	case n == 0:
		return Added{}, c.elsewhere(ctx, r.table)
	}
	if err := c.ring(ctx, tx, r.when, r.table, r.id); err != nil {
		return Added{}, c.inTx(ctx, "ring for task in", r.table, err)
	}
	return Added{JobID: r.id}, nil
}

// standingTx finds the task that holds r's dedup_key. If there is none, the id
// is what stood in the way.
func (c *Client) standingTx(ctx context.Context, tx Tx, r *row) (Added, error) {
	if r.dedup == nil {
		return Added{}, errCollision
	}
	s := stored{dedup: r.dedup}
	query := c.layout.render(byKeySQL, r.table)
	err := queryRow(ctx, tx, query, r.bizID, r.bizType, r.dedup)(&s.id, &s.status, &s.bizKey)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return Added{}, errCollision
	case err != nil:
		return Added{}, c.inTx(ctx, "read back from", r.table, err)
	}
	return r.existing(&s)
}

// inTx words an error of a statement in the caller's transaction. A table that
// is not there, or not for this user, is on another server, unless its database
// is wrong where the config has it.
func (c *Client) inTx(ctx context.Context, tried string, table int, err error) error {
	switch class := mysql.ClassOf(err); {
	case mysql.ColumnMissing(err):
		return cmp.Or(c.wrong(ctx, table), err)
	case class == mysql.Missing, class == mysql.Denied:
		if wrong := c.wrong(ctx, table); wrong != nil {
			return wrong
		}
		return refuse(ErrOtherServer, "task table %s, not on this transaction's (%s): %s", c.isOn(table), err, useOutbox)
	}
	if sqlState(err) != "" {
		return refuse(ErrOtherServer, "this transaction is on PostgreSQL (%s): %s", err, useOutbox)
	}
	return fmt.Errorf("%s %s: %w", tried, c.layout.Table(table), err)
}

// elsewhere says that the transaction's server has such a database, but not ours;
// or why ours is wrong.
func (c *Client) elsewhere(ctx context.Context, table int) error {
	if wrong := c.wrong(ctx, table); wrong != nil {
		return wrong
	}
	return refuse(ErrOtherServer, "database %s on this transaction's server is retired or not that of cluster %q; task table %s: %s",
		c.layout.Database(c.layout.DatabaseOf(table)), c.want.Cluster, c.isOn(table), useOutbox)
}

// useOutbox says what to do.
const useOutbox = "an outbox relays such a task, see `tocsin outbox apply` and Config.Outbox"

// isOn says "toc_3.task_0517 is on server db2".
func (c *Client) isOn(table int) string {
	return c.layout.Table(table) + " is on server " + c.home[c.layout.DatabaseOf(table)].Name
}
