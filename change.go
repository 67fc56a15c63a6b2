package tocsin

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/outboxrow"
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
func (c *Client) Cancel(ctx context.Context, ref Ref) (done Change, err error) {
	defer c.observe("cancel", c.begin(), &err)
	if err := noContext(ctx); err != nil {
		return Change{}, err
	}
	return c.changeThrough(ctx, "cancel", ref, func(ctx context.Context) (Change, error) {
		ch, err := c.cancel(ctx, ref)
		if err != nil {
			return Change{}, err
		}
		return c.run(ctx, ch)
	})
}

// CancelTx is Cancel in the caller's own transaction; see AddTx. Through an outbox
// it takes a biz type and biz_id, no job_id. What was added through an outbox must be cancelled through it:
// only there are both in order.
func (c *Client) CancelTx(ctx context.Context, tx Tx, ref Ref) (done Change, err error) {
	defer c.observe("cancel_tx", c.begin(), &err)
	if err := noTx(ctx, tx); err != nil {
		return Change{}, err
	}
	return c.changeThrough(ctx, "cancel_tx", ref, func(ctx context.Context) (Change, error) {
		if c.relaysRef(ref) {
			return c.relayRef(ctx, execIn(tx), ref, wish{op: outboxrow.Cancel})
		}
		ch, err := c.cancel(ctx, ref)
		if err != nil {
			return Change{}, err
		}
		return c.runTx(ctx, tx, ch)
	})
}

// Reschedule gives tasks that are not final another action time, also while they
// are delivered, as Cancel does; the cause is ErrRescheduled. Their attempts begin
// anew, and so does their idempotency key (Info.Key). In another process the next
// delivery may start while the handler of the former one has not returned. Errors
// are those of Cancel.
func (c *Client) Reschedule(ctx context.Context, ref Ref, when When) (done Change, err error) {
	defer c.observe("reschedule", c.begin(), &err)
	if err := noContext(ctx); err != nil {
		return Change{}, err
	}
	return c.changeThrough(ctx, "reschedule", ref, func(ctx context.Context) (Change, error) {
		ch, err := c.reschedule(ctx, ref, when)
		if err != nil {
			return Change{}, err
		}
		return c.run(ctx, ch)
	})
}

// RescheduleTx is Reschedule in the caller's own transaction; see CancelTx.
func (c *Client) RescheduleTx(ctx context.Context, tx Tx, ref Ref, when When) (done Change, err error) {
	defer c.observe("reschedule_tx", c.begin(), &err)
	if err := noTx(ctx, tx); err != nil {
		return Change{}, err
	}
	return c.changeThrough(ctx, "reschedule_tx", ref, func(ctx context.Context) (Change, error) {
		if c.relaysRef(ref) {
			if err := when.valid(time.Now()); err != nil {
				return Change{}, err
			}
			return c.relayRef(ctx, execIn(tx), ref, wish{op: outboxrow.Reschedule, when: when})
		}
		ch, err := c.reschedule(ctx, ref, when)
		if err != nil {
			return Change{}, err
		}
		return c.runTx(ctx, tx, ch)
	})
}

// change is one cancel or reschedule, ready to run.
type change struct {
	verb   string // for errors
	table  int
	id     JobID  // 0: by biz type and biz_id
	status string // statement: lock and count
	ours   []any  // parameters of its oursSQL
	update string // statement; pendingSQL or openSQL follows
	set    []any  // parameters of the update
	where  []any  // parameters of the condition
	unless string // a further condition of the update
	but    []any  // its parameters
	ring   string // statement; "": none
	partly bool   // beside ErrInDelivery, change the tasks that are not in delivery
}

func (c *Client) cancel(ctx context.Context, ref Ref) (change, error) {
	return c.change(ctx, ref, "cancel", cancelSQL, nil)
}

func (c *Client) reschedule(ctx context.Context, ref Ref, when When) (change, error) {
	if err := when.valid(time.Now()); err != nil {
		return change{}, err
	}
	text, micros := when.args()
	ch, err := c.change(ctx, ref, "reschedule", rescheduleSQL, []any{text, micros, text, micros})
	switch {
	case err != nil || !c.near(when):
	case ch.id != 0:
		ch.ring = c.layout.render(ringSQL, ch.table)
	default:
		ch.ring = c.layout.render(ringBizSQL, ch.table)
	}
	return ch, err
}

