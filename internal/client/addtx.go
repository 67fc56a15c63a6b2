package client

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

// AddTx stores rows in the caller's own transaction: they exist exactly if that commits. Those whose table is on another server than
// the transaction go through the outbox of the config; without one that is ErrOtherServer, or ErrLayout if the config's own database
// is wrong. Nothing is sent if an outbox has no place for a row. A duplicate leaves the transaction usable; after an error it must
// be rolled back.
func (c *Client) AddTx(ctx context.Context, tx Tx, rows []Row) (err error) {
	var wishes []wish
	for i := range rows {
		if !c.relays(rows[i].table) {
			continue
		}
		w, err := c.wishFor(&rows[i])
		if err != nil {
			return err
		}
		wishes = append(wishes, w)
	}
	for i := range rows {
		if r := &rows[i]; !r.Out.Relayed {
			if r.Out, err = c.addRowTx(ctx, tx, r); err != nil {
				return err
			}
		}
	}
	return c.put(ctx, execIn(tx), wishes...)
}

// addRowTx stores a row in its table.
func (c *Client) addRowTx(ctx context.Context, tx Tx, r *Row) (Added, error) {
	if err := c.mayAdd(ctx, r); err != nil {
		return Added{}, err
	}
	if r.unique.Asked {
		return c.uniqueTx(ctx, tx, r)
	}
	for range maxCollisions {
		added, err := c.addTx(ctx, tx, r)
		if !errors.Is(err, errCollision) {
			return added, err
		}
		r.id = c.IDs.Next(time.Now(), r.table)
	}
	return Added{}, fmt.Errorf("add task to %s: %d ids in a row are taken", c.Where(r.table), maxCollisions)
}

func (c *Client) addTx(ctx context.Context, tx Tx, r *Row) (Added, error) {
	text, micros := r.when.args()
	query, ours := c.ours(addSQL.Of(r.wide()), r.table)
	n, err := Execute(ctx, tx, query, r.addArgs(append([]any{text, micros, text, micros}, ours...)...)...)
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
func (c *Client) standingTx(ctx context.Context, tx Tx, r *Row) (Added, error) {
	if r.dedup == nil {
		return Added{}, errCollision
	}
	s := stored{dedup: r.dedup}
	query := c.layout.Render(byKeySQL.Of(c.wide(ctx, r.table)), r.table)
	err := QueryRow(ctx, tx, query, r.bizID, r.bizType, r.dedup)(&s.id, &s.status, &s.bizKey)
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
	switch mysql.ClassOf(err) {
	case mysql.Missing, mysql.Denied:
		if wrong := c.wrong(ctx, table); wrong != nil {
			return wrong
		}
		return Refuse(ErrOtherServer, "task table %s, not on this transaction's (%s): %s", c.isOn(table), err, UseOutbox)
	}
	if sqlState(err) != "" {
		return Refuse(ErrOtherServer, "this transaction is on PostgreSQL (%s): %s", err, UseOutbox)
	}
	return fmt.Errorf("%s %s: %w", tried, c.layout.Table(table), err)
}

// elsewhere says that the transaction's server has such a database, but not ours;
// or why ours is wrong.
func (c *Client) elsewhere(ctx context.Context, table int) error {
	if wrong := c.wrong(ctx, table); wrong != nil {
		return wrong
	}
	return Refuse(ErrOtherServer, "database %s on this transaction's server is retired or not that of cluster %q; task table %s: %s",
		c.layout.Database(c.layout.DatabaseOf(table)), c.want.Cluster, c.isOn(table), UseOutbox)
}

// UseOutbox says what to do about a task on another server.
const UseOutbox = "an outbox relays such a task, see `tocsin outbox apply` and Config.Outbox"

// isOn says "toc_3.task_0517 is on server db2".
func (c *Client) isOn(table int) string {
	return c.layout.Table(table) + " is on server " + c.homeOf(table).Name
}
