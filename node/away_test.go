package node_test

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/node"
)

// Policies are brought and checked when a server has come.
func TestANodeWaitsForItsServersAndStoresItsPoliciesThen(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	apart, way := p.throughRelay(t)
	way.Cut()
	biz, log := tocsin.Define[order]("order.ship", tocsin.Policy{Attempts: 2}), new(devtest.Log)
	cfg := p.config("orders")
	cfg.Strict, cfg.Logger = true, log.Logger()
	cfg.Tables.Servers = []tocsin.Server{{Name: "db1", DSN: apart.cfg.Servers[1].DSN}}
	var h node.Handlers
	node.Handle(&h, biz, func(context.Context, *tocsin.Task[order]) error { return nil })
	n, _ := run(t, cfg, &h)
	log.Await(t, "no server answers: waiting until one does, and delivering nothing")
	if report, running := n.Report(); running || report.Mode != node.Waiting || n.ID() != "" {
		t.Errorf("reports %+v", report)
	}
	way.Mend(t)
	log.Await(t, "node runs")
	await(t, p, add(t, p, biz.New(1, order{1}, tocsin.In(0))), "a delivery", withStatus(tocsin.Done))
}

// flapping leads to etcd with its first connection, and with others only when back is true.
func flapping(t *testing.T) (address string, back *atomic.Bool) {
	t.Helper()
	etcd := devtest.Etcd(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	back = new(atomic.Bool)
	var g sync.WaitGroup
	g.Go(func() {
		for first := true; ; first = false {
			client, err := l.Accept()
			if err != nil {
				return
			}
			if first || back.Load() {
				g.Go(func() { relay(client, etcd) })
			} else {
				_ = client.Close()
			}
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		g.Wait()
	})
	return l.Addr().String(), back
}

// relay joins a connection with one to an address until either ends.
func relay(client net.Conn, address string) {
	defer client.Close()
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	var up sync.WaitGroup
	up.Go(func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	})
	_, _ = io.Copy(client, server)
	_ = client.Close()
	up.Wait()
}

// etcd answers the first question of a node that starts, and is away when the node registers. As a sweeper and then as the owner of
// all tables the node delivers each task once.
func TestANodeWhoseEtcdGoesAwayAsItStartsWaitsForIt(t *testing.T) {
	t.Parallel()
	p := newPlace(t, closePolicy())
	address, back := flapping(t)
	p.etcd.Endpoints = []string{address}
	c, db := &tallied{seen: map[tocsin.JobID]int{}}, openDB(t, p.cfg.Servers[0].DSN)
	delivered := func(tasks []tocsin.Added) {
		t.Helper()
		for _, task := range tasks {
			await(t, p, task.JobID, "a delivery", withStatus(tocsin.Done))
		}
	}
	overdue := addMany(t, p, 50)
	for table := range p.cfg.Layout.Total() {
		execute(t, db, "UPDATE "+p.cfg.Layout.Table(table)+" SET action_time = action_time - INTERVAL 2 MINUTE")
	}
	l := runLogged(t, p, "a", c.handlers())
	l.Await(t, "etcd does not answer: working as a sweeper until it does, so tasks are late by the grace time")
	delivered(overdue)
	back.Store(true)
	ownersAre(t, p, "it has all tables", func(owners []string) bool { return all(owners, "a") })
	delivered(addMany(t, p, 50))
	c.eachOnce(t, 100)
}
