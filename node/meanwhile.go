package node

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/upkeep"
)

const (
	meanwhileSweeps = every(10 * time.Second) // of a node that waits for etcd
	dialEvery       = 2 * time.Second         // between its looks for etcd, or for a server
)

// start opens the parts once a server answers, and etcd if the node needs it. It returns nil if ctx ends before, or with an error.
func (n *Node) start(ctx context.Context) (*parts, error) {
	for {
		p, err := n.try(ctx)
		switch {
		case err == nil:
			return p, nil
		case ctx.Err() != nil:
			return nil, err
		case errors.Is(err, assign.ErrAway): // it had answered, and may do so again
		case mysql.Away(err):
			if err := n.awaitServers(ctx, err); err != nil {
				return nil, err
			}
		default:
			return nil, err
		}
	}
}

// try is start for servers that answer.
func (n *Node) try(ctx context.Context) (*parts, error) {
	first, cancel := context.WithTimeout(ctx, bringWithin)
	n.bringer.once(first)
	cancel()
	if err := n.strict(ctx); err != nil {
		return nil, err
	}
	if n.cfg.Ownership == ByEtcd {
		if err := n.awaitEtcd(ctx); err != nil || ctx.Err() != nil {
			return nil, cmp.Or(err, ctx.Err())
		}
	}
	return n.open(ctx)
}

// awaitServers returns when the servers no longer are all away, or ctx ends. Meanwhile metrics and status page show which are. why
// says how they were found to be away. A server that answers and can't be used is left to the next try, whose error it is.
func (n *Node) awaitServers(ctx context.Context, why error) error {
	db, err := store.Open(n.cfg.Tables)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	metrics := newScope(n.cfg.Registerer) // Run's own come when a server answers
	defer metrics.end()
	n.cfg.export(metrics.registerer(), func() Mode { return Waiting })
	looks := store.NewHealth(store.HealthConfig{Servers: db, Logger: slog.New(slog.DiscardHandler), Registerer: metrics.registerer()})
	if err := metrics.check(); err != nil {
		return err
	}
	n.away.Store(looks)
	defer n.away.Store(nil)
	looking, end := context.WithCancel(ctx)
	var looked sync.WaitGroup
	looked.Go(func() { looks.Run(looking) })
	var limit loop.LogLimit
	for mysql.Away(why) && ctx.Err() == nil {
		limit.Of(n.cfg.Logger, "servers").Warn("no server answers: waiting until one does, and delivering nothing", "error", why)
		if loop.Wait(ctx, dialEvery) != nil {
			break
		}
		var answers *store.Store
		if answers, why = store.Connect(ctx, n.cfg.Tables); why == nil {
			why = answers.Close()
		}
	}
	end()
	looked.Wait()
	if ctx.Err() == nil {
		n.cfg.Logger.Info("a server answers: starting")
	}
	return nil
}

// awaitEtcd returns when etcd answers, or ctx ends. A node that starts while etcd is away owns nothing, and nothing shows it
// which tables it owned before. Until etcd answers it works as a resident sweeper: it claims and delivers what is overdue
// by more than the grace time. What it has in hand when etcd answers ends beside the node that then begins, under its claims. An
// error is one that time does not mend, or that of a sweeper that ends while etcd is away.
func (n *Node) awaitEtcd(ctx context.Context) error {
	err := n.etcdAnswers(ctx)
	if !errors.Is(err, assign.ErrAway) {
		return err
	}
	n.cfg.Logger.Warn("etcd does not answer: working as a sweeper until it does, so tasks are late by the grace time",
		"error", err, "advice", assign.Advice(err), "grace", n.cfg.SweepGrace.String())
	metrics := newScope(n.cfg.Registerer) // Run's own come when etcd answers
	defer metrics.end()
	n.cfg.export(metrics.registerer(), func() Mode { return Sweeping })
	if err := metrics.check(); err != nil {
		return err
	}
	n.sweeps.Store(true) // what the status page says, the metrics say already
	defer n.sweeps.Store(false)
	meanwhile, end := context.WithCancel(ctx)
	defer end()
	swept := make(chan error, 1)
	n.sweepers.Go(func() { swept <- n.sweepMeanwhile(meanwhile) })
	for errors.Is(err, assign.ErrAway) && ctx.Err() == nil {
		select {
		case failed := <-swept:
			return failed
		case <-time.After(dialEvery):
		}
		err = n.etcdAnswers(ctx)
	}
	if ctx.Err() != nil {
		return <-swept
	}
	n.cfg.Logger.Info("etcd answers again: no longer a sweeper", "error", err)
	n.sweepers.Go(func() {
		if failed := <-swept; failed != nil {
			n.cfg.Logger.Warn("the end of what the node did as a sweeper has failed", "error", failed)
		}
	})
	return err
}

// etcdAnswers returns nil if an endpoint answers.
func (n *Node) etcdAnswers(ctx context.Context) error {
	client, err := assign.Dial(ctx, n.cfg.Etcd)
	if err != nil {
		return err
	}
	return client.Close()
}

// sweepMeanwhile sweeps again and again, until ctx ends, and then waits for what is in hand.
func (n *Node) sweepMeanwhile(ctx context.Context) error {
	n.sweeping.Lock() // one that came before may still wait for what it has in hand
	defer n.sweeping.Unlock()
	if ctx.Err() != nil {
		return nil
	}
	mode := sweepMode{stays: true, drain: n.cfg.DrainTimeout, ownership: n.cfg.Ownership}
	return newSweepParts(n.cfg, n.handlers, mode).sweep(ctx, func(ctx context.Context, s *upkeep.Sweeper) error {
		s.Run(ctx, meanwhileSweeps)
		return nil
	})
}

// every is an interval as upkeep.Times.
type every time.Duration

// Next implements upkeep.Times.
func (e every) Next(now time.Time) time.Time { return now.Add(time.Duration(e)) }
