package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	kafka "github.com/tocsinhq/tocsin/contrib/tocsinkafka/broker"
	"github.com/tocsinhq/tocsin/contrib/tocsinpg"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/outbox"
	"github.com/tocsinhq/tocsin/sink"
	"github.com/tocsinhq/tocsin/upkeep"
)

// roleEnv holds the role of a process, as JSON.
const roleEnv = "TOCSIN_CHAOS_ROLE"

// The kinds of role.
const (
	roleNode  = "node"
	roleSweep = "sweep"
	roleRelay = "relay" // as `tocsin relay`
	roleSpare = "spare" // a relay of all outboxes that ignores their locks
	rolePurge = "purge" // deletes finished rows, again and again
	roleNATS  = "nats"  // the broker
	roleWork  = "work"  // asks nodes for tasks
)

// group is that of the harness's nodes.
const group = "chaos"

// role is what a process of the cluster is to be.
type role struct {
	Kind      string
	Name      string // of this process
	Node      string // of a node, as etcd, journals and callbacks tell it, before the incarnation; mostly Name
	Tables    tocsin.Config
	Etcd      []string        // endpoints
	Outboxes  []outbox.Config // of the business servers
	Ownership string          // of the tables
	Runs      bool            // there are biz types of schedules' runs
	Broker    string          // Options.Broker
	Address   string          // of the broker
	APIs      []string        // of nodes, as workers reach them
	Aim       string          // of a worker: a file with the number of the one API that it is to ask; no such file: any
	Journal   string          // file to append to; of a broker, the folder of its data
	Timing    Timing
	Grace     time.Duration // sweep: below zero takes whatever is due
	Pause     time.Duration // sweep and purge: between two rounds
}

// Timing is how fast the cluster reacts.
type Timing struct {
	Lease time.Duration // of nodes in etcd
	Scan  time.Duration // between two scans of a table
	Grace time.Duration // of the sweepers, as nodes believe it
	Drain time.Duration // how long a node that leaves waits for its deliveries; 0: 10s
}

func (t Timing) withDefaults() Timing {
	if t.Drain == 0 {
		t.Drain = 10 * time.Second
	}
	return t
}

// RunRole makes this process what its environment says, and exits; it returns at
// once in a process that has no role. Call it first in main and TestMain.
func RunRole() {
	kafka.Main()
	text := os.Getenv(roleEnv)
	if text == "" {
		return
	}
	var r role
	err := json.Unmarshal([]byte(text), &r)
	if err == nil {
		err = r.run()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", r.Name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// run plays the role until SIGTERM.
func (r role) run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	switch r.Kind {
	case roleNode:
		return r.with(func(cfg node.Config, h *node.Handlers) error {
			n, err := node.New(cfg, h)
			if err != nil {
				return err
			}
			return n.Run(ctx)
		})
	case roleSweep:
		return r.with(func(cfg node.Config, h *node.Handlers) error {
			s, err := node.NewSweeper(cfg, h)
			if err != nil {
				return err
			}
			return r.sweep(ctx, s)
		})
	case roleRelay:
		return r.relay(ctx)
	case roleSpare:
		return r.relayUnlocked(ctx)
	case rolePurge:
		return r.purge(ctx)
	case roleNATS:
		return r.serveNATS(ctx)
	case roleWork:
		return r.work(ctx)
	}
	return fmt.Errorf("unknown role %q", r.Kind)
}

// with runs use with the config of the role, and handlers that write the journal.
func (r role) with(use func(node.Config, *node.Handlers) error) error {
	j, err := openJournal(r.Journal, r.Node)
	if err != nil {
		return err
	}
	grace := r.Timing.Grace
	if r.Kind == roleSweep {
		grace = max(r.Grace, node.NoGrace)
	}
	metrics := prometheus.NewRegistry()
	var outboxes []outbox.Config
	if r.Kind == roleNode {
		outboxes = tocsinpg.Drive(r.Outboxes)
	}
	cfg := node.Config{
		Tables: r.Tables, Outboxes: outboxes, Ownership: r.Ownership, Registerer: metrics, Etcd: node.EtcdConfig{Endpoints: r.Etcd},
		Group: group, Name: r.Node, LeaseTTL: r.Timing.Lease, ScanInterval: r.Timing.Scan, SweepGrace: grace,
		DrainTimeout: r.Timing.withDefaults().Drain, Logger: slog.New(slog.NewJSONHandler(os.Stderr, nil)),
	}
	if r.Broker != "" {
		maker, err := brokerKinds[r.Broker].sink(sinkOf(r.Address, r.Node))
		if err != nil {
			return errors.Join(err, j.close())
		}
		defer func() { _ = maker.Close(context.Background()) }() // what it could not send comes again
		cfg.Sinks = map[string]sink.Maker{topic: maker}
	}
	ended := make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() { tellCounters(ended, metrics) })
	err = use(cfg, r.handlers(j))
	close(ended)
	telling.Wait()
	return errors.Join(err, j.close())
}

// sweep sweeps again and again. What a round could not do, the next one may.
func (r role) sweep(ctx context.Context, s *node.Sweeper) error {
	for ctx.Err() == nil {
		result, err := s.Sweep(ctx)
		if err != nil && ctx.Err() == nil {
			fmt.Fprintf(os.Stderr, "sweep: %v\n", err)
		}
		if result.Overdue+result.Recovered+result.Buried > 0 {
			fmt.Fprintf(os.Stderr, "%s swept: %s\n", time.Now().Format(clockForm), result)
		}
		_ = loop.Wait(ctx, r.Pause)
	}
	return nil
}

// purge deletes finished rows until ctx ends. What a round could not do, the next one may.
func (r role) purge(ctx context.Context) (err error) {
	tables, err := store.Connect(ctx, r.Tables)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tables.Close()) }()
	p := upkeep.NewPurger(upkeep.PurgeConfig{
		Store:    tables,
		Policies: func(ctx context.Context) ([]biztype.Policy, error) { return biztype.Load(ctx, r.Tables) },
	})
	for loop.Wait(ctx, r.Pause) == nil {
		if _, err := p.Purge(ctx); err != nil && ctx.Err() == nil {
			fmt.Fprintf(os.Stderr, "purge: %v\n", err)
		}
	}
	return nil
}