// change finds the table and the statements for a ref.
func (c *Client) change(ctx context.Context, ref Ref, verb, update string, set []any) (change, error) {
	ch := change{verb: verb, id: ref.id, set: set}
	index, of := "PRIMARY", ofIDSQL
	switch {
	case ref.err != nil:
		return ch, ref.err
	case ref.id != 0:
		table, err := c.tableOf(ref.id)
		if err != nil {
			return ch, err
		}
		ch.table, ch.where = table, []any{uint64(ref.id)}
	case ref.bizID == 0:
		return ch, refuse(ErrInvalid, "%s: no job_id and no biz_id", verb)
	default:
		number, err := c.types.number(ctx, ref.bizType)
		if err != nil {
			return ch, err
		}
		index, of = "uk_biz", ofBizSQL
		ch.table, ch.where = c.layout.TableOf(ref.bizID), []any{ref.bizID, number, []byte(ref.bizKey)}
	}
	ch.status, ch.ours = c.ours(strings.ReplaceAll(statusSQL+of+forUpdateSQL, "{index}", index), ch.table)
	ch.update = c.layout.render(strings.ReplaceAll(update+of, "{index}", index), ch.table)
	return ch, nil
}

// run makes the change in a transaction of its own.
func (c *Client) run(ctx context.Context, ch change) (Change, error) {
	s, err := c.serverOf(ctx, ch.table)
	if err != nil {
		return Change{}, err
	}
	for t := newTries(); ; {
		var done Change
		applied := false // all but the commit
		err := mysql.Retry(ctx, func() error {
			applied = false
			return mysql.InTx(ctx, s.DB, func(conn *sql.Conn) (err error) {
				if err := s.admit(ctx, conn, c.want, c.layout.DatabaseOf(ch.table)); err != nil {
					return err
				}
				done, err = c.apply(ctx, conn, ch)
				applied = err == nil
				return err
			})
		})
		class := mysql.ClassOf(err)
		switch {
		case err == nil:
			return done, nil
		case applied && (class == mysql.Lost || class == mysql.Canceled):
			return Change{}, fmt.Errorf("%s in %s: %w: %w", ch.verb, c.where(ch.table), ErrUnknownOutcome, err)
		case errors.Is(err, ErrNotFound), errors.Is(err, ErrInDelivery):
			return Change{}, err
		case errors.Is(err, errElsewhere):
			return Change{}, refuse(ErrLayout, "%s changes no tasks: its database is retired, held or not that of cluster %q", c.where(ch.table), c.want.Cluster)
		case !t.again(ctx, false, err):
			return Change{}, fmt.Errorf("%s in %s: %w", ch.verb, c.where(ch.table), outage(c.moved(ctx, ch.table, err)))
		}
	}
}

// runTx makes the change in the caller's transaction.
func (c *Client) runTx(ctx context.Context, tx Tx, ch change) (Change, error) {
	done, err := c.apply(ctx, tx, ch)
	switch {
	case err == nil:
		return done, nil
	case errors.Is(err, errElsewhere):
		return Change{}, c.elsewhere(ctx, ch.table)
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrInDelivery):
		return Change{}, err
	}
	return Change{}, c.inTx(ctx, ch.verb+" in", ch.table, err)
}

// errElsewhere says that the database is not this cluster's; it never leaves
// the package.
var errElsewhere = errors.New("database is retired or of another cluster")

// apply locks and counts the tasks, then changes those that are not final.
func (c *Client) apply(ctx context.Context, in Tx, ch change) (Change, error) {
	n, err := c.count(ctx, in, ch)
	if err != nil {
		return Change{}, err
	}
	done, which := Change{InDelivery: n.claimed + n.due, Final: n.all - n.pending - n.claimed}, openSQL
	var busy error
	if n.strict {
		done.InDelivery, which = 0, pendingSQL
		if n.claimed > 0 {
			busy = refuse(ErrInDelivery, "%s in %s: %d of %d tasks are in delivery, and their biz type is strict: nothing is changed, try again later",
				ch.verb, c.where(ch.table), n.claimed, n.all)
		}
	}
	if busy != nil && !ch.partly || n.all == done.Final {
		return done, busy
	}
	changed, err := execute(ctx, in, ch.update+which+ch.unless, slices.Concat(ch.set, ch.where, ch.but)...)
	if err != nil {
		return Change{}, err
	}
	done.Changed = int(changed)
	if ch.ring == "" {
		return done, busy
	}
	_, err = execute(ctx, in, ch.ring, append([]any{ch.table}, ch.where...)...)
	return done, cmp.Or(err, busy)
}

// counts are the tasks that a change is about.
type counts struct {
	all, pending, claimed int
	due                   int  // pending ones of which a delivery may be under way
	strict                bool // the biz type, if a task is claimed or due
}

func (c *Client) count(ctx context.Context, in Tx, ch change) (n counts, err error) {
	var active int
	err = queryRow(ctx, in, ch.status, append(ch.ours, ch.where...)...)(&n.all, &n.pending, &n.claimed, &n.due, &n.strict, &active)
	switch {
	case err != nil:
	case active == 0:
		err = errElsewhere
	case n.all == 0 && ch.id != 0:
		err = refuse(ErrNotFound, "no task %s in %s", ch.id, c.where(ch.table))
	}
	return n, err
}
