package node

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/dispatcher"
	"github.com/tocsinhq/tocsin/store"
	"github.com/tocsinhq/tocsin/sweeper"
)

// SweepResult counts what a sweep found and did.
type SweepResult = sweeper.Result

// Sweep walks every table of every database once, recovers run-out claims, and
// claims and delivers what is overdue by more than Config.SweepGrace and has a
// handler here; a node without handlers delivers every HTTP callback. It needs
// MySQL only: no etcd, and Run need not be under way. When ctx ends it starts no
// more, settles what is in hand and returns. The error joins those of servers
// that could not be swept; the result is good for the others.
func (n *Node) Sweep(ctx context.Context) (SweepResult, error) {
	var result SweepResult
	counts, err := n.sweeping(ctx, false, func(ctx context.Context, s *sweeper.Sweeper) (err error) {
		result, err = s.Sweep(ctx)
		return err
	})
	return result.Settled(counts), err
}

// SweepDry reports what Sweep would find and changes nothing.
func (n *Node) SweepDry(ctx context.Context) (SweepResult, error) {
	var result SweepResult
	_, err := n.sweeping(ctx, true, func(ctx context.Context, s *sweeper.Sweeper) (err error) {
		result, err = s.Sweep(ctx)
		return err
	})
	return result, err
}

// SweepOn sweeps at the times of a cron expression ("*/5 * * * *", "@every 1m")
// until ctx ends, and returns nil then. A sweep that fails in part is logged.
func (n *Node) SweepOn(ctx context.Context, expression string) error {
	schedule, err := sweeper.ParseSchedule(expression)
	if err != nil {
		return err
	}
	_, err = n.sweeping(ctx, false, func(ctx context.Context, s *sweeper.Sweeper) error {
		return s.Run(ctx, schedule)
	})
	return err
}

var errSweeping = errors.New("node: a sweep is under way already")

// sweeping runs use with a sweeper whose dispatcher lives around it: what use
// has handed over is settled before sweeping returns the outcomes.
func (n *Node) sweeping(ctx context.Context, dry bool, use func(context.Context, *sweeper.Sweeper) error) (all sweeper.Counts, err error) {
	if !n.swept.CompareAndSwap(false, true) {
		return all, errSweeping
	}
	defer n.swept.Store(false)
	db, err := store.Connect(ctx, n.cfg.Tables)
	if err != nil {
		return all, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	policies, err := biztype.Load(ctx, n.cfg.Tables)
	if err != nil {
		return all, err
	}
	w := &sweepParts{node: n, store: db}
	w.policies.Store(&policies)
	err = w.run(ctx, dry, use)
	return w.counts.read(), err
}

// sweepParts are the engines of a sweep, wired to one another.
type sweepParts struct {
	node       *Node
	store      *store.Store
	dispatcher *dispatcher.Dispatcher
	policies   atomic.Pointer[[]biztype.Policy]
	counts     counts
}

func (w *sweepParts) run(ctx context.Context, dry bool, use func(context.Context, *sweeper.Sweeper) error) error {
	targets := newTargets(w.node.cfg, w.node.handlers, w.mine)
	defer targets.close()
	var err error
	w.dispatcher, err = dispatcher.New(dispatcher.Config{
		Store: w.store, Servers: len(w.store.Servers()), ServerOf: w.store.ServerOf, Node: w.node.cfg.Name + "-sweep-" + strings.ToLower(rand.Text()[:8]),
		QueueCap: w.node.cfg.QueueCap, SweepGrace: w.node.cfg.SweepGrace, DrainTimeout: w.node.cfg.DrainTimeout,
		Target: targets.of, ClaimAll: true, Settled: w.counts.settled,
		Logger: w.node.cfg.Logger, // its metrics would be those of Run's dispatcher
	})
	if err != nil {
		return err
	}
	w.follow(*w.policies.Load())
	for server := range w.store.Servers() {
		w.dispatcher.Admit(w.store.TablesOf(server), "", false)
	}
	metrics := newScope(w.node.cfg.Registerer)
	defer metrics.end()
	s, err := sweeper.New(w.config(dry, targets, metrics.registerer()))
	if err = cmp.Or(err, metrics.check()); err != nil {
		return err
	}
	work, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var g errgroup.Group
	g.Go(func() error { return w.dispatcher.Run(work) })
	g.Go(func() error { return w.watch(work) })
	err = use(ctx, s)
	end()
	return errors.Join(err, g.Wait())
}

func (w *sweepParts) config(dry bool, t *targets, r prometheus.Registerer) sweeper.Config {
	cfg := sweeper.Config{
		Tables: w.store, Now: w.store.Now, Servers: w.store.Servers(), TablesOf: w.store.TablesOf, Intake: w.dispatcher,
		Policies: func() []biztype.Policy { return *w.policies.Load() },
		Can:      func(p biztype.Policy) bool { _, ok := t.of(p); return ok },
		Grace:    w.node.cfg.SweepGrace, Counts: w.counts.read,
		Logger: w.node.cfg.Logger, Registerer: r,
	}
	if dry {
		cfg.Intake = nil
	}
	return cfg
}

// mine is every callback for a node without handlers, else those of its group.
func (w *sweepParts) mine(p biztype.Policy) bool {
	return len(w.node.handlers.targets) == 0 || p.Webhook == nil || p.WithDefaults().Group == w.node.cfg.Group
}

// watch follows changes of the policies while a resident sweeper lives.
func (w *sweepParts) watch(ctx context.Context) error {
	watcher, err := biztype.NewWatcher(biztype.WatchConfig{
		Cluster: w.node.cfg.Tables, Changed: w.follow, Logger: w.node.cfg.Logger,
	})
	if err != nil {
		return err
	}
	return watcher.Run(ctx)
}

func (w *sweepParts) follow(policies []biztype.Policy) {
	w.policies.Store(&policies)
	w.dispatcher.SetPolicies(policies)
}

// counts adds up outcomes, as sweeper.Counts. Safe for concurrent use.
type counts struct{ delivered, retried, dead atomic.Int64 }

func (c *counts) settled(fate store.Fate, verb tocsin.Verb) {
	switch {
	case fate != store.Stored && fate != store.InTx: // the sweeper counts it as settled elsewhere
	case verb == tocsin.Complete:
		c.delivered.Add(1)
	case verb == tocsin.GiveUp:
		c.dead.Add(1)
	default:
		c.retried.Add(1)
	}
}

func (c *counts) read() sweeper.Counts {
	return sweeper.Counts{
		Delivered: int(c.delivered.Load()), Retried: int(c.retried.Load()), Dead: int(c.dead.Load()),
	}
}
