package client

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
	"github.com/tocsinhq/tocsin/outbox"
)

// Change is what became of the tasks that a cancel or reschedule was about; see tocsin.Change.
type Change struct {
	Changed    int
	InDelivery int
	Final      int
	Relayed    bool
}

// Ref names tasks; see tocsin.Ref.
type Ref struct {
	ID      uint64 // 0: by BizType and BizID
	BizType string
	BizID   uint64
	BizKey  string // "": BizID is the key
	Err     error  // why the key has no biz_id
}

// Change cancels or reschedules tasks in a transaction of its own. op is outbox.Cancel, without a time, or outbox.Reschedule.
func (c *Client) Change(ctx context.Context, op string, ref Ref, when When) (Change, error) {
	ch, err := c.change(ctx, op, ref, when)
	if err != nil {
		return Change{}, err
	}
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
				if err := s.admit(ctx, conn, c.layout.DatabaseOf(ch.table)); err != nil {
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
			return Change{}, fmt.Errorf("%s in %s: %w: %w", ch.verb, c.Where(ch.table), ErrUnknownOutcome, err)
		case errors.Is(err, ErrNotFound), errors.Is(err, ErrInDelivery):
			return Change{}, err
		case errors.Is(err, errElsewhere):
			return Change{}, Refuse(ErrLayout, "%s changes no tasks: its database is retired, held or not that of cluster %q", c.Where(ch.table), c.want.Cluster)
		case !t.again(ctx, false, err):
			return Change{}, fmt.Errorf("%s in %s: %w", ch.verb, c.Where(ch.table), outage(c.moved(ctx, ch.table, err)))
		}
	}
}

// ChangeTx is Change in the caller's own transaction, or through its outbox; see AddTx.
func (c *Client) ChangeTx(ctx context.Context, tx Tx, op string, ref Ref, when When) (Change, error) {
	if c.relaysRef(ref) {
		return c.RelayChange(ctx, execIn(tx), op, ref, when)
	}
	ch, err := c.change(ctx, op, ref, when)
	if err != nil {
		return Change{}, err
	}
	done, err := c.apply(ctx, tx, ch)
	switch {
	case err == nil:
		return done, nil
	case errors.Is(err, errElsewhere):
		return Change{}, c.elsewhere(ctx, ch.table)
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrInDelivery):
		return Change{}, err
	}
	return Change{}, c.inTx(ctx, tx, ch.verb+" in", ch.table, err)
}

// change is one cancel or reschedule, ready to run.
type change struct {
	verb   string // for errors
	table  int
	id     uint64 // 0: by biz type and biz_id
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

// change makes ready a cancel or reschedule.
func (c *Client) change(ctx context.Context, op string, ref Ref, when When) (change, error) {
	if op == outbox.Cancel {
		return c.changeOf(ctx, op, ref, CancelSQL)
	}
	if err := when.Valid(time.Now()); err != nil {
		return change{}, err
	}
	text, micros := when.Args()
	ch, err := c.changeOf(ctx, op, ref, RescheduleSQL, text, micros, text, micros)
	switch {
	case err != nil || !c.near(when):
	case ch.id != 0:
		ch.ring = c.layout.Render(ringSQL, ch.table)
	default:
		ch.ring = c.layout.Render(ringBizSQL, ch.table)
	}
	return ch, err
}

// changeOf finds the table and the statements for a ref. set are the parameters of the update.
func (c *Client) changeOf(ctx context.Context, verb string, ref Ref, update string, set ...any) (change, error) {
	ch := change{verb: verb, id: ref.ID, set: set}
	index, of := "PRIMARY", ofIDSQL
	switch {
	case ref.Err != nil:
		return ch, ref.Err
	case ref.ID != 0:
		table, err := c.TableOf(ref.ID)
		if err != nil {
			return ch, err
		}
		ch.table, ch.where = table, []any{ref.ID}
	case ref.BizID == 0:
		return ch, Refuse(ErrInvalid, "%s: no job_id and no biz_id", verb)
	default:
		number, err := c.Types.number(ctx, ref.BizType)
		if err != nil {
			return ch, err
		}
		index, of = "uk_biz", ofBizSQL
		ch.table, ch.where = c.layout.TableOf(ref.BizID), []any{ref.BizID, number, []byte(ref.BizKey)}
	}
	ch.status, ch.ours = c.ours(strings.ReplaceAll(statusSQL+of+forUpdateSQL, "{index}", index), ch.table)
	ch.update = c.layout.Render(strings.ReplaceAll(update+of, "{index}", index), ch.table)
	return ch, nil
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
			busy = Refuse(ErrInDelivery, "%s in %s: %d of %d tasks are in delivery, and their biz type is strict: nothing is changed, try again later",
				ch.verb, c.Where(ch.table), n.claimed, n.all)
		}
	}
	if busy != nil && !ch.partly || n.all == done.Final {
		return done, busy
	}
	changed, err := Execute(ctx, in, ch.update+which+ch.unless, slices.Concat(ch.set, ch.where, ch.but)...)
	if err != nil {
		return Change{}, err
	}
	done.Changed = int(changed)
	if ch.ring == "" {
		return done, busy
	}
	_, err = Execute(ctx, in, ch.ring, append([]any{ch.table}, ch.where...)...)
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
	err = QueryRow(ctx, in, ch.status, append(ch.ours, ch.where...)...)(&n.all, &n.pending, &n.claimed, &n.due, &n.strict, &active)
	switch {
	case err != nil:
	case active == 0:
		err = errElsewhere
	case n.all == 0 && ch.id != 0:
		err = Refuse(ErrNotFound, "no task %d in %s", ch.id, c.Where(ch.table))
	}
	return n, err
}
