package node_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
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
	} else if text, err := json.Marshal(report); err != nil || strings.Contains(string(text), "null") {
		t.Errorf("%s, %v: has a list or an object that is null", text, err)
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
	p.age(t, db)
	l := runLogged(t, p, "a", c.handlers())
	l.Await(t, "etcd does not answer: working as a sweeper until it does, so tasks are late by the grace time")
	delivered(overdue)
	back.Store(true)
	ownersAre(t, p, "it has all tables", func(owners []string) bool { return all(owners, "a") })
	delivered(addMany(t, p, 50))
	c.eachOnce(t, 100)
}

// age makes all tasks two minutes overdue.
func (p place) age(t *testing.T, db *sql.DB) {
	t.Helper()
	for table := range p.cfg.Layout.Total() {
		execute(t, db, "UPDATE "+p.cfg.Layout.Table(table)+" SET action_time = action_time - INTERVAL 2 MINUTE")
	}
}

// sweeping starts a node while etcd is away. It delivers a task to handle as a sweeper, until back is true.
func sweeping(t *testing.T, change func(*node.Config), handle func(context.Context, *tocsin.Task[order]) error) (p place, task tocsin.JobID, back *atomic.Bool, stop func()) {
	t.Helper()
	slow := closePolicy()
	slow.Timeout = biztype.Duration(30 * time.Second) // half of the grace
	p = newPlace(t, slow)
	address, back := flapping(t)
	p.etcd.Endpoints = []string{address}
	task = add(t, p, orderClose.New(1, order{1}, tocsin.In(0)))
	p.age(t, openDB(t, p.cfg.Servers[0].DSN))
	cfg := p.config("orders")
	cfg.Name = "a"
	change(&cfg)
	_, stop = run(t, cfg, closing(handle))
	return p, task, back, stop
}

// The handler returns when the node has all tables, or 1.5 s after the node was told to end: a sweeper gives a second.
func TestADeliveryBeginsOnceThoughEtcdAnswersOrTheNodeEndsMeanwhile(t *testing.T) {
	t.Parallel()
	for _, ends := range []bool{false, true} {
		t.Run(map[bool]string{false: "etcd answers", true: "the node ends"}[ends], func(t *testing.T) {
			t.Parallel()
			c, begun, goOn := &tallied{seen: map[tocsin.JobID]int{}}, make(chan struct{}, 9), make(chan struct{})
			p, task, back, stop := sweeping(t, func(*node.Config) {}, func(ctx context.Context, task *tocsin.Task[order]) error {
				_ = c.handle(ctx, task)
				begun <- struct{}{}
				select {
				case <-goOn:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
			receive(t, begun, "a delivery")
			if ends {
				time.AfterFunc(1500*time.Millisecond, func() { close(goOn) })
				stop()
			} else {
				back.Store(true)
				ownersAre(t, p, "it has all tables", func(owners []string) bool { return all(owners, "a") })
				close(goOn)
			}
			await(t, p, task, "the outcome", withStatus(tocsin.Done))
			c.eachOnce(t, 1)
		})
	}
}

// A transaction holds the row of a task that a sweep has delivered. The node gives the outcome up, and goes on.
func TestANodeBeginsThoughAnOutcomeOfItsSweepsIsLost(t *testing.T) {
	t.Parallel()
	delivered, goOn, log := make(chan struct{}, 9), make(chan struct{}), new(devtest.Log)
	p, task, back, _ := sweeping(t, func(cfg *node.Config) { cfg.Logger, cfg.DrainTimeout = log.Logger(), time.Millisecond },
		func(context.Context, *tocsin.Task[order]) error {
			delivered <- struct{}{}
			<-goOn
			return nil
		})
	receive(t, delivered, "a delivery")
	tx, err := openDB(t, p.cfg.Servers[0].DSN).Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.Exec("SELECT 1 FROM "+p.cfg.Layout.Table(task.Table())+" WHERE job_id = ? FOR UPDATE", uint64(task)); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	log.Await(t, "outcome could not be settled; it is set aside and tried again")
	back.Store(true)
	line := log.Await(t, "the end of what the node did as a sweeper has failed")
	if text := fmt.Sprint(line["error"]); !strings.Contains(text, "1 outcomes could not be settled") {
		t.Error(text)
	}
	log.Await(t, "node runs")
}
