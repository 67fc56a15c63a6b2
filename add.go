package tocsin

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/name"
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
// or ErrLayout if the config's own database is wrong. The session may have any time zone, isolation level, sql_mode and
// sql_select_limit, and any character set in which the driver can read results: not utf16, for instance. With a small
// max_join_size and without sql_big_selects the server may refuse statements. A duplicate leaves the transaction usable; after any
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

// NewTask is a task to be added. It is a value: a copy may be changed and added
// again.
type NewTask struct{ task client.Task }

// BizType returns the name of the task's biz type.
func (t NewTask) BizType() string { return t.task.BizType }

// BizID returns the biz_id of the task.
func (t NewTask) BizID() uint64 { return t.task.BizID }

// BizKey returns the business key of the task; "": it has none, and its biz_id is the key.
func (t NewTask) BizKey() string { return t.task.BizKey }

// MaxKey is the longest business key, in bytes.
const MaxKey = 64

// KeyID returns the biz_id of a business key that is no number, 63 bits of its SHA-256. Two keys may have the same: see
// ErrKeyCollision.
func KeyID(key string) uint64 { return name.KeyID(key) }

// checkKey is name.CheckKey as an ErrInvalid.
func checkKey(key string) error {
	if err := name.CheckKey(key); err != nil {
		return client.Refuse(ErrInvalid, "%s", err)
	}
	return nil
}

// When is the time at which to act. The zero When is refused; make one with In
// or At.
type When struct{ when client.When }

// In acts after d, counted by the database's clock from the moment it stores the task, and rounded up to the millisecond.
// AddMany counts from the beginning of the call, an outbox from the insert there, by its own server's clock. A negative d is
// due at once.
func In(d time.Duration) When { return When{client.In(d)} }

// At acts at t, rounded up to the millisecond. A t in the past is due at once;
// the zero time is refused.
func At(t time.Time) When { return When{client.At(t)} }

// Dedup makes the task the only one of its biz_id and biz type with this key,
// until it is cancelled or purged: adding it again returns the task that is
// there. The key is bytes, at most MaxDedupKey, compared as they are. The empty
// key means no de-duplication. A key that begins with a zero byte is refused: such keys are those of runs of schedules.
// A task that has a unique key too is refused with ErrInvalid.
func (t NewTask) Dedup(key string) NewTask {
	if t.task.Unique.Asked && key != "" {
		t.task.Err = cmp.Or(t.task.Err, errTwoKeys)
	}
	t.task.Dedup, t.task.Unique.Asked, t.task.Unique.While = key, false, 0
	return t
}

// Span is the part of a task's life during which its unique key is taken. Make one with While.
type Span struct{ statuses client.Statuses }

// While means: as long as a task has one of the statuses. Pending and Claimed must be among them, since a node need not
// claim a task to deliver it. Done and Dead may be: then the key is taken until such a task is purged. A cancel always
// frees the key.
func While(statuses ...Status) Span {
	var s Span
	for _, status := range statuses {
		s.statuses = s.statuses.With(uint8(status))
	}
	return s
}

// Conflict says what an add does if its unique key is taken.
type Conflict uint8

// The conflicts.
const (
	// Keep leaves the task that is there as it is: Added.Existing.
	Keep Conflict = iota

	// Reschedule gives the task the new action time, as Client.Reschedule does: Added.Existing and Added.Rescheduled. Its
	// payload and headers stay. A task that is claimed, of a strict biz type, gives the key up and goes on, and the new task is
	// stored. So a delivery begins after each such add, whatever was under way.
	Reschedule
)

// Unique makes the task the only one of its biz_id, or key, and biz type with this unique key while a task that has it is
// in the given part of its life: tocsin.While(tocsin.Pending, tocsin.Claimed). An add that meets such a task returns
// that one, or does as OnConflict says. A task that is past it gives the key up to the new one, and keeps no key. The unique key is
// bytes, at most MaxDedupKey, the first not zero, and stands where Dedup's stands, so use one key with one of both: Unique takes the key
// of a finished task that Dedup would still find. In AddMany, tasks with a unique key cost a transaction each, and
// those of one key keep their order. An outbox does not take them: AddTx returns ErrOtherServer. A task that has a key by
// Dedup too is refused with ErrInvalid.
func (t NewTask) Unique(key string, while Span) NewTask {
	if t.task.Dedup != "" && !t.task.Unique.Asked {
		t.task.Err = cmp.Or(t.task.Err, errTwoKeys)
	}
	t.task.Dedup, t.task.Unique.Asked, t.task.Unique.While = key, true, while.statuses
	return t
}

// errTwoKeys refuses a task with both keys: it would be unclear which of them decides whether it exists already.
var errTwoKeys = client.Refuse(ErrInvalid, "Dedup and Unique on one task: use one of both")

// OnConflict says what the add does if the unique key is taken. With Reschedule, one call is a debounce: it adds the task, or
// postpones the one that waits.
func (t NewTask) OnConflict(c Conflict) NewTask {
	t.task.Unique.Conflict = uint8(c)
	return t
}

// Headers are texts by name that travel with a task beside its payload, for middleware: trace context, a tenant. They are
// kept as they are stored, as a JSON object of texts; "" is none.
type Headers string

// Get returns the text of a header, "" if there is none. Names are compared as they are: upper and lower case differ.
func (h Headers) Get(name string) string {
	all, _ := h.All() // what is no object of texts has no headers; a delivery of it fails
	return all[name]
}

// All returns the headers by name. Headers that plain SQL has written may be an error: not a JSON object of texts.
func (h Headers) All() (map[string]string, error) { return client.ReadHeaders(string(h)) }

// MarshalJSON writes the object. Headers that are none become a text.
func (h Headers) MarshalJSON() ([]byte, error) {
	if all, err := h.All(); err == nil {
		return json.Marshal(all)
	}
	return json.Marshal(string(h))
}

// UnmarshalJSON reads what MarshalJSON has written.
func (h *Headers) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &text); err == nil {
		*h = Headers(text)
		return nil
	}
	all, err := Headers(b).All()
	if err != nil {
		return err
	}
	*h = Headers(client.WriteHeaders(all))
	return nil
}

// HeadersOf returns headers as they are stored. It refuses what must not be stored, as ErrInvalid.
func HeadersOf(all map[string]string) (Headers, error) {
	text, err := client.HeadersOf(all)
	return Headers(text), err
}

// Header gives the task a header, and replaces one of the same name. Its name has letters, digits, '.', '_' and '-', at most
// 64, a letter or digit first; its text is UTF-8. All headers of a task have at most MaxHeaders characters as JSON. What is
// wrong is returned when the task is added, as ErrInvalid.
func (t NewTask) Header(name, text string) NewTask {
	t.task.Headers = &client.Header{Name: name, Text: text, Before: t.task.Headers}
	return t
}

// OptionalHeader is Header for what a task can do without, such as trace context: the header is left out if it can't be
// stored. That is so if its name or text is not valid, or if there is no room left. Of several optional headers those that
// were set first have priority.
func (t NewTask) OptionalHeader(name, text string) NewTask {
	t.task.Headers = &client.Header{Name: name, Text: text, Optional: true, Before: t.task.Headers}
	return t
}

// Headers returns the headers that the task was given, by name.
func (t NewTask) Headers() map[string]string { return t.task.Headers.All() }

// Ref says which tasks to cancel or reschedule: one by ByID, or all that are not final
// of a biz type and biz_id by BizType.Of, or of a business key by BizType.OfKey.
type Ref struct{ ref client.Ref }

// ByID means one task.
func ByID(id JobID) Ref { return Ref{client.Ref{ID: uint64(id)}} }
