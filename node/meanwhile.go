package node

import (
	"context"
	"errors"
	"time"

	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/sweeper"
)

const (
	meanwhileSweeps = "@every 10s"    // of a node that waits for etcd
	dialEvery       = 2 * time.Second // between its looks for etcd
)

// openWithEtcd opens the parts once etcd answers, if the node needs it. It returns nil if ctx ends before, or with an error.
func (n *Node) openWithEtcd(ctx context.Context) (*parts, error) {
	for {
		if n.cfg.Ownership == ByEtcd {
			if err := n.awaitEtcd(ctx); err != nil || ctx.Err() != nil {
				return nil, err
			}
		}
		p, err := n.open(ctx)
		switch {
		case err == nil:
			return p, nil
		case ctx.Err() != nil || !errors.Is(err, assign.ErrAway): // it had answered, and may do so again
			return nil, err
		}
	}
}

// awaitEtcd returns when etcd answers, or ctx ends. A node that starts while etcd is away owns nothing, and nothing shows it
// which tables it owned before. Until etcd answers it works as a resident sweeper: it claims and delivers what is overdue
// by more than the grace time. An error is one that time does not mend, or the sweeper's.
func (n *Node) awaitEtcd(ctx context.Context) error {
	err := n.etcdAnswers(ctx)
	if !errors.Is(err, assign.ErrAway) {
		return err
	}
	n.cfg.Logger.Warn("etcd does not answer: working as a sweeper until it does, so tasks are late by the grace time",
		"error", err, "grace", n.cfg.SweepGrace.String())
	n.sweeps.Store(true)
	defer n.sweeps.Store(false)
	metrics := newScope(n.cfg.Registerer) // Run's own come when etcd answers
	defer metrics.end()
	n.cfg.export(metrics.registerer(), func() Mode { return Sweeping })
	if err := metrics.check(); err != nil {
		return err
	}
	meanwhile, end := context.WithCancel(ctx)
	defer end()
	swept := make(chan error, 1)
	go func() { swept <- n.sweepMeanwhile(meanwhile) }()
	for errors.Is(err, assign.ErrAway) && ctx.Err() == nil {
		select {
		case failed := <-swept:
			return failed
		case <-time.After(dialEvery):
		}
		err = n.etcdAnswers(ctx)
	}
	end()
	failed := <-swept
	if ctx.Err() != nil {
		return failed
	}
	n.cfg.Logger.Info("etcd answers again: no longer a sweeper", "error", err)
	return errors.Join(err, failed)
}

// etcdAnswers returns nil if an endpoint answers.
func (n *Node) etcdAnswers(ctx context.Context) error {
	client, err := assign.Dial(ctx, assign.EtcdConfig(n.cfg.Etcd))
	if err != nil {
		return err
	}
	return client.Close()
}

// sweepMeanwhile sweeps again and again, until ctx ends.
func (n *Node) sweepMeanwhile(ctx context.Context) error {
	schedule, err := sweeper.ParseSchedule(meanwhileSweeps)
	if err != nil {
		return err
	}
	_, err = n.sweeper().sweep(ctx, sweepMode{stays: true, ownership: n.cfg.Ownership}, func(ctx context.Context, s *sweeper.Sweeper) error {
		return s.Run(ctx, schedule)
	})
	return err
}
