package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/dispatcher"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/name"
	"github.com/tocsinhq/tocsin/outbox"
	"github.com/tocsinhq/tocsin/outbox/relay"
	"github.com/tocsinhq/tocsin/sink"
)

// Who may start a row, as the layout rows of the databases say. A node of the other
// kind is refused.
const (
	ByEtcd = "etcd" // the node that owns its table, by a key in etcd
	ByRows = "rows" // whoever claims the row in the database; nobody owns tables, and etcd is not used
)

// Config of a Node. Tables must be set, the endpoints of Etcd unless Ownership is
// ByRows, and Group if there are Go handlers. The zero value of every other field is
// usable. A Sweeper needs no Etcd.
type Config struct {
	Tables    tocsin.Config   // the servers and the layout
	Ownership string          // ByEtcd or ByRows; "": ByEtcd
	Etcd      EtcdConfig      // endpoints and access
	Group     string          // as named by the policies of the biz types; must be set with Go handlers; "" means "callback", the group of tocsin serve
	Outboxes  []outbox.Config // outboxes that this node relays to Tables while no other process does; their names must differ
	Name      string          // of this node, at most 40 of [A-Za-z0-9._-]; "" means the host name, adapted. A random part is appended at each start.
	Weight    int             // share of the tables against other nodes, at most 1000; 0: 1

	LeaseTTL     time.Duration // at least 2s; rounded up to whole seconds; etcd may grant a longer one; relied on for at most 9s after a renewal began; 0: 3s
	ScanInterval time.Duration // 0: 5s
	LookAhead    time.Duration // 0: twice ScanInterval
	DrainTimeout time.Duration // for deliveries in hand when Run's context ends; settling them may take 5s more; 0: 30s
	QueueCap     int           // ids held in memory at most; 0: 1,000,000
	PayloadBytes int64         // of payloads held in memory, at least 1 MiB; one biz type uses at most half of it; 0: 128 MiB
	Strict       bool          // Run fails, before it delivers anything, if a handler gets no task, or if no node of the group can deliver one of its biz types; false: these are logged. For groups whose nodes run the same program.
	SweepGrace   time.Duration // how long a task must be overdue before a sweep takes it, 1s to 24h in whole ms; nodes claim what is nearly as late. Databases that say otherwise are refused. 0: 60s; NoGrace: none
	SweepTimeout time.Duration // of Sweeper.Sweep and each sweep of Sweeper.Run; 0: 50s, or 5/6 of the time to the next; negative: none

	Version    string                                      // shown in `cluster nodes`
	Listen     string                                      // address of the status page, shown in `cluster nodes`
	API        string                                      // URL of the HTTP API in the same process, for workers that ask: see pull; "": there is none
	Logger     *slog.Logger                                // nil: warnings and errors go to slog.Default()
	Registerer prometheus.Registerer                       // nil: metrics are not exported
	Getenv     func(string) string                         // where webhook secrets come from; nil: os.Getenv
	OnOutcome  func(context.Context, tocsin.Info, Outcome) // called when a delivery has ended, before its outcome is stored; concurrently, must be quick; nil: not called
	Sinks      map[string]sink.Maker                       // message brokers, by the names that policies use; who made them closes them, after Run; nil: none
	SecretsDir string                                      // directory of secrets, one file each under the secret's name, read before $CREDENTIALS_DIRECTORY and the environment, and again every 2 s; absolute; "": none

	only map[uint64]bool // of a Sweeper: job_ids of the tasks that it delivers, of any group; nil: all of the group
}

// EtcdConfig says where etcd is, and how to get in.
type EtcdConfig = assign.EtcdConfig

