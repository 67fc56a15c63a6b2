package tocsin

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/tocsinhq/tocsin/internal/client"
)

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
func (c *Client) Add(ctx context.Context, t NewTask) (Added, error) {
	return one(c.add(ctx, "add", client.NoContext(ctx), []NewTask{t}, c.storeOne))
}

// AddMany stores tasks in few round trips: grouped by server and table, many
// tables in each transaction, all servers at once. It is not atomic: the answer
// holds for each task, in the order given, whether it is stored. A task that is
// wrong in itself, or on a server that fails, does not keep the others out. The
// error is nil if all are stored (or were already, by their dedup_key); else it
// counts the others by server and wraps one cause of each.
//
// In is counted by the database's clock as it is read when the call begins.
func (c *Client) AddMany(ctx context.Context, tasks []NewTask) ([]Added, error) {
	return c.add(ctx, "add_many", client.NoContext(ctx), tasks, c.storeMany)
}

// Tx runs statements in a transaction of the caller's: a *sql.Tx, or what wraps one, as *sqlx.Tx and the transactions of most
// mappers do. A pool, which would commit each statement by itself, is refused.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// AddTx stores a task in the caller's own transaction: it exists exactly if that
// commits. If the task's table is on another server than the transaction, the task
// goes through the outbox of Config.Outbox: Relayed is set, JobID is 0, and its
// existence by Dedup is decided later. Without an outbox that is ErrOtherServer,
// or ErrLayout if the config's own database is wrong. Any session will do, whatever its time zone, isolation
// level and character set. A duplicate leaves the transaction usable; after any
// other error roll it back. MariaDB's 1020 (a row is newer than the snapshot) and
// 1213 (deadlock) mean: repeat the transaction.
func (c *Client) AddTx(ctx context.Context, tx Tx, t NewTask) (Added, error) {
	return one(c.add(ctx, "add_tx", client.NoTx(ctx, tx), []NewTask{t}, c.storeIn(callers{tx: tx})))
}

// AddManyTx is AddTx for many tasks: all of them exist exactly if the caller's transaction commits. It returns what became
// of each, in the order given. Nothing is sent if a task is wrong in itself; after any other error roll the transaction
// back. Tasks that go through an outbox are written a few hundred to a statement, others one by one.
func (c *Client) AddManyTx(ctx context.Context, tx Tx, tasks []NewTask) ([]Added, error) {
	return c.add(ctx, "add_many_tx", client.NoTx(ctx, tx), tasks, c.storeIn(callers{tx: tx}))
}

// storeFunc stores the tasks of a call. It returns what became of each, and an error unless all are stored, or were already.
type storeFunc func(ctx context.Context, tasks []NewTask) ([]Added, error)

// storeOne stores the only task of a call.
func (c *Client) storeOne(ctx context.Context, tasks []NewTask) ([]Added, error) {
	r, err := c.client.Row(ctx, tasks[0].task)
	if err != nil {
		return failAll(1, err), err
	}
	r.Out, err = c.client.Add(ctx, &r)
	r.Out.Err = err
	return []Added{addedOf(r.Out)}, err
}

// storeMany stores tasks, each for itself.
func (c *Client) storeMany(ctx context.Context, tasks []NewTask) ([]Added, error) {
	rows := make([]client.Row, len(tasks))
	for i, t := range tasks {
		r, err := c.client.Row(ctx, t.task)
		if err != nil {
			r.Out.Err = err
		}
		rows[i] = r
	}
	err := c.client.AddMany(ctx, rows)
	return fates(rows), err
}

// callers is a transaction of the caller's: tx, or that of an OutboxTx, which is known by exec alone.
type callers struct {
	tx   Tx
	exec client.Exec
}

// storeIn stores tasks in a transaction, all or none. After an error it can't be committed.
func (c *Client) storeIn(in callers) storeFunc {
	return func(ctx context.Context, tasks []NewTask) ([]Added, error) {
		rows := make([]client.Row, len(tasks))
		for i, t := range tasks {
			r, err := c.client.Row(ctx, t.task)
			if err != nil {
				return failAll(len(tasks), err), err
			}
			rows[i] = r
		}
		var err error
		if in.tx != nil {
			err = c.client.AddTx(ctx, in.tx, rows)
		} else {
			err = c.client.Relay(ctx, in.exec, rows)
		}
		if err != nil {
			return failAll(len(tasks), err), err
		}
		return fates(rows), nil
	}
}

// addedOf is what a call returns of a row.
func addedOf(a client.Added) Added {
	return Added{JobID(a.JobID), a.Existing, a.Rescheduled, Status(a.Status), a.Relayed, a.Err}
}

// fates is what a call returns of rows.
func fates(rows []client.Row) []Added {
	added := make([]Added, len(rows))
	for i := range rows {
		added[i] = addedOf(rows[i].Out)
	}
	return added
}

// failAll returns the results of a call that stored none of its tasks.
func failAll(n int, err error) []Added { return slices.Repeat([]Added{{Err: err}}, n) }

// one returns the result of a call with one task, whose error is that of the call.
func one(added []Added, err error) (Added, error) {
	a := added[0]
	err, a.Err = cmp.Or(err, a.Err), nil
	return a, err
}

// AddFunc stores the tasks of a call, as AddMany or AddManyTx does: it returns what became of each, in their order, and
// an error unless all are stored, or were already.
type AddFunc func(ctx context.Context, call *Adding) ([]Added, error)

// Adding is a call of a Client that adds tasks, as the functions of Config.Use see it.
type Adding struct {
	Op    string    // add, add_tx, add_many or add_many_tx, as in Call: a task of the two with tx exists only if the caller's transaction commits
	Tasks []NewTask // one at least. They may be replaced, but neither removed, added nor reordered

	store storeFunc
}

// chain wraps the end of all calls in the functions of Config.Use; nil if there are none.
func chain(use []func(AddFunc) AddFunc) AddFunc {
	if len(use) == 0 {
		return nil
	}
	add := AddFunc(func(ctx context.Context, call *Adding) ([]Added, error) { return call.store(ctx, call.Tasks) })
	for _, u := range slices.Backward(use) {
		add = u(add)
	}
	return add
}

// add is a call that adds tasks: by store, around which stand the functions of Config.Use. refused says why the call can't be
// made. It returns as many results as there are tasks.
func (c *Client) add(ctx context.Context, op string, refused error, tasks []NewTask, store storeFunc) (added []Added, err error) {
	defer c.observeAdds(op, c.begin(), tasks, &added, &err)
	n := len(tasks)
	switch {
	case refused != nil:
		return failAll(n, refused), refused
	case c.use == nil || n == 0:
		return store(ctx, tasks)
	}
	call := &Adding{Op: op, Tasks: slices.Clone(tasks)} // the caller's slice stays as it is
	call.store = func(ctx context.Context, tasks []NewTask) ([]Added, error) {
		if err := client.NoContext(ctx); err != nil {
			return nil, err
		}
		if len(tasks) != n {
			return nil, client.Refuse(ErrInvalid, "a function of Config.Use made %d tasks of %d", len(tasks), n)
		}
		return store(ctx, tasks)
	}
	added, err = c.use(ctx, call)
	if len(added) == n {
		return added, err
	}
	if err == nil {
		err = fmt.Errorf("a function of Config.Use returned %d results for %d tasks: it is not known whether they are stored", len(added), n)
	}
	return failAll(n, err), err
}
