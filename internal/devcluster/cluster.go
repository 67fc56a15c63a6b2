package devcluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/contrib/tocsinprom"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/pull"
	"github.com/tocsinhq/tocsin/sink"
)

// Group is the nodes' group and ClusterID the cluster's id.
const (
	Group     = "dev"
	ClusterID = "dev"
)

// secretName is what the sample policy calls its secret; secretValue is no
// secret: it guards a receiver on the loopback address for the length of a run.
const (
	secretName  = "TOCSIN_DEV_WEBHOOK_SECRET"
	secretValue = "whsec_dG9jc2luLWRldi1zZWNyZXQtbm90LXNlY3JldA=="
)

// Options say what to start. Ports of 0 are chosen.
type Options struct {
	Layout     tocsin.Layout
	Nodes      int               // at least 1, unless there are Policies
	Server     devserver.Product // of the database servers; "": its zero value
	Servers    int               // database servers, at most one for each database; 0: 1
	MySQLPort  int               // of the first
	EtcdPort   int
	NoEtcd     bool                                // every node claims each row; else etcd is started, and nodes own tables
	HTTPPort   int                                 // of the receiver
	Version    string                              // shown in `cluster nodes`
	Progress   func(stage string, done, total int) // while the schema is made; nil: nobody looks
	Demo       bool                                // with the biz types of Demo
	Broker     *Broker                             // that the tasks of OrderNotify go to; nil: none
	Policies   []biztype.Policy                    // instead of the samples' biz types, for a program that brings its own nodes; no node is started; nil: the samples'
	OnDelivery func(Delivery)                      // called concurrently, must be quick; nil: nobody looks
	Logger     *slog.Logger                        // nil: warnings and errors go to slog.Default()
}

// Broker is a message broker beside a cluster, which whoever started it ends.
type Broker struct {
	Name, Kind, Address string     // of its sink in the config
	Maker               sink.Maker // of the nodes' sinks
}

// Cluster is a running one.
type Cluster struct {
	Recorder *Recorder
	Client   *tocsin.Client

	*Site
	opts     Options
	receiver *receiver
	page     *page
	statuses []web                 // of the nodes
	watcher  *devserver.Prometheus // nil unless Watch has started it
	nodes    *Fleet
	names    []string // of the nodes
	phases   Phases
	started  time.Time
	tried    sync.Map // refunds of AddTrial that were delivered once
}

// Start brings everything up and returns when every table has an owner, or a node that looks at it first.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	if opts.Progress == nil {
		opts.Progress = func(string, int, int) {}
	}
	c := &Cluster{opts: opts, Recorder: newRecorder(opts.OnDelivery), started: time.Now(), nodes: NewFleet(ctx)}
	steps := []struct {
		took *float64
		do   func(context.Context) error
	}{
		{&c.phases.Servers, c.startServers},
		{&c.phases.Schema, c.makeSchema},
		{&c.phases.Nodes, c.startNodes},
	}
	for _, step := range steps {
		begin := time.Now()
		if err := step.do(ctx); err != nil {
			return nil, errors.Join(err, c.Stop())
		}
		*step.took = time.Since(begin).Seconds()
	}
	return c, nil
}

func (c *Cluster) startServers(ctx context.Context) (err error) {
	if c.receiver, err = startReceiver(c.opts.HTTPPort, secretValue, c.Recorder); err != nil {
		return err
	}
	if c.page, err = startPage(); err != nil {
		return err
	}
	site := SiteOptions{
		Config: tocsin.Config{Layout: c.opts.Layout, Cluster: ClusterID},
		Name:   "dev", Conns: 64, Servers: make([]devserver.MariaDBConfig, max(c.opts.Servers, 1)),
	}
	for i := range site.Servers {
		site.Servers[i].Product, site.Servers[i].Durable = c.opts.Server, true // what doctor asks for
		site.Servers[i].Memory, site.Servers[i].RedoLog = Memory(c.opts.Layout, 0)
	}
	site.Servers[0].Port = c.opts.MySQLPort
	if !c.opts.NoEtcd {
		site.Etcd = &devserver.EtcdConfig{ClientPort: c.opts.EtcdPort}
	}
	if c.Site, err = StartSite(ctx, site); err == nil {
		c.Site.broker, c.Site.grace = c.opts.Broker, c.nodeConfig("").SweepGrace
	}
	return err
}

func (c *Cluster) makeSchema(ctx context.Context) error {
	_, err := ddl.Apply(ctx, c.Config, ddl.Options{
		Cluster: ClusterID, Ownership: c.Ownership(), SweepGrace: c.nodeConfig("").SweepGrace,
		Progress: func(done, total int) { c.opts.Progress("create", done, total) },
	})
	if err != nil {
		return err
	}
	if _, err = biztype.Apply(ctx, c.Config, c.policies()); err != nil {
		return err
	}
	observed := c.Config
	if observed.Observe, err = tocsinprom.Observe(c.page.registry(pageServices)); err != nil {
		return err
	}
	c.Client, err = tocsin.Open(ctx, observed)
	return err
}

