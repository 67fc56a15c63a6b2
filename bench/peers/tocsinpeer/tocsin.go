package tocsinpeer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/bench"
	"github.com/tocsinhq/tocsin/bench/peers/contest"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/wait"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/store"
)

const (
	group      = "contest"
	timeout    = 10 * time.Second // of a delivery
	conns      = 64
	countConns = 8
	claimsFor  = 61 * time.Second        // after the start of a node
	pauseLag   = 2500 * time.Millisecond // until the node has noticed a pause: it asks once a second
	lookEvery  = 5 * time.Millisecond
	ownWithin  = time.Minute
)

var contested = tocsin.Define[string]("contest.task")

// Entry is Tocsin's part in a contest.
func Entry() contest.Entry { return contest.Entry{Name: contest.Reference, Open: open} }

// peer is one node with its servers.
type peer struct {
	setup   contest.Setup
	config  tocsin.Config
	server  *devserver.MariaDB
	keeper  *devserver.Etcd
	version string // of the server
	client  *tocsin.Client
	store   *store.Store
	biz     atomic.Uint64 // the last biz_id
	deliver atomic.Pointer[func(string)]

	node    *node.Node // nil before the first Start
	started time.Time
	crew    contest.Crew // of the node
}

func open(ctx context.Context, setup contest.Setup) (contest.System, error) {
	p := &peer{setup: setup}
	for _, step := range []func(context.Context) error{p.startServers, p.makeTables, p.connect} {
		if err := step(ctx); err != nil {
			return nil, errors.Join(err, p.Close())
		}
	}
	return p, nil
}

func (p *peer) startServers(ctx context.Context) (err error) {
	own := devserver.MariaDBConfig{Durable: true}
	own.Memory, own.RedoLog = bench.Memory(p.setup.Layout, p.setup.Tasks)
	if p.server, err = devserver.StartMariaDB(ctx, own); err != nil {
		return err
	}
	if p.keeper, err = devserver.StartEtcd(ctx, devserver.EtcdConfig{}); err != nil {
		return err
	}
	p.config = tocsin.Config{
		Layout: p.setup.Layout, Cluster: "contest",
		Servers: []tocsin.Server{{Name: "contest", DSN: p.server.DSN(), MaxConns: conns}},
	}
	return nil
}

func (p *peer) makeTables(ctx context.Context) error {
	if _, err := ddl.Apply(ctx, p.config, ddl.Options{Cluster: p.config.Cluster}); err != nil {
		return err
	}
	_, err := biztype.Apply(ctx, p.config, []biztype.Policy{{
		Name: contested.Name(), Number: 1, Group: group, Timeout: biztype.Duration(timeout),
	}})
	return err
}

func (p *peer) connect(ctx context.Context) (err error) {
	if p.client, err = tocsin.Open(ctx, p.config); err != nil {
		return err
	}
	counting := p.config
	counting.Servers = slices.Clone(counting.Servers)
	counting.Servers[0].MaxConns = countConns // not divided with the contest's pools
	if p.store, err = store.Open(counting); err != nil {
		return err
	}
	facts, err := p.store.Facts(ctx, 0)
	p.version = facts.Version
	return err
}

// Insert adds the batch, each task for another biz_id.
func (p *peer) Insert(ctx context.Context, batch []contest.Task) error {
	tasks := make([]tocsin.NewTask, len(batch))
	for i, t := range batch {
		tasks[i] = contested.New(p.biz.Add(1), t.Body, tocsin.At(t.Due))
	}
	_, err := p.client.AddMany(ctx, tasks)
	return err
}

// Start begins deliveries: the first time with the node, later by the policy.
func (p *peer) Start(ctx context.Context, deliver func(string)) error {
	p.deliver.Store(&deliver)
	if p.node != nil {
		_, err := biztype.SetPaused(ctx, p.config, contested.Name(), false)
		return err
	}
	var handlers node.Handlers
	node.Handle(&handlers, contested, func(_ context.Context, t *tocsin.Task[string]) error {
		(*p.deliver.Load())(t.Payload)
		return nil
	})
	n, err := node.New(node.Config{
		Tables: p.config, Etcd: node.EtcdConfig{Endpoints: []string{p.keeper.Endpoint()}}, Group: group, Name: "contest",
	}, &handlers)
	if err != nil {
		return err
	}
	return p.run(ctx, n)
}

// run returns when the node owns all tables.
func (p *peer) run(ctx context.Context, n *node.Node) error {
	run, _ := p.crew.Begin(ctx)
	p.node, p.started = n, time.Now()
	p.crew.Go(func() error { return n.Run(run) })
	ctx, cancel := context.WithTimeout(ctx, ownWithin)
	defer cancel()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		if report, _ := n.Report(); report.Owned == p.setup.Layout.Total() {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("wait for the node to own the tables: %w", ctx.Err()), p.crew.Failure())
		case <-tick.C:
		}
	}
}

// Pause stops deliveries by the policy.
func (p *peer) Pause(ctx context.Context) error {
	if _, err := biztype.SetPaused(ctx, p.config, contested.Name(), true); err != nil {
		return err
	}
	return errors.Join(wait.For(ctx, pauseLag), p.crew.Failure())
}

// Warm waits until the node no longer claims what is overdue.
func (p *peer) Warm(ctx context.Context) error {
	return wait.Until(ctx, p.started.Add(claimsFor))
}

// Quiet reports whether the node has stored every outcome that it knows of.
func (p *peer) Quiet(context.Context) (bool, error) {
	report, _ := p.node.Report()
	return report.Work.Open == 0 && report.Work.Unsettled == 0, p.crew.Failure()
}

// Settled counts rows in the tables.
func (p *peer) Settled(ctx context.Context) (n int, err error) {
	for server := range p.store.Servers() {
		counts, err := p.store.Counts(ctx, server, p.store.TablesOf(server))
		if err != nil {
			return 0, err
		}
		for _, c := range counts {
			n += c.Done
		}
	}
	return n, nil
}

// Facts says what was measured.
func (p *peer) Facts() contest.Facts {
	return contest.Facts{
		Version:    "this tree, " + p.version,
		Durability: "MariaDB's log is flushed at every commit (innodb_flush_log_at_trx_commit=1), no binary log",
		Tuning:     "as it comes, one node, " + strconv.Itoa(conns) + " connections; buffer pool and log hold the run",
		Settled:    "the node has no row in delivery or waiting to be settled; then rows with status done are counted in the tables",
	}
}

// Close ends node, clients and servers.
func (p *peer) Close() error {
	errs := []error{p.crew.End()}
	if p.store != nil {
		errs = append(errs, p.store.Close())
	}
	if p.client != nil {
		errs = append(errs, p.client.Close())
	}
	if p.keeper != nil {
		errs = append(errs, p.keeper.Stop())
	}
	if p.server != nil {
		errs = append(errs, p.server.Stop())
	}
	return errors.Join(errs...)
}
