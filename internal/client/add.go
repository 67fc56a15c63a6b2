package client

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

// maxCollisions bounds the ids that are tried for one task. The next id is
// taken already with a chance of some per mille at most.
const maxCollisions = 16

// nearMargin is how wrong this machine's clock may be before a task that is due
// within the horizon waits for the regular scan instead of ringing the doorbell.
const nearMargin = 10 * time.Minute

// Add stores a row in a transaction of its own. An error means that it is not there; one that wraps ErrUnknownOutcome comes with
// the job_id that it would have. A lost connection is repeated with the same job_id and never stores the task twice.
func (c *Client) Add(ctx context.Context, r *Row) (Added, error) {
	s, err := c.serverOf(ctx, r.table)
	if err != nil {
		return Added{}, err
	}
	return c.addRow(ctx, s, r)
}

func (c *Client) addRow(ctx context.Context, s *server, r *Row) (Added, error) {
	return c.underFreeID(r, func() (Added, error) { return c.add(ctx, s, r) })
}

// underFreeID stores a row, under another id if its own is taken.
func (c *Client) underFreeID(r *Row, add func() (Added, error)) (Added, error) {
	for range maxCollisions {
		added, err := add()
		if !errors.Is(err, errCollision) {
			return added, err
		}
		r.id = c.IDs.Next(time.Now(), r.table)
	}
	return Added{}, fmt.Errorf("add task to %s: %d ids in a row are taken", c.Where(r.table), maxCollisions)
}

// errCollision says that another task has the id; it never leaves the package.
var errCollision = errors.New("job_id is taken")

// add stores a row under its id, over as many connections as it takes.
func (c *Client) add(ctx context.Context, s *server, r *Row) (Added, error) {
	t := newTries()
	for {
		added, sent, err := c.addOnce(ctx, s, r, t.maybe)
		if err == nil || errors.Is(err, errCollision) || errors.Is(err, ErrKeyCollision) {
			return added, err
		}
		if !t.again(ctx, sent, err) {
			return Added{JobID: unsureID(t.maybe, r.id)}, t.failure(r.id, c.Where(r.table), c.moved(ctx, r.table, err))
		}
	}
}

func unsureID(maybe bool, id uint64) uint64 {
	if maybe {
		return id
	}
	return 0
}

// addOnce stores a row over one connection. maybe says that an earlier try may
// have stored it.
func (c *Client) addOnce(ctx context.Context, s *server, r *Row, maybe bool) (added Added, sent bool, err error) {
	if r.unique.Asked {
		return c.uniqueOnce(ctx, s, r, maybe)
	}
	conn, err := s.DB.Conn(ctx)
	if err != nil {
		return Added{}, false, err
	}
	defer conn.Close()
	if err := s.admit(ctx, conn, c.layout.DatabaseOf(r.table)); err != nil {
		return Added{}, false, err
	}
	err = mysql.Retry(ctx, func() error { return c.insert(ctx, conn, r) })
	switch mysql.ClassOf(err) {
	case mysql.OK:
		return Added{JobID: r.id}, true, nil
	case mysql.Duplicate:
		added, err = c.standing(ctx, conn, r, maybe)
	}
	return added, true, err
}

// insert is one transaction: the row and, if it is near, its ring.
func (c *Client) insert(ctx context.Context, conn *sql.Conn, r *Row) error {
	if !r.when.absolute() {
		in := r.when.in.Microseconds()
		if r.when.in < c.horizon {
			return c.transact(ctx, conn, r, addSoonSQL, r.addArgs(in, in, r.table, r.id, r.bizType, in))
		}
		_, err := Execute(ctx, conn, c.layout.Render(addInSQL, r.table), r.addArgs(in, in)...)
		return err
	}
	at := r.when.at.Format(TimeForm)
	if c.near(r.when) {
		return c.transact(ctx, conn, r, addNearSQL, r.addArgs(at, at, r.table, r.id))
	}
	_, err := Execute(ctx, conn, c.layout.Render(addAtSQL, r.table), r.addArgs(at, at)...)
	return err
}

// transact sends a packet that is one transaction.
func (c *Client) transact(ctx context.Context, conn *sql.Conn, r *Row, packet string, args []any) error {
	_, err := mysql.ExecMulti(ctx, conn, c.layout.Render(packet, r.table), args...)
	if err != nil {
		mysql.Rollback(ctx, conn) // the packet stopped half-way
	}
	return err
}

// standing finds what stands in the way of r: itself, stored by a try whose
// answer was lost; the task that holds its dedup_key; or a stranger with its id.
func (c *Client) standing(ctx context.Context, conn *sql.Conn, r *Row, maybe bool) (Added, error) {
	found, err := c.readBack(ctx, conn, []*Row{r})
	if err != nil {
		return Added{}, err
	}
	if maybe && found.has(r) {
		return Added{JobID: r.id}, nil
	}
	if s := found.holder(r); s != nil {
		return r.existing(s)
	}
	return Added{}, errCollision
}

// near reports whether the doorbell may have to be rung for a task of At: the
// database decides, as only its clock counts.
func (c *Client) near(w When) bool { return w.Near(c.horizon) }

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
	if len(wishes) == 0 {
		return nil
	}
	return c.put(ctx, execIn(tx), wishes...)
}

// addRowTx stores a row in its table.
func (c *Client) addRowTx(ctx context.Context, tx Tx, r *Row) (Added, error) {
	add := c.addTx
	if r.unique.Asked {
		add = c.uniqueTx
	}
	return c.underFreeID(r, func() (Added, error) { return add(ctx, tx, r) })
}

func (c *Client) addTx(ctx context.Context, tx Tx, r *Row) (Added, error) {
	text, micros := r.when.Args()
	query, ours := c.ours(addSQL, r.table)
	n, err := Execute(ctx, tx, query, r.addArgs(append([]any{text, micros, text, micros}, ours...)...)...)
	switch {
	case mysql.ClassOf(err) == mysql.Duplicate:
		return c.standingTx(ctx, tx, r)
	case err != nil:
		return Added{}, c.inTx(ctx, tx, "add task to", r.table, err)
	case n == 0:
		return Added{}, c.elsewhere(ctx, r.table)
	}
	if err := c.ring(ctx, tx, r.when, r.table, r.id); err != nil {
		return Added{}, c.inTx(ctx, tx, "ring for task in", r.table, err)
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
	query := c.layout.Render(byKeySQL, r.table)
	err := QueryRow(ctx, tx, query, r.bizID, r.bizType, r.dedup)(&s.id, &s.status, &s.bizKey)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return Added{}, errCollision
	case err != nil:
		return Added{}, c.inTx(ctx, tx, "read back from", r.table, err)
	}
	return r.existing(&s)
}

// inTx words an error of a statement in the caller's transaction. A table that
// is not there, or not for this user, is on another server, unless its database
// is wrong where the config has it. Of our own database the user lacks a right.
func (c *Client) inTx(ctx context.Context, tx Tx, tried string, table int, err error) error {
	switch class := mysql.ClassOf(err); {
	case class == mysql.Denied && c.takesTasks(ctx, tx, table) == nil:
	case class == mysql.Missing, class == mysql.Denied, mysql.ColumnMissing(err): // a table of that name there may be older
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
