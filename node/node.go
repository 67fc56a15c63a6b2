package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/pull"
)

// Node owns a share of the tables and delivers what is due in them.
type Node struct {
	cfg      Config
	handlers *Handlers
	bringer  *bringer
	hub      *pull.Hub
	begun    atomic.Bool                  // Run is under way
	running  atomic.Pointer[parts]        // nil before its parts are made and after their end
	sweeps   atomic.Bool                  // Run sweeps until etcd answers
	sweepers sync.WaitGroup               // of these sweeps, until what they have in hand has ended
	sweeping sync.Mutex                   // held by one of them
	away     atomic.Pointer[store.Health] // of servers that are all away, while Run waits for one; else nil
}

// New checks the config. It connects to nothing. Without endpoints of etcd it returns an
// error, unless Ownership is ByRows. h may be nil: the node then delivers
// HTTP callbacks only. With Go handlers the config must name the group: in the
// default group "callback" the node would take tables of tocsin serve and get no task
// for its handlers.
func New(cfg Config, h *Handlers) (*Node, error) {
	if len(cfg.Etcd.Endpoints) == 0 && cfg.Ownership != ByRows {
		return nil, cmp.Or(cfg.Validate(), errNoEtcd)
	}
	return newNode(cfg, h)
}

var errNoEtcd = errors.New("no etcd endpoints: set Etcd.Endpoints, or Ownership: node.ByRows " +
	"(in a config file etcd.endpoints, or ownership: rows under layout)")

// newNode is New for a sweeper too, which needs no etcd.
func newNode(cfg Config, h *Handlers) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if h == nil {
		h = &Handlers{}
	}
	if cfg.Group == "" && len(h.targets) > 0 {
		return nil, fmt.Errorf("no group for the Go handlers of %s: set Group to that of the policies of these biz types", strings.Join(h.names(), ", "))
	}
	cfg = cfg.withDefaults()
	b, err := newBringer(cfg, h)
	if err != nil {
		return nil, err
	}
	return &Node{cfg: cfg, handlers: h.wrapped(), bringer: b, hub: pull.NewHub()}, nil
}

// Pull is where workers ask for the tasks of pull types. It serves while Run is under way.
func (n *Node) Pull() *pull.Hub { return n.hub }

var errNoContext = errors.New("node: the context is nil")

var errRunning = errors.New("node: Run is under way already")

// Run registers the node, takes its share of the tables and delivers until ctx ends.
// Then it takes in nothing more, gives up its tables, lets deliveries in hand end
// (for at most Config.DrainTimeout after the end of ctx), settles them and returns
// nil. While etcd is away when Run is called, the node works as a resident sweeper
// until etcd answers; while all servers are, it waits for one. If outcomes can't be stored,
// it retries for 5 s more. It returns an error if it could not start, an engine failed or
// outcomes are lost; those of sweeps are only logged if etcd has answered since. Nothing
// runs on after it, except a handler that ignores its context, and a reading of secrets
// that hangs.
func (n *Node) Run(ctx context.Context) error {
	if ctx == nil {
		return errNoContext
	}
	if !n.begun.CompareAndSwap(false, true) {
		return errRunning
	}
	defer n.begun.Store(false)
	defer n.sweepers.Wait()
	p, err := n.start(ctx)
	if p == nil {
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return nil // a node that is stopped while it starts ends well
		}
		return err
	}
	defer p.close()
	n.running.Store(p)
	defer n.running.Store(nil)
	n.cfg.Logger.Info("node runs",
		"version", n.cfg.Version, "group", n.cfg.Group, "ownership", n.cfg.Ownership, "biz_types", p.roster.now().Types, "listen", n.cfg.Listen)
	err = p.run(ctx)
	left := p.dispatcher.Stats()
	n.cfg.Logger.Info("node has ended", "left_in_delivery", left.Open-left.Unsettled, "left_unsettled", left.Unsettled)
	return err
}

