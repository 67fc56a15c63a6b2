package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devcluster"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/test/peers/contest"
	"github.com/tocsinhq/tocsin/test/pullers"
)

const (
	tocsinGroup   = "contest"
	tocsinTimeout = 10 * time.Second // of a delivery
	tocsinConns   = 64
	countConns    = 8
	claimsFor     = 61 * time.Second        // after the start of a node
	pauseLag      = 2500 * time.Millisecond // until the node has noticed a pause: it asks once a second
	nodeLook      = 5 * time.Millisecond
	ownWithin     = time.Minute
)

var contested = tocsin.Define[string]("contest.task")

// tocsinPeer is Tocsin with one node in this process, on a private MariaDB and etcd.
//
// Tasks are added by the client, as a user adds them. For a minute after it took
// its tables a node claims overdue rows before it delivers them, since the last
// owner may have died with them: Warm waits until that is over. Deliveries are
// paused, and begin, by the policy of the biz type; the node looks for it once a
// second.
//
// A node that fails is an error of Start, Pause, Quiet or Close; a server that
// fails is one of the call that meets it.
type tocsinPeer struct {
	setup   contest.Setup
	pulls   bool // workers ask; else a Go handler
	site    *devcluster.Site
	version string // of the server
	client  *tocsin.Client
	store   *store.Store
	biz     atomic.Uint64 // the last biz_id

	node    *devcluster.Fleet // one node; nil before the first Start
	crew    *pullers.Crew     // its workers; nil before, and without pulls
	started time.Time
}

func openTocsin(ctx context.Context, setup contest.Setup) (contest.System, error) {
	return startTocsin(ctx, setup, false)
}

func startTocsin(ctx context.Context, setup contest.Setup, pulls bool) (contest.System, error) {
	server := devserver.MariaDBConfig{Durable: true}
	server.Memory, server.RedoLog = devcluster.Memory(setup.Layout, setup.Tasks)
	site, err := devcluster.StartSite(ctx, devcluster.SiteOptions{
		Config: tocsin.Config{Layout: setup.Layout, Cluster: "contest"},
		Name:   "contest", Conns: tocsinConns, Servers: []devserver.MariaDBConfig{server}, Etcd: &devserver.EtcdConfig{},
	})
	if err != nil {
		return nil, err
	}
	p := &tocsinPeer{setup: setup, pulls: pulls, site: site}
	if err = p.makeTables(ctx); err == nil {
		err = p.connect(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func (p *tocsinPeer) makeTables(ctx context.Context) error {
	if _, err := ddl.Apply(ctx, p.site.Config, ddl.Options{Cluster: p.site.Config.Cluster}); err != nil {
		return err
	}
	policy := biztype.Policy{Name: contested.Name(), Number: 1, Group: tocsinGroup, Timeout: biztype.Duration(tocsinTimeout)}
	if p.pulls {
		policy.Timeout, policy.Pull = 0, &biztype.Pull{}
	}
	_, err := biztype.Apply(ctx, p.site.Config, []biztype.Policy{policy})
	return err
}

func (p *tocsinPeer) connect(ctx context.Context) (err error) {
	if p.client, err = tocsin.Open(ctx, p.site.Config); err != nil {
		return err
	}
	counting := p.site.Config
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
func (p *tocsinPeer) Insert(ctx context.Context, batch []contest.Task) error {
	tasks := make([]tocsin.NewTask, len(batch))
	for i, t := range batch {
		tasks[i] = contested.New(p.biz.Add(1), t.Body, tocsin.At(t.Due))
	}
	_, err := p.client.AddMany(ctx, tasks)
	return err
}

// Start begins deliveries: the first time with the node, later by the policy.
func (p *tocsinPeer) Start(ctx context.Context) error {
	if p.node != nil {
		_, err := biztype.SetPaused(ctx, p.site.Config, contested.Name(), false)
		return err
	}
	var handlers node.Handlers
	if !p.pulls {
		node.Handle(&handlers, contested, func(_ context.Context, t *tocsin.Task[string]) error {
			p.setup.Deliver(t.Payload)
			return nil
		})
	}
	cfg := node.Config{Tables: p.site.Config, Etcd: p.site.EtcdConfig(), Group: tocsinGroup, Name: "contest"}
	n, err := node.New(cfg, &handlers)
	if err != nil {
		return err
	}
	p.node, p.started = devcluster.NewFleet(ctx), time.Now()
	p.node.Add("contest", n)
	ctx, cancel := context.WithTimeout(ctx, ownWithin)
	defer cancel()
	if err := p.node.Await(ctx, nodeLook, func() bool { return p.node.Balanced(p.setup.Layout.Total()) }); err != nil {
		return fmt.Errorf("wait for the node to own the tables: %w", err)
	}
	if p.pulls {
		return p.pull(cfg, n)
	}
	return nil
}

// Pause stops deliveries by the policy.
func (p *tocsinPeer) Pause(ctx context.Context) error {
	if _, err := biztype.SetPaused(ctx, p.site.Config, contested.Name(), true); err != nil {
		return err
	}
	begin := time.Now()
	return p.node.Await(ctx, nodeLook, func() bool { return time.Since(begin) > pauseLag })
}

// Warm waits until the node no longer claims what is overdue.
func (p *tocsinPeer) Warm(ctx context.Context) error {
	return loop.WaitUntil(ctx, p.started.Add(claimsFor))
}

// Quiet reports whether the node has stored every outcome that it knows of.
func (p *tocsinPeer) Quiet(ctx context.Context) (bool, error) {
	if p.pulls {
		return p.pulledQuiet(ctx)
	}
	return p.node.Settled(), p.node.Err()
}

// Settled counts rows in the tables.
func (p *tocsinPeer) Settled(ctx context.Context) (int, error) {
	n, err := devcluster.Count(ctx, p.store)
	return n.Done, err
}

// Facts says what was measured.
func (p *tocsinPeer) Facts() contest.Facts {
	f := contest.Facts{
		Version:    "this tree, " + p.version,
		Durability: "MariaDB's log is flushed at every commit (innodb_flush_log_at_trx_commit=1), no binary log",
		Tuning:     "as it comes, one node, " + strconv.Itoa(tocsinConns) + " connections; buffer pool and log hold the run",
		Settled:    "the node has no row in delivery or waiting to be settled; then rows with status done are counted in the tables",
	}
	if p.pulls {
		f.Tuning += fmt.Sprintf("; %d workers over HTTP, which settle a task with the request for the next", len(p.crew.Workers))
		f.Settled = "as many rows with status done are counted in the tables as workers got tasks"
	}
	return f
}

// Close ends node, clients and servers.
func (p *tocsinPeer) Close() error {
	errs := []error{p.node.Stop()}
	if p.store != nil {
		errs = append(errs, p.store.Close())
	}
	if p.client != nil {
		errs = append(errs, p.client.Close())
	}
	return errors.Join(append(errs, p.site.Stop())...)
}