// Validate returns the first mistake. It connects to nothing.
func (c Config) Validate() error {
	if err := c.Tables.Validate(); err != nil {
		return err
	}
	for what, d := range map[string]time.Duration{
		"lease TTL": max(c.LeaseTTL, 0), "scan interval": c.ScanInterval, "look-ahead": c.LookAhead, "drain time-out": c.DrainTimeout, "sweep time-out": max(c.SweepTimeout, 0),
	} {
		if err := client.CheckDuration(what, d); err != nil {
			return err
		}
	}
	c = c.withDefaults()
	switch {
	case c.SecretsDir != "" && !filepath.IsAbs(c.SecretsDir):
		return fmt.Errorf("secrets directory %q: want an absolute path", c.SecretsDir)
	case c.Ownership != ByEtcd && c.Ownership != ByRows:
		return fmt.Errorf("ownership %q: use %s or %s", c.Ownership, ByEtcd, ByRows)
	case c.Tables.Cluster == "":
		return errors.New("no cluster id: the node's keys in etcd stand under it")
	case c.LeaseTTL != 0 && c.LeaseTTL < assign.MinTTL:
		return fmt.Errorf("lease TTL %s: use at least %s", c.LeaseTTL, assign.MinTTL)
	case c.Weight > assign.MaxWeight:
		return fmt.Errorf("weight %d: use at most %d", c.Weight, assign.MaxWeight)
	case c.Weight < 0 || c.QueueCap < 0:
		return fmt.Errorf("weight %d, queue capacity %d: must not be negative", c.Weight, c.QueueCap)
	case c.SweepGrace != NoGrace && layoutrow.CheckGrace(c.SweepGrace) != nil:
		return layoutrow.CheckGrace(c.SweepGrace)
	case c.PayloadBytes != 0 && c.PayloadBytes < dispatcher.MinPayloadBytes:
		return fmt.Errorf("%d bytes of payloads: use at least %d", c.PayloadBytes, dispatcher.MinPayloadBytes)
	case c.LookAhead < 2*c.ScanInterval:
		return fmt.Errorf("look-ahead %s: must be at least twice the scan interval %s", c.LookAhead, c.ScanInterval)
	}
	return cmp.Or(name.CheckNode("node name", c.Name), name.Check("group", c.Group), c.relay().Validate())
}

// relay is that of the node's outboxes.
func (c Config) relay() relay.Config {
	return relay.Config{Tables: c.Tables, Outboxes: c.Outboxes, Logger: c.Logger, Registerer: c.Registerer}
}

// mine reports whether the policy is of this node's group.
func (c Config) mine(p biztype.Policy) bool { return p.WithDefaults().Group == c.Group }

func (c Config) withDefaults() Config {
	c.Logger = loop.Logger(c.Logger)
	c.Ownership = cmp.Or(c.Ownership, ByEtcd)
	c.Group = cmp.Or(c.Group, biztype.CallbackGroup)
	host, _ := os.Hostname() // a host without a name is handled too
	c.Name = cmp.Or(c.Name, name.OfHost(host))
	c.ScanInterval = cmp.Or(c.ScanInterval, 5*time.Second)
	c.LookAhead = cmp.Or(c.LookAhead, 2*c.ScanInterval)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, dispatcher.DefaultDrainTimeout)
	c.SweepGrace = cmp.Or(c.SweepGrace, biztype.DefaultSweepGrace)
	if c.Getenv == nil {
		c.Getenv = os.Getenv
	}
	return c
}

// NoGrace as Config.SweepGrace sweeps whatever is due, however short a time ago,
// and whatever grace the databases hold: for tests, and when every node is known to be
// stopped. A sweep beside a running node would deliver what the node delivers. A node
// with NoGrace claims each row.
const NoGrace = time.Nanosecond

// NoTimeout as Config.SweepTimeout lets a sweep run until nothing is left.
const NoTimeout = time.Duration(-1)

// Outcome is how a delivery ended, for Config.OnOutcome.
type Outcome struct {
	Verb     tocsin.Verb   // Completed, Retried, Snoozed, Buried (the task is dead: Bury, or its last attempt failed) or Skipped (a run that its schedule does not want)
	Reason   string        // Retried, Buried, Skipped: what is stored as last_error
	Next     time.Time     // Retried, Snoozed: the next action time, by the server's clock
	Lateness time.Duration // the start minus the action time, by the server's clock
	Took     time.Duration // from the start until the handler returned or the time-out passed
	TimedOut bool          // the handler had not returned by then; if it succeeds later and before the next attempt, the task is completed without another call
}

// observer returns what tells the hook of each delivery; nil without a hook. The hook's
// context has the values of ctx, but does not end.
func (c Config) observer(ctx context.Context) func(dispatcher.Delivery) {
	if c.OnOutcome == nil {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	var limit loop.LogLimit
	return func(d dispatcher.Delivery) {
		defer func() {
			if p := recover(); p != nil {
				limit.Of(c.Logger, "hook").Error("OnOutcome panicked: the outcome stands",
					"biz_type", d.Task.BizType, "panic", p, "stack", string(debug.Stack()))
			}
		}()
		c.OnOutcome(ctx, d.Task, Outcome{Verb: d.Verb, Reason: d.Reason, Next: d.Next, Lateness: d.Lateness, Took: d.Took, TimedOut: d.TimedOut})
	}
}
