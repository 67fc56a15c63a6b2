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
	JobID    JobID  // 0 where Err is set, unless it is ErrUnknownOutcome
	Existing bool   // a task with this dedup_key was there; JobID and Status are that one's
	Status   Status // Pending, unless Existing
	Err      error  // of AddMany: why this task is not stored; nil from Add and AddTx
}

// Add stores a task. An error means that it is not there; one that wraps
// ErrUnknownOutcome names the job_id that it would have. A lost connection is
// repeated with the same job_id and never stores the task twice.
func (c *Client) Add(ctx context.Context, t NewTask) (Added, error) {
	r, err := c.row(ctx, t)
	if err != nil {
		return Added{}, err
	}
	s, err := c.serverOf(ctx, r.table)
	if err != nil {
		return Added{}, err
	}
	for range maxCollisions {
		added, err := c.add(ctx, s, &r)
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
		if err == nil || errors.Is(err, errCollision) {
			return added, err
		}
		if !t.again(ctx, sent, err) {
			return Added{JobID: unsureID(t.maybe, r.id)}, t.failure(r.id, c.where(r.table), c.moved(ctx, s, err))
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
	conn, err := s.DB.Conn(ctx)
	if err != nil {
		return Added{}, false, err
	}
	defer conn.Close()
	err = mysql.Retry(ctx, func() error { return c.insert(ctx, conn, r) })
	switch mysql.ClassOf(err) {
	case mysql.OK:
		return Added{JobID: r.id}, true, nil
	case mysql.Duplicate:
		added, err = c.standing(ctx, conn, r, maybe)
	}
	return added, true, err
}

// insert is one transaction: the row and, if it may be near, its ring.
func (c *Client) insert(ctx context.Context, conn *sql.Conn, r *row) error {
	if !c.near(r.when) {
		res, err := conn.ExecContext(ctx, c.layout.render(addSQL, r.table), r.addArgs(c.want.Cluster)...)
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		return errors.Join(err, c.admitted(r.table, n))
	}
	query := "BEGIN;\n" + c.layout.render(addSQL+";\n"+ringSQL, r.table) + ";\nCOMMIT"
	args := append(r.addArgs(c.want.Cluster), r.table, uint64(r.id))
	counts, err := mysql.ExecMulti(ctx, conn, query, args...)
	if err != nil {
		mysql.Rollback(ctx, conn) // the packet stopped half-way
		return err
	}
	return c.admitted(r.table, counts[1])
}

// admitted turns zero rows of addSQL into a refusal.
func (c *Client) admitted(table int, rows int64) error {
	if rows > 0 {
		return nil
	}
	return refuse(ErrLayout, "%s takes no tasks: its database is retired or of another cluster than %q", c.where(table), c.want.Cluster)
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
		return Added{JobID: s.id, Existing: true, Status: s.status}, nil
	}
	return Added{}, errCollision
}

// near reports whether the doorbell may have to be rung: the database decides.
func (c *Client) near(w When) bool { return w.until(time.Now()) < c.horizon+nearMargin }

// where names a table for errors: "toc_3.task_0517 on db2".
func (c *Client) where(table int) string {
	return c.layout.Table(table) + " on " + c.home[c.layout.DatabaseOf(table)].Name
}