// run starts every part and ends them in order. The assignment leaves first, which
// drains the tables through the parts that are still running. The drain time-out
// counts from the end of ctx, however long leaving takes.
func (p *parts) run(ctx context.Context) error {
	work, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	g, failed := errgroup.WithContext(work)
	p.openHub()
	defer p.hub.Close()
	defer context.AfterFunc(ctx, p.hub.Close)() // those who wait ask another node
	defer context.AfterFunc(ctx, func() { p.dispatcher.DrainBy(time.Now().Add(p.cfg.DrainTimeout)) })()
	g.Go(func() error { p.certificates.run(failed); return nil })
	g.Go(func() error { p.health.Run(failed); return nil })
	g.Go(func() error { p.hold(failed); return nil })
	g.Go(func() error { p.marks.run(failed); return nil })
	g.Go(func() error { p.roster.run(failed); return nil })
	g.Go(func() error { p.bringer.run(failed); return nil })
	g.Go(func() error { p.backlog.Run(failed); return nil })
	if p.relay != nil {
		g.Go(func() error { return ended(failed, "relay", p.relay.Run(failed)) })
	}
	g.Go(func() error { return ended(failed, "generator", p.generator.Run(failed)) })
	g.Go(func() error { return ended(failed, "policies", p.watcher.Run(failed)) })
	g.Go(func() error { return ended(failed, "scanner", p.scanner.Run(failed)) })
	drained := make(chan struct{})
	settling, settled := context.WithCancel(context.WithoutCancel(ctx))
	g.Go(func() error { p.alarms.Run(settling); return nil })
	g.Go(func() error { p.history.Run(settling); return nil })
	g.Go(func() error {
		defer settled() // the last outcome, too, may be recorded or raise an alarm
		defer close(drained)
		return ended(failed, "dispatcher", p.dispatcher.Run(failed))
	})
	g.Go(func() error { p.tellStop(ctx, failed, drained); return nil })
	g.Go(func() error {
		defer end()
		intake, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(failed, stop)()
		return ended(intake, "group", p.group.Run(intake))
	})
	return g.Wait()
}

// ended returns the meaning of an engine's end, given its context. The end of that
// context is no error. Before it no engine may end, with an error or without, since
// the node would go on doing only part of its work.
func ended(ctx context.Context, engine string, err error) error {
	switch {
	case ctx.Err() == nil && err == nil:
		return fmt.Errorf("%s has ended before its time", engine)
	case ctx.Err() == nil, err != nil && !errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: %w", engine, err)
	}
	return nil
}

// beforeCut is how long before the dispatcher cuts off what is in hand it is
// counted.
const beforeCut = 20 * time.Millisecond

// tellStop logs how a stop proceeds: what was in hand when ctx ended, when all tables
// were given up (which ends left), and what is cut off at the end of the drain
// time-out. It returns when drained is closed.
func (p *parts) tellStop(ctx, left context.Context, drained <-chan struct{}) {
	select {
	case <-drained:
		return
	case <-ctx.Done():
	case <-left.Done():
	}
	log, begun, now := p.cfg.Logger, time.Now(), p.dispatcher.Stats()
	log.Info("stopping: giving up all tables, and waiting for what is in hand",
		"in_delivery", now.Open-now.Unsettled, "unsettled", now.Unsettled, "drain_timeout", p.cfg.DrainTimeout.String())
	select {
	case <-drained:
		return
	case <-left.Done():
	}
	log.Info("all tables are given up", "took", time.Since(begun).Round(time.Millisecond).String())
	cut := time.NewTimer(time.Until(begun.Add(p.cfg.DrainTimeout - beforeCut)))
	defer cut.Stop()
	select {
	case <-drained:
	case <-cut.C:
		now = p.dispatcher.Stats()
		log.Warn("the drain time-out is over: deliveries in hand are cut off, and their tasks delivered again by others",
			"in_delivery", now.Open-now.Unsettled, "unsettled", now.Unsettled)
	}
}
