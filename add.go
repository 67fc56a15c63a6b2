package tocsin

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

// Added is what became of a task that was to be added.
type Added struct {
	JobID       JobID  `json:"job_id"`                // 0 where Err is set, unless it is ErrUnknownOutcome
	Existing    bool   `json:"existing"`              // a task with this dedup_key was there; JobID and Status are that one's
	Rescheduled bool   `json:"rescheduled,omitempty"` // OnConflict(Reschedule): the task that was there has the new action time
	Status      Status `json:"status"`                // Pending, unless Existing
	Relayed     bool   `json:"relayed,omitempty"`     // AddTx and AddManyTx: it is in the outbox, and a relay stores it after the commit; JobID is 0, and whether it exists already is not known
	Err         error  `json:"-"`                     // of AddMany: why this task is not stored; nil from Add and AddTx
}

// Add stores a task. An error means that it is not there; one that wraps
// ErrUnknownOutcome names the job_id that it would have. A lost connection is
// repeated with the same job_id and never stores the task twice.
func (c *Client) Add(ctx context.Context, t NewTask) (added Added, err error) {
	defer c.observeAdd("add", c.begin(), t, &added, &err)
	if err := noContext(ctx); err != nil {
		return Added{}, err
	}
	if c.use != nil {
		return c.addThrough(ctx, "add", t, c.addTask)
	}
	return c.addTask(ctx, t)
}

// addTask is Add without Config.Use.
func (c *Client) addTask(ctx context.Context, t NewTask) (Added, error) {
	r, err := c.row(ctx, t)
	if err != nil {
		return Added{}, err
	}
	s, err := c.serverOf(ctx, r.table)
	if err != nil {
		return Added{}, err
	}
	return c.addRow(ctx, s, &r)
}

// addRow stores a row, under another id if its own is taken.
func (c *Client) addRow(ctx context.Context, s *server, r *row) (Added, error) {
	for range maxCollisions {
		added, err := c.add(ctx, s, r)
		if !errors.Is(err, errCollision) {
			return added, err
		}
		r.id = c.ids.next(time.Now(), r.table)
	}
	return Added{}, fmt.Errorf("add task to %s: %d ids in a row are taken", c.where(r.table), maxCollisions)
}

// errCollision says that another task has the id; it never leaves the package.
var errCollision = errors.New("job_id is taken")

// add stores a row under its id, over as many connections as it takes.
func (c *Client) add(ctx context.Context, s *server, r *row) (Added, error) {
	t := newTries()
	for {
		added, sent, err := c.addOnce(ctx, s, r, t.maybe)
		if err == nil || errors.Is(err, errCollision) || errors.Is(err, ErrKeyCollision) {
			return added, err
		}
		if !t.again(ctx, sent, err) {
			return Added{JobID: unsureID(t.maybe, r.id)}, t.failure(r.id, c.where(r.table), c.moved(ctx, r.table, err))
		}
	}
}

func unsureID(maybe bool, id JobID) JobID {
	if maybe {
		return id
	}
	return 0
}

// addOnce stores a row over one connection. maybe says that an earlier try may
// have stored it.
func (c *Client) addOnce(ctx context.Context, s *server, r *row, maybe bool) (added Added, sent bool, err error) {
	if r.unique.asked {
		return c.uniqueOnce(ctx, s, r, maybe)
	}
	conn, err := s.DB.Conn(ctx)
	if err != nil {
		return Added{}, false, err
	}
	defer conn.Close()
	if err := s.admit(ctx, conn, c.want, c.layout.DatabaseOf(r.table)); err != nil {
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
func (c *Client) insert(ctx context.Context, conn *sql.Conn, r *row) error {
	if !r.when.absolute() {
		in := r.when.in.Microseconds()
		if r.when.in < c.horizon {
			return c.transact(ctx, conn, r, addSoonSQL, r.addArgs(in, in, r.table, uint64(r.id), r.bizType, in))
		}
		_, err := execute(ctx, conn, c.layout.render(addInSQL, r.table), r.addArgs(in, in)...)
		return err
	}
	at := r.when.at.Format(timeForm)
	if c.near(r.when) {
		return c.transact(ctx, conn, r, addNearSQL, r.addArgs(at, at, r.table, uint64(r.id)))
	}
	_, err := execute(ctx, conn, c.layout.render(addAtSQL, r.table), r.addArgs(at, at)...)
	return err
}

// transact sends a packet that is one transaction.
func (c *Client) transact(ctx context.Context, conn *sql.Conn, r *row, packet string, args []any) error {
	_, err := mysql.ExecMulti(ctx, conn, c.layout.render(packet, r.table), args...)
	if err != nil {
		mysql.Rollback(ctx, conn) // the packet stopped half-way
	}
	return err
}

// standing finds what stands in the way of r: itself, stored by a try whose
// answer was lost; the task that holds its dedup_key; or a stranger with its id.
func (c *Client) standing(ctx context.Context, conn *sql.Conn, r *row, maybe bool) (Added, error) {
	found, err := c.readBack(ctx, conn, []*row{r})
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
func (c *Client) near(w When) bool { return w.until(time.Now()) < c.horizon+nearMargin }

// where names a table for errors: "toc_3.task_0517 on db2".
func (c *Client) where(table int) string {
	return c.layout.Table(table) + " on " + c.home[c.layout.DatabaseOf(table)].Name
}
