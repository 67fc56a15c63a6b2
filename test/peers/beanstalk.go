package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/beanstalkd/go-beanstalk"

	"github.com/tocsinhq/tocsin/internal/devcluster"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/test/peers/contest"
)

const (
	beanstalkWorkers   = 8
	beanstalkInserters = 8
	beanstalkSync      = 50 // milliseconds, beanstalkd's default
)

// beanstalkPeer is beanstalkd, over the few verbs of its protocol that the contest
// needs. They are spoken here rather than by a client library so that they can be
// pipelined, as the protocol allows and libraries don't: the puts of a batch go in
// one packet, and a delete goes with the next reserve.
//
// beanstalkd knows delays in whole seconds only. What is left of a due time's delay
// when it is written is rounded to the nearest second: the contest's delays are
// whole, so nothing becomes early.
//
// A reply that was not expected is an error of the batch, or ends the worker that
// met it and is an error of Quiet and Pause.
type beanstalkPeer struct {
	server  *devserver.Queue
	deliver func(string)
	workers int
	sync    int        // milliseconds
	conns   chan *wire // that insert

	crew      *devcluster.Fleet // that delivers
	delivered atomic.Int64
	deleted   atomic.Int64
}

func openBeanstalkd(ctx context.Context, setup contest.Setup) (contest.System, error) {
	p := &beanstalkPeer{deliver: setup.Deliver, workers: cmp.Or(setup.Workers, beanstalkWorkers), sync: beanstalkSync, conns: make(chan *wire, beanstalkInserters)}
	if setup.Strict {
		p.sync = 0
	}
	var err error
	if p.server, err = devserver.StartBeanstalkd(ctx, p.sync); err != nil {
		return nil, err
	}
	for range beanstalkInserters {
		w, err := dial(ctx, p.server.Endpoint())
		if err != nil {
			return nil, errors.Join(err, p.Close())
		}
		p.conns <- w
	}
	return p, nil
}

// Insert puts the tasks in one packet.
func (p *beanstalkPeer) Insert(ctx context.Context, batch []contest.Task) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case w := <-p.conns:
		defer func() { p.conns <- w }()
		return w.put(batch)
	}
}

// Start begins deliveries.
func (p *beanstalkPeer) Start(ctx context.Context) error {
	p.crew = devcluster.NewFleet(ctx)
	for range p.workers {
		w, err := dial(ctx, p.server.Endpoint())
		if err != nil {
			return err
		}
		p.crew.Go("worker", func(ctx context.Context) error { return errors.Join(p.work(ctx, w), w.close()) })
	}
	return nil
}

// work reserves, delivers and deletes until ctx ends.
func (p *beanstalkPeer) work(ctx context.Context, w *wire) error {
	var j job
	for ctx.Err() == nil {
		if err := w.ask(j.id); err != nil {
			return err
		}
		if err := p.wasDeleted(w, j.id); err != nil {
			return err
		}
		var err error
		if j, err = w.reserved(); err != nil {
			return err
		}
		if j.id != 0 {
			p.deliver(j.body)
			p.delivered.Add(1)
		}
	}
	if err := w.askDelete(j.id); err != nil {
		return err
	}
	return p.wasDeleted(w, j.id)
}

// wasDeleted reads the reply to the delete of a job, if there was one.
func (p *beanstalkPeer) wasDeleted(w *wire, id uint64) error {
	if id == 0 {
		return nil
	}
	if err := w.deleted(); err != nil {
		return err
	}
	p.deleted.Add(1)
	return nil
}

// Pause ends the workers when they have deleted what they have.
func (p *beanstalkPeer) Pause(context.Context) error { return p.crew.Stop() }

// Quiet compares deliveries to deletes that were answered.
func (p *beanstalkPeer) Quiet(context.Context) (bool, error) {
	return p.deleted.Load() == p.delivered.Load(), p.crew.Err()
}

// Settled is the server's count of jobs that are no more.
func (p *beanstalkPeer) Settled(context.Context) (int, error) {
	conn, err := beanstalk.Dial("tcp", p.server.Endpoint())
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	stats, err := conn.Stats()
	if err != nil {
		return 0, fmt.Errorf("stats: %w", err)
	}
	return settled(stats)
}

// Facts says what was measured.
func (p *beanstalkPeer) Facts() contest.Facts {
	durable := "binlog, fsync at every write (-f 0)"
	if p.sync > 0 {
		durable = fmt.Sprintf("binlog, fsync at most every %d ms (-f %[1]d, its default): a crash of the machine loses that much", p.sync)
	}
	return contest.Facts{
		Version: p.server.Version(), Durability: durable,
		Tuning:  fmt.Sprintf("%d connections that work, a delete in the packet of the next reserve; %d that insert, a batch in a packet", p.workers, beanstalkInserters),
		Settled: "as many answered deletes as deliveries; then the server's count of jobs less those that it still has",
	}
}

// Close ends workers, connections and server.
func (p *beanstalkPeer) Close() error {
	errs := []error{p.crew.Stop()}
	for len(p.conns) > 0 {
		errs = append(errs, (<-p.conns).close())
	}
	return errors.Join(append(errs, p.server.Stop())...)
}
