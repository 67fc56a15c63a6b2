package main

import (
	"cmp"
	"context"
	"net"

	"github.com/tocsinhq/tocsin/api"
	"github.com/tocsinhq/tocsin/config"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/operator"
	"github.com/tocsinhq/tocsin/test/peers/contest"
	"github.com/tocsinhq/tocsin/test/pullers"
)

// pullWorkers is how many workers ask.
const pullWorkers = 16

// openTocsinPull is Tocsin with workers that ask for one task at a time over HTTP, and settle it with their next request: as beanstalkd's
// delete a job in the packet of the next reserve.
func openTocsinPull(ctx context.Context, setup contest.Setup) (contest.System, error) {
	return startTocsin(ctx, setup, true)
}

// pull serves the API of the node, and starts the workers.
func (p *tocsinPeer) pull(cfg node.Config, n *node.Node) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	of := config.Default().Node
	served := api.New(api.Config{
		Tables: cfg.Tables, Cluster: operator.View{Tables: cfg.Tables, Etcd: cfg.Etcd}, Pull: n.Pull(),
		Body: int64(of.API.Limits.BodyKiB) << 10, Rate: of.API.Limits.Rate, Timeout: of.API.Limits.Timeout.D(), Drain: of.DrainTimeout.D(),
	})
	p.node.Go("API", func(ctx context.Context) error { return served.Serve(ctx, l, nil) })
	p.crew = &pullers.Crew{BizType: contested.Name(), Taken: func(tasks []pullers.Task) {
		for _, t := range tasks {
			p.setup.Deliver(t.Payload)
		}
	}}
	for range cmp.Or(p.setup.Workers, pullWorkers) {
		p.crew.Workers = append(p.crew.Workers, &pullers.Worker{URL: "http://" + l.Addr().String(), Max: 1})
	}
	p.crew.Start(p.node)
	return nil
}

// pulledQuiet counts the rows that are done: a worker learns that its task is settled with its next task.
func (p *tocsinPeer) pulledQuiet(ctx context.Context) (bool, error) {
	done, err := p.Settled(ctx)
	return done >= p.crew.Tasks(), cmp.Or(err, p.node.Err())
}
