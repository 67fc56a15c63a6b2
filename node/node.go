package node

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// Node owns a share of the tables and delivers what is due in them.
type Node struct {
	cfg      Config
	handlers *Handlers
	begun    atomic.Bool           // Run is under way
	running  atomic.Pointer[parts] // nil before its parts are made and after their end
	swept    atomic.Bool           // Sweep is under way
}

// New checks the config. It connects to nothing. h may be nil: the node then
// delivers HTTP callbacks only.
func New(cfg Config, h *Handlers) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if h == nil {
		h = &Handlers{}
	}
	return &Node{cfg: cfg.withDefaults(), handlers: h}, nil
}

var errRunning = errors.New("node: Run is under way already")

// Run registers the node, takes its share of the tables and delivers until ctx
// ends. It then takes in no more, lets deliveries in hand end (Config.DrainTimeout
// at most), settles them, gives its tables up and returns nil. It returns an
// error if it could not start or an engine failed; nothing runs on after it.
func (n *Node) Run(ctx context.Context) error {
	if !n.begun.CompareAndSwap(false, true) {
		return errRunning
	}
	defer n.begun.Store(false)
	p, err := n.open(ctx)
	if err != nil {
		return err
	}
	defer p.close()
	n.running.Store(p)
	defer n.running.Store(nil)
	n.cfg.Logger.Info().Str("version", n.cfg.Version).Str("group", n.cfg.Group).Strs("biz_types", p.types).
		Str("listen", n.cfg.Listen).Msg("node runs")
	err = p.run(ctx)
	left := p.dispatcher.Stats()
	n.cfg.Logger.Info().Int("left_in_delivery", left.Open-left.Unsettled).Int("left_unsettled", left.Unsettled).Msg("node has ended")
	return err
}

// run starts every part and ends them in order: the assignment leaves first,
// which drains the tables through the parts that are still running.
func (p *parts) run(ctx context.Context) error {
	work, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	g, failed := errgroup.WithContext(work)
	g.Go(func() error { return named("clocks", p.clocks.run(failed)) })
	g.Go(func() error { p.stalls.run(failed); return nil })
	g.Go(func() error { p.reach.run(failed); return nil })
	g.Go(func() error { return named("policies", p.watcher.Run(failed)) })
	g.Go(func() error { return named("scanner", p.scanner.Run(failed)) })
	drained := make(chan struct{})
	g.Go(func() error {
		defer close(drained)
		return named("dispatcher", p.dispatcher.Run(failed))
	})
	g.Go(func() error { p.tellStop(ctx, failed, drained); return nil })
	g.Go(func() error {
		defer end()
		intake, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(failed, stop)()
		return named("assign", p.assign.Run(intake))
	})
	return g.Wait()
}

// named says which engine an error comes from.
func named(engine string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return nil
	}
	return fmt.Errorf("%s: %w", engine, err)
}
