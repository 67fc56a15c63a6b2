package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/sink"
)

// Options say what to measure, and on what. Each command reads those it names.
type Options struct {
	Layout  tocsin.Layout   // its prefix is ignored: a run has databases of its own
	Servers []tocsin.Server // nil: a private, durable one; else databases are spread over them and dropped again
	Etcd    node.EtcdConfig
	Server  string // what the private one is, "mariadb" or "mysql"; "": MariaDB, or MySQL if it alone is in PATH

	Tasks     int           // Drain, Insert: at least 1
	Rate      float64       // Lateness: tasks added a second, more than 0
	Duration  time.Duration // Lateness: of adding; Idle: of watching
	Delay     time.Duration // Lateness: least time between a task's insert and its action time
	Spread    time.Duration // Lateness: up to so much later; 0: 1s
	Overdue   time.Duration // Drain: how long ago the tasks fell due; 0: while they were inserted
	Ownership string        // node.ByEtcd or node.ByRows; "": node.ByEtcd
	Warm      time.Duration // Drain: how long the nodes own their tables before the tasks fall due: for a minute they claim what is overdue
	Nodes     int           // 0: 1; at most 64
	Pending   int           // rows that wait in the tables for a day far ahead
	NoMetrics bool          // Drain, Lateness, Idle: the nodes export no metrics; else these are read every 5 s, as Prometheus would
	Burst     int           // Lateness: tasks of another biz type, all due at one instant half-way

	Backlog int // Lateness: tasks of another biz type that are due, which workers take whose first comes when all else is delivered

	Target *Target // Drain, Lateness: where the tasks go; nil: to a Go handler that does nothing. Idle: only its Pull counts

	BurstPriority tocsin.Priority // of the burst's biz type

	API func(node.Config, *node.Node) (API, error) // begins to listen with the API that workers ask; must be set with a Backlog and Target.Pull

	Progress func(stage string, done, total int) // called by several goroutines; nil: nobody looks
	Profile  io.Writer                           // takes a CPU profile of this process while Tocsin is measured; nil: none
	Logger   *slog.Logger                        // of the nodes; nil: warnings and errors go to slog.Default()

	scan time.Duration // between two peeks of a table by the nodes; 0: their default
}

// API serves workers on the loopback address.
type API struct {
	URL   string
	Serve func(context.Context) error // until the context ends
}

// Target is a callback, a message broker, or workers that ask. A delivery counts when the target has answered, to a worker when it has the task.
type Target struct {
	URL   string     // of the callback, on the loopback address; "": Pull or Sink
	Pull  *Pull      // nil: Sink
	Sink  sink.Maker // of the broker
	Topic string     // that is there
}

// sinkName is that of the Sink of a Target.
const sinkName = "bench"

// policy says where the tasks go; t may be nil.
func (t *Target) policy(p biztype.Policy) biztype.Policy {
	switch {
	case t == nil:
	case t.Pull != nil:
		p.Pull, p.Timeout = &biztype.Pull{}, 0
	case t.Sink != nil:
		p.Sink = &biztype.Sink{Name: sinkName, Topic: t.Topic}
	default:
		p.Webhook = &biztype.Webhook{URL: t.URL, Allow: []string{"127.0.0.0/8"}}
	}
	return p
}

// withDefaults fills in what is zero.
func (o Options) withDefaults() Options {
	if o.Nodes == 0 {
		o.Nodes = 1
	}
	if o.Spread == 0 {
		o.Spread = time.Second
	}
	if o.Progress == nil {
		o.Progress = func(string, int, int) {}
	}
	return o
}

// Validate reports the first thing that no command can use, mostly as an
// OptionsError.
func (o Options) Validate() error {
	if _, err := devserver.ParseProduct(o.Server); err != nil {
		return OptionsError{err.Error()}
	}
	switch {
	case o.Tasks < 0 || o.Tasks > maxRows:
		return wrong("%d tasks: want 1 to %d", o.Tasks, maxRows)
	case o.Rate < 0 || o.Rate > 1e6:
		return wrong("rate %g: want more than 0 and at most 1000000 tasks a second", o.Rate)
	case o.Duration < 0 || o.Duration > time.Hour:
		return wrong("duration %s: want more than 0s and at most 1h", o.Duration)
	case o.Delay < 0 || o.Delay > time.Hour || o.Spread < 0 || o.Spread > time.Hour:
		return wrong("delay %s and spread %s: want 0s to 1h", o.Delay, o.Spread)
	case o.Overdue < 0 || o.Overdue > 24*time.Hour:
		return wrong("overdue %s: want 0s to 24h", o.Overdue)
	case o.Warm < 0 || o.Warm > time.Hour:
		return wrong("warm %s: want 0s to 1h", o.Warm)
	case o.Nodes < 0 || o.Nodes > 64:
		return wrong("%d nodes: want 1 to 64", o.Nodes)
	case o.Pending < 0 || o.Pending > maxRows || o.Burst < 0 || o.Burst > maxRows:
		return wrong("%d pending and %d in a burst: want 0 to %d", o.Pending, o.Burst, maxRows)
	case o.Backlog < 0 || o.Backlog > maxRows || o.Backlog > 0 && o.Burst > 0:
		return wrong("a backlog of %d: want 0 to %d, and no burst", o.Backlog, maxRows)
	case o.Servers != nil && o.Server != "":
		return wrong("server %q: the servers are given, none is started", o.Server)
	case o.Ownership != "" && o.Ownership != node.ByEtcd && o.Ownership != node.ByRows:
		return wrong("ownership %q: want %s or %s", o.Ownership, node.ByEtcd, node.ByRows)
	case o.Servers != nil && len(o.Etcd.Endpoints) == 0 && o.Ownership != node.ByRows:
		return errors.New("no etcd endpoints: the nodes of a run register there")
	}
	return errors.Join(o.pull().validate(o.NoMetrics), o.Layout.Validate())
}

// OptionsError is what the caller has to change in the Options.
type OptionsError struct{ text string }

func (e OptionsError) Error() string { return e.text }

func wrong(format string, args ...any) error { return OptionsError{fmt.Sprintf(format, args...)} }

// maxRows bounds what a run puts into its tables.
const maxRows = 20_000_000

// rows is how many a command puts into its tables, for the server's memory: the
// tasks come before, by Tocsin, and after.
func (o Options) rows() int {
	return o.Pending + o.Burst + o.Backlog + 3*o.Tasks + int(o.Rate*o.Duration.Seconds())
}