// policies are the three sample biz types, a Go handler, an HTTP callback and one of workers that ask, and those of a demo; or those of the options.
func (c *Cluster) policies() []biztype.Policy {
	if c.opts.Policies != nil {
		return c.opts.Policies
	}
	samples := []biztype.Policy{
		{Name: OrderClose.Name(), Number: 1, Group: Group, Timeout: biztype.Duration(10 * time.Second)},
		{Name: CouponRemind.Name(), Number: 2, Group: Group, Timeout: biztype.Duration(10 * time.Second), Webhook: &biztype.Webhook{
			URL: c.receiver.URL(), Secrets: []string{secretName}, Allow: []string{"127.0.0.0/8"},
		}},
		c.refundPolicy(),
		{Name: LabelPrint.Name(), Number: 10, Group: Group, Pull: &biztype.Pull{}},
	}
	if c.opts.Broker != nil {
		samples = append(samples, biztype.Policy{Name: OrderNotify.Name(), Number: 9, Group: Group, Timeout: biztype.Duration(10 * time.Second), Sink: &biztype.Sink{Name: c.opts.Broker.Name}})
	}
	if !c.opts.Demo {
		return samples
	}
	all := append(samples, c.demoPolicies()...)
	for i := range all {
		if all[i].Name != demoAlarms {
			all[i].Retention = biztype.Duration(demoRetention)
		}
	}
	return all
}

func (c *Cluster) startNodes(ctx context.Context) error {
	if c.opts.Policies != nil {
		return nil
	}
	for i := range c.opts.Nodes {
		if err := c.addNode(fmt.Sprintf("node-%d", i+1)); err != nil {
			return err
		}
	}
	for i := range c.nodes.Nodes {
		if i == 0 || c.opts.NoEtcd { // with etcd the first node gets the tasks of all tables; without, a node that no worker asks looks first at none
			c.nodes.Go("worker", func(ctx context.Context) error { return c.work(ctx, i) })
		}
	}
	return c.await(ctx, func() bool { return c.nodes.Balanced(c.Config.Layout.Total()) })
}

// addNode runs a node whose handlers note which node they ran on, with a status page at an address of its own.
func (c *Cluster) addNode(name string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("status page: %w", err)
	}
	cfg := c.nodeConfig(name)
	cfg.Registerer, cfg.Listen = c.page.process(name), l.Addr().String()
	n, err := node.New(cfg, c.handlers(name))
	if err != nil {
		return errors.Join(err, l.Close())
	}
	c.statuses, c.names = append(c.statuses, startWeb(l, c.page.status(name, n))), append(c.names, name)
	c.nodes.Add(name, n)
	return nil
}

// Pull is where workers ask the first node for tasks; nil without nodes.
func (c *Cluster) Pull() *pull.Hub {
	if len(c.nodes.Nodes) == 0 {
		return nil
	}
	return c.nodes.Nodes[0].Pull()
}

// Registerer is that of the first node, for what its process exports beside it, as tocsin serve does; nil without nodes.
func (c *Cluster) Registerer() prometheus.Registerer {
	if len(c.names) == 0 {
		return nil
	}
	return c.page.registry(c.names[0])
}

func (c *Cluster) nodeConfig(name string) node.Config {
	cfg := node.Config{
		Tables: c.Config, Ownership: c.Ownership(), Etcd: c.EtcdConfig(),
		Group: Group, Name: name, Version: c.opts.Version, Logger: c.opts.Logger, Getenv: getenv,
	}
	if b := c.opts.Broker; b != nil {
		cfg.Sinks = map[string]sink.Maker{b.Name: b.Maker}
	}
	if c.opts.Demo {
		cfg.SweepGrace = demoGrace
	}
	return cfg
}

// handlers returns those of one process.
func (c *Cluster) handlers(name string) *node.Handlers {
	var all node.Handlers
	node.Handle(&all, OrderClose, func(_ context.Context, t *tocsin.Task[Order]) error {
		c.Recorder.record(t.Info, name)
		return nil
	})
	node.Handle(&all, RefundSend, c.refund)
	if c.opts.Demo {
		handleDemo(&all)
	}
	return &all
}

func getenv(name string) string {
	if name == secretName {
		return secretValue
	}
	return ""
}

// await waits until done is true, a node fails, or ctx ends.
func (c *Cluster) await(ctx context.Context, done func() bool) error {
	return c.nodes.Await(ctx, 20*time.Millisecond, done)
}

// AwaitSeen waits until handler and receiver have seen n tasks; after each look
// it reports how many. Its error is ctx's or a node's.
func (c *Cluster) AwaitSeen(ctx context.Context, n int, seen func(int)) error {
	return c.await(ctx, func() bool {
		distinct := c.Recorder.Distinct()
		seen(distinct)
		return distinct >= n
	})
}

// Wait returns when ctx ends (nil) or a node fails.
func (c *Cluster) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-c.nodes.Failed():
		return err
	}
}

// Stop ends everything, the nodes first, and waits for it.
func (c *Cluster) Stop() error {
	_ = c.nodes.Stop() // Wait has returned the error of a node that ended too early
	var errs []error
	if c.watcher != nil {
		errs = append(errs, c.watcher.Stop())
	}
	if c.Client != nil {
		errs = append(errs, c.Client.Close())
	}
	if c.receiver != nil {
		errs = append(errs, c.receiver.stop())
	}
	for _, status := range c.statuses {
		errs = append(errs, status.stop())
	}
	if c.page != nil {
		errs = append(errs, c.page.stop())
	}
	if c.Site != nil {
		errs = append(errs, c.Site.Stop())
	}
	return errors.Join(errs...)
}
