package tocsin

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/outbox"
)

// Client adds tasks and looks them up. It holds a pool of connections to each
// server. Safe for concurrent use; make one per process.
type Client struct {
	client  *client.Client
	layout  Layout
	outbox  Outbox
	told    func(Call) // nil: nobody observes
	use     AddFunc    // Config.Use around all adds; nil: there is none
	changes ChangeFunc // Config.UseChanges around all changes; nil: there is none
}

// Open compares the config with the stored layout, cluster, schema version and biz
// types. One database that agrees is enough; calls that need another fail until that
// one agrees too. It returns ErrLayout if none agrees, or ErrUnreachable if no server
// answers.
func Open(ctx context.Context, cfg Config) (*Client, error) {
	if err := client.NoContext(ctx); err != nil {
		return nil, err
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	spreads := make(map[string]time.Duration)
	for bizType, inserts := range cfg.Inserts {
		spreads[bizType] = inserts.Spread
	}
	inner, err := client.Open(ctx, client.Config{
		Layout: cfg.Layout.names(), Cluster: cfg.Cluster, Servers: cfg.specs(), Outbox: client.Outbox(cfg.Outbox), Spreads: spreads,
	})
	if err != nil {
		return nil, err
	}
	return &Client{client: inner, layout: cfg.Layout, outbox: cfg.Outbox, told: cfg.Observe, use: chain(cfg.limited()), changes: chainChanges(cfg.UseChanges)}, nil
}

// Close closes the pools. Calls under way fail.
func (c *Client) Close() error { return c.client.Close() }

// ServerOf gives the name of the server on which the tasks of a biz_id are: where a transaction that is to hold them without an
// outbox must be.
func (c *Client) ServerOf(bizID uint64) string { return c.client.ServerOf(bizID) }

// Layout gives the layout of the config.
func (c *Client) Layout() Layout { return c.layout }

func init() {
	client.MoverOf = func(of any) *client.Client { return of.(*Client).client }
	client.RefOf = func(of any) (string, uint64, string) {
		ref := of.(Ref).ref
		return ref.BizType, ref.BizID, ref.BizKey
	}
	client.WhenOf = func(when any) client.When { return when.(When).when }
	client.Specs = func(config any) []mysql.Spec { return config.(Config).specs() }
}

// Call describes a call of a Client that has ended, for Config.Observe.
type Call struct {
	Op    string // add, add_tx, add_many, add_many_tx, cancel, cancel_tx, reschedule, reschedule_tx, get or list
	Took  time.Duration
	Err   error   // that the call returned
	Tasks []Tasks // of the calls that add: one for each biz type
}

// Tasks counts the tasks of one biz type that a call was to add.
type Tasks struct {
	BizType  string // "" if it was not looked up, or is not known to exist
	New      int    // stored; those of AddTx only if the caller's transaction commits
	Existing int    // there already, by their dedup_key
	Failed   int
}

func (t *Tasks) count(added Added, err error) {
	switch {
	case err != nil:
		t.Failed++
	case added.Existing:
		t.Existing++
	default:
		t.New++
	}
}

// typeOf returns the biz type of a task, if it is known to exist. Names that a program makes up would otherwise be labels without bound.
func (c *Client) typeOf(t NewTask, err error) string {
	if _, known := c.client.Types.Numbers()[t.task.BizType]; !known || errors.Is(err, ErrInvalid) {
		return ""
	}
	return t.task.BizType
}

// begin returns when a call begins; the zero time if nobody observes.
func (c *Client) begin() time.Time {
	if c.told == nil {
		return time.Time{}
	}
	return time.Now()
}

func (c *Client) observe(op string, begin time.Time, err *error) {
	if c.told != nil {
		c.told(Call{Op: op, Took: time.Since(begin), Err: *err})
	}
}

func (c *Client) observeAdds(op string, begin time.Time, tasks []NewTask, added *[]Added, err *error) {
	if c.told == nil {
		return
	}
	call := Call{Op: op, Took: time.Since(begin), Err: *err}
	index := make(map[string]int)
	for i, a := range *added {
		failed := a.Err
		if len(tasks) == 1 {
			failed = cmp.Or(failed, *err)
		}
		name := c.typeOf(tasks[i], failed)
		at, known := index[name]
		if !known {
			at = len(call.Tasks)
			index[name] = at
			call.Tasks = append(call.Tasks, Tasks{BizType: name})
		}
		call.Tasks[at].count(a, failed)
	}
	c.told(call)
}

// What the calls of this package fail with, for errors.Is. Every one of them
// says in one line what was tried on what.
var (
	ErrInvalid        = client.ErrInvalid        // invalid task: refused before anything was sent
	ErrUnknownBizType = client.ErrUnknownBizType // no such name in the biz_type tables
	ErrNotFound       = client.ErrNotFound       // no row has this job_id
	ErrOtherServer    = client.ErrOtherServer    // task table is elsewhere: the transaction's server does not hold it
	ErrLayout         = client.ErrLayout         // stored layout differs: the databases are not those the config describes
	ErrUnreachable    = client.ErrUnreachable    // a server is unreachable, or takes no writes; nothing was stored on it
	ErrUnknownOutcome = client.ErrUnknownOutcome // it may or may not be stored: the connection broke and the server can't be asked
	ErrConflict       = client.ErrConflict       // CompleteTx: the task changed meanwhile, roll back
	ErrInDelivery     = client.ErrInDelivery     // Cancel, Reschedule of a strict biz type: a task is in delivery, nothing is changed
	ErrSchema         = client.ErrSchema         // stored schema is too old for schedules, before `tocsin ddl finish`; nothing was stored
	ErrKeyCollision   = client.ErrKeyCollision   // two business keys have the same biz_id and dedup_key; the task is not stored
)

// Why the context of a handler ended before its time-out, for context.Cause. What the handler returns has no effect then, except
// that a success counts after ErrClaimEnded, unless the task was settled meanwhile.
var (
	ErrCancelled   = errors.New("the task was cancelled during its delivery")
	ErrRescheduled = errors.New("the task was rescheduled or redriven during its delivery")
	ErrClaimEnded  = errors.New("this process was taken for dead during the delivery: a second delivery is coming")
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
func (c *Client) Cancel(ctx context.Context, ref Ref) (Change, error) {
	return c.change(ctx, "cancel", client.NoContext(ctx), ref, func(ctx context.Context) (client.Change, error) {
		return c.client.Change(ctx, outbox.Cancel, ref.ref, client.When{})
	})
}

// CancelTx is Cancel in the caller's own transaction; see AddTx. Through an outbox
// it takes a biz type and biz_id, no job_id. What was added through an outbox must be cancelled through it:
// only there are both in order.
func (c *Client) CancelTx(ctx context.Context, tx Tx, ref Ref) (Change, error) {
	return c.change(ctx, "cancel_tx", client.NoTx(ctx, tx), ref, func(ctx context.Context) (client.Change, error) {
		return c.client.ChangeTx(ctx, tx, outbox.Cancel, ref.ref, client.When{})
	})
}

// Reschedule gives tasks that are not final another action time, also while they
// are delivered, as Cancel does; the cause is ErrRescheduled. Their attempts begin
// anew, and so does their idempotency key (Info.Key). In another process the next
// delivery may start while the handler of the former one has not returned. Errors
// are those of Cancel.
func (c *Client) Reschedule(ctx context.Context, ref Ref, when When) (Change, error) {
	return c.change(ctx, "reschedule", client.NoContext(ctx), ref, func(ctx context.Context) (client.Change, error) {
		return c.client.Change(ctx, outbox.Reschedule, ref.ref, when.when)
	})
}

// RescheduleTx is Reschedule in the caller's own transaction; see CancelTx.
func (c *Client) RescheduleTx(ctx context.Context, tx Tx, ref Ref, when When) (Change, error) {
	return c.change(ctx, "reschedule_tx", client.NoTx(ctx, tx), ref, func(ctx context.Context) (client.Change, error) {
		return c.client.ChangeTx(ctx, tx, outbox.Reschedule, ref.ref, when.when)
	})
}

// ChangeFunc makes a change: it returns the error of the call.
type ChangeFunc func(ctx context.Context, call *Changing) error

// Changing is a call that changes tasks or schedules, as the functions of Config.UseChanges see it. It names what the call
// names: a job_id, a biz type with a biz_id or key, or a schedule. What it does not name is zero: of operator.Act, which cancels or
// reschedules many tasks at once, all but Op.
type Changing struct {
	Op       string // cancel, cancel_tx, reschedule or reschedule_tx; schedule_ and apply, create, update, edit, activate, deactivate, run_now, backfill or delete
	JobID    JobID
	BizType  string
	BizID    uint64
	BizKey   string
	Schedule string // name of the schedule; "": Op is about tasks, about several schedules, or about one by its id
	Done     Change // of cancel and reschedule, when next has returned

	run func(context.Context) error
}

// chainChanges wraps the end of all calls in the functions of Config.UseChanges; nil if there are none.
func chainChanges(use []func(ChangeFunc) ChangeFunc) ChangeFunc {
	if len(use) == 0 {
		return nil
	}
	change := ChangeFunc(func(ctx context.Context, call *Changing) error {
		if err := client.NoContext(ctx); err != nil {
			return err
		}
		return call.run(ctx)
	})
	for _, u := range slices.Backward(use) {
		change = u(change)
	}
	return change
}

// Changes returns what runs a call through the functions of UseChanges, for packages that change what is not a task.
func (c Config) Changes() func(ctx context.Context, call Changing, run func(context.Context) error) error {
	change := chainChanges(c.UseChanges)
	return func(ctx context.Context, call Changing, run func(context.Context) error) error {
		if change == nil {
			return run(ctx)
		}
		call.run = run
		return change(ctx, &call)
	}
}

// change is a call that changes tasks: run, around which stand the functions of Config.UseChanges. refused says why the call
// can't be made.
func (c *Client) change(ctx context.Context, op string, refused error, ref Ref, run func(context.Context) (client.Change, error)) (changed Change, err error) {
	defer c.observe(op, c.begin(), &err)
	if refused != nil {
		return Change{}, refused
	}
	if c.changes == nil {
		done, err := run(ctx)
		return Change(done), err
	}
	call := &Changing{Op: op, JobID: JobID(ref.ref.ID), BizType: ref.ref.BizType, BizID: ref.ref.BizID, BizKey: ref.ref.BizKey}
	call.run = func(ctx context.Context) error {
		done, err := run(ctx)
		call.Done = Change(done)
		return err
	}
	err = c.changes(ctx, call)
	return call.Done, err
}
