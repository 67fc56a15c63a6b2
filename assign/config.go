package assign

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/name"
)

// Defaults of Config.
const (
	DefaultTTL          = 3 * time.Second
	DefaultReplanDelay  = 250 * time.Millisecond
	DefaultLeaveTimeout = 30 * time.Second
)

// MinTTL is the smallest Config.TTL. By default etcd grants no shorter lease: one and a half election time-outs of 1 s, in
// whole seconds.
const MinTTL = 2 * time.Second

// MaxWeight is the largest weight of a node; Plan takes a larger one for it.
const MaxWeight = 1000

// maxNode leaves room for the incarnation: a whole id fits the 64 bytes of the columns owner.node and claimed_by.
const maxNode = 64 - 1 - incarnationLen

// Config says whose tables to divide, and as whom.
type Config struct {
	Client       *clientv3.Client      // the caller's, who closes it after Run; see Dial
	Cluster      string                // first part of every key; at most 64 letters, digits, ".", "_", "-"
	Group        string                // the nodes that share the tables; form as Cluster
	Node         string                // name of this node without incarnation, a host name, say; form as Cluster, at most 55 bytes
	Tables       int                   // tables of the layout, at least 1
	ServerOf     func(int) int         // number of the server that holds a table: the hand-over of one waits for no other; nil: all are on one
	Block        int                   // consecutive tables that a node reaches or misses together, those of a database; 0: Miss has no effect
	Weight       int                   // share of the tables relative to other nodes, at most MaxWeight; 0: 1
	Info         NodeInfo              // published in the node's key
	Identity     func() Identity       // of the databases, as known now; called often, at any time; nil: they have none
	TTL          time.Duration         // of the lease, whole seconds (rounded up), at least MinTTL; etcd may grant a longer one; relied on for at most 9 s after a renewal began; 0: DefaultTTL
	LeaveTimeout time.Duration         // how long a leaving node tries to drop tables that are stuck; 0: DefaultLeaveTimeout
	ReplanDelay  time.Duration         // how long to wait for others to come or vanish too, before planning; 0: DefaultReplanDelay
	StandIn      func([]Duty)          // called by Run's goroutine when the node's duties for other owners change; must return soon; nil: the node stands in for nobody
	Jumped       func() time.Time      // when this process last learnt that it had stood still without its clocks showing it: no earlier renewal counts; called often; nil: it never does
	OwnerRows    OwnerRows             // of the group, in MySQL; nil: the group has no epochs, so a wiped or restored etcd goes unnoticed
	Logger       *slog.Logger          // nil: warnings and errors go to slog.Default()
	Registerer   prometheus.Registerer // nil: metrics are counted but not published
}

// Validate reports the first thing that is wrong. It asks nobody.
func (c Config) Validate() error {
	for _, part := range []struct{ what, name string }{{"cluster", c.Cluster}, {"group", c.Group}, {"node", c.Node}} {
		if err := name.Check(part.what, part.name); err != nil {
			return fmt.Errorf("assign: %w", err)
		}
	}
	switch {
	case c.Client == nil:
		return errors.New("assign: no etcd client")
	case len(c.Node) > maxNode:
		return fmt.Errorf("assign: node %q: %d bytes, more than %d", c.Node, len(c.Node), maxNode)
	case c.Tables < 1:
		return fmt.Errorf("assign: %d tables, needs at least 1", c.Tables)
	case c.Block < 0:
		return fmt.Errorf("assign: blocks of %d tables", c.Block)
	case c.Weight < 0 || c.Weight > MaxWeight:
		return fmt.Errorf("assign: weight %d is not in 0 to %d", c.Weight, MaxWeight)
	case c.TTL != 0 && c.TTL < MinTTL:
		return fmt.Errorf("assign: lease TTL %s, less than %s", c.TTL, MinTTL)
	case c.LeaveTimeout < 0:
		return fmt.Errorf("assign: leave time-out %s is negative", c.LeaveTimeout)
	case c.ReplanDelay < 0:
		return fmt.Errorf("assign: replan delay %s is negative", c.ReplanDelay)
	}
	return nil
}

// withDefaults fills in what is zero.
func (c Config) withDefaults() Config {
	c.Logger = loop.Logger(c.Logger)
	c.Weight = cmp.Or(c.Weight, 1)
	c.TTL = cmp.Or(c.TTL, DefaultTTL)
	if c.Jumped == nil {
		c.Jumped = func() time.Time { return time.Time{} }
	}
	if c.ServerOf == nil {
		c.ServerOf = func(int) int { return 0 }
	}
	c.TTL = time.Duration(math.Ceil(c.TTL.Seconds())) * time.Second
	c.LeaveTimeout = cmp.Or(c.LeaveTimeout, DefaultLeaveTimeout)
	c.ReplanDelay = cmp.Or(c.ReplanDelay, DefaultReplanDelay)
	return c
}
