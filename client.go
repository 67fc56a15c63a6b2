package tocsin

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/mysql"
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
	BizType  string // "" if it was not looked up, or there is none of that name
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

// typeOf returns the biz type of a task. Names that a program makes up would otherwise be labels without bound.
func typeOf(t NewTask, err error) string {
	if errors.Is(err, ErrInvalid) || errors.Is(err, ErrUnknownBizType) {
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
		name := typeOf(tasks[i], failed)
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
