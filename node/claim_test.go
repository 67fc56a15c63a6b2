package node_test

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/node"
)

// tallied counts deliveries by task.
type tallied struct {
	mu   sync.Mutex
	seen map[tocsin.JobID]int
	bare int // deliveries without a claim
}

func (c *tallied) handle(_ context.Context, task *tocsin.Task[order]) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[task.JobID]++
	if task.ClaimedBy == "" {
		c.bare++
	}
	return nil
}

func (c *tallied) handlers() *node.Handlers { return closing(c.handle) }

// unclaimed returns how many deliveries there were without a claim.
func (c *tallied) unclaimed() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bare
}

// of returns how many deliveries of these tasks there were, and how many tasks had more than one.
func (c *tallied) of(ids []tocsin.JobID) (n, twice int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		n += c.seen[id]
		if c.seen[id] > 1 {
			twice++
		}
	}
	return n, twice
}

// eachOnce fails the test unless c and others together delivered want tasks, each of them once.
func (c *tallied) eachOnce(t *testing.T, want int, others ...*tallied) {
	t.Helper()
	times := map[tocsin.JobID]int{}
	for _, one := range append(others, c) {
		one.mu.Lock()
		for id, n := range one.seen {
			times[id] += n
		}
		one.mu.Unlock()
	}
	if len(times) != want {
		t.Errorf("%d tasks were delivered, want %d", len(times), want)
	}
	for id, n := range times {
		if n != 1 {
			t.Errorf("task %s was delivered %d times", id, n)
		}
	}
}

// ownEtcd starts one that the test may stop and start again.
func ownEtcd(t *testing.T, cfg *devserver.EtcdConfig) *devserver.Etcd {
	t.Helper()
	e, err := devserver.StartEtcd(t.Context(), *cfg)
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(e.Endpoint())
	cfg.ClientPort, _ = strconv.Atoi(port)
	t.Cleanup(func() { _ = e.Stop() })
	return e
}

func TestNodesDeliverEachTaskOnceWhileEtcdIsAway(t *testing.T) {
	t.Parallel()
	p := newPlace(t, closePolicy())
	cfg := devserver.EtcdConfig{Dir: t.TempDir()}
	etcd := ownEtcd(t, &cfg)
	p.etcd.Endpoints = []string{etcd.Endpoint()}
	c := &tallied{seen: map[tocsin.JobID]int{}}
	both := p.config("orders")
	both.LeaseTTL = 4 * time.Second // until they claim each row
	a, _ := run(t, both, c.handlers())
	b, _ := run(t, both, c.handlers())
	inMode := func(want node.Mode) {
		t.Helper()
		until(t, "both are in mode "+string(want), func() bool {
			ra, _ := a.Report()
			rb, _ := b.Report()
			return ra.Mode == want && rb.Mode == want && ra.Owned == 4 && rb.Owned == 4
		})
	}
	deliver := func(from uint64) {
		t.Helper()
		var ids []tocsin.JobID
		for i := range uint64(100) {
			ids = append(ids, add(t, p, orderClose.New(from+i, order{i}, tocsin.In(0))))
		}
		for _, id := range ids {
			await(t, p, id, "a delivery", withStatus(tocsin.Done))
		}
	}
	inMode(node.Ownership)
	deliver(1)
	if err := etcd.Stop(); err != nil {
		t.Fatal(err)
	}
	inMode(node.Claim)
	owned := c.unclaimed()
	deliver(1001)
	if n := c.unclaimed() - owned; n > 0 {
		t.Fatalf("%d tasks were delivered without a claim", n)
	}
	ownEtcd(t, &cfg)
	inMode(node.Ownership)
	deliver(2001)
	c.eachOnce(t, 300)
}

// shares waits until each node looks first at the given number of tables.
func shares(t *testing.T, want int, nodes ...*node.Node) {
	t.Helper()
	for _, n := range nodes {
		until(t, "a share of the tables", func() bool {
			r, running := n.Report()
			return running && r.Mode == node.Rows && r.Owned == want
		})
	}
}

func TestNodesThatClaimRowsShareTheWorkAndDeliverEachTaskOnce(t *testing.T) {
	t.Parallel()
	p := newOpenPlace(t)
	one, two := &tallied{seen: map[tocsin.JobID]int{}}, &tallied{seen: map[tocsin.JobID]int{}}
	a, stopA := run(t, p.config("orders"), one.handlers())
	shares(t, 16, a)
	b, _ := run(t, p.config("orders"), two.handlers())
	shares(t, 8, a, b)
	deliver := func(from uint64) {
		t.Helper()
		var ids []tocsin.JobID
		for i := range uint64(200) {
			ids = append(ids, add(t, p, orderClose.New(from+i, order{i}, tocsin.In(time.Duration(i)*5*time.Millisecond))))
		}
		for _, id := range ids {
			await(t, p, id, "a delivery", withStatus(tocsin.Done))
		}
	}
	deliver(1)
	if len(one.seen) == 0 || len(two.seen) == 0 {
		t.Errorf("one node delivered %d tasks, the other %d", len(one.seen), len(two.seen))
	}
	stopA()
	deliver(1001) // the other node has all tables at once, if only as a guest
	shares(t, 16, b)
	one.eachOnce(t, 400, two)
	if n := one.unclaimed() + two.unclaimed(); n > 0 {
		t.Errorf("%d deliveries without a claim", n)
	}
}

func TestANodeThatOwnsTablesIsRefusedWhereEveryRowIsClaimedWhileEtcdIsAway(t *testing.T) {
	t.Parallel()
	cfg := newOpenPlace(t).config("orders")
	cfg.Ownership, cfg.Etcd = node.ByEtcd, node.EtcdConfig{Endpoints: []string{"127.0.0.1:1"}}
	n, err := node.New(cfg, closing(closes))
	if err != nil {
		t.Fatal(err)
	}
	err = n.Run(t.Context())
	if !errors.Is(err, tocsin.ErrLayout) || strings.Contains(err.Error(), "\n") {
		t.Fatalf("%v", err)
	}
	for _, part := range []string{`ownership of this node is "etcd`, `is "rows"`, "tocsin ddl ownership etcd", "node.Config.Ownership"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v: says nothing of %q", err, part)
		}
	}
}

// A node that lacks a biz type leaves its rows to the others, and its tables are theirs to look at first.
func TestANodeThatLacksABizTypeHoldsUpNobodysRows(t *testing.T) {
	t.Parallel()
	p := newOpenPlace(t)
	var none node.Handlers
	node.Handle(&none, tocsin.Define[order]("order.other"), func(context.Context, *tocsin.Task[order]) error { return nil })
	lacking, _ := run(t, p.config("orders"), &none)
	all := &tallied{seen: map[tocsin.JobID]int{}}
	able, _ := run(t, p.config("orders"), all.handlers())
	shares(t, 16, able)
	shares(t, 0, lacking)
	for _, task := range addMany(t, p, 50) {
		await(t, p, task.JobID, "a delivery", withStatus(tocsin.Done))
	}
}

// What a process took and did not finish is delivered by another, although the claim outlives the process.
func TestAClaimThatRanOutIsDeliveredAgain(t *testing.T) {
	t.Parallel()
	p := newOpenPlace(t)
	id := add(t, p, orderClose.New(1, order{1}, tocsin.In(0)))
	db := openDB(t, devtest.DSN(t))
	execute(t, db, "UPDATE "+p.cfg.Layout.Table(id.Table())+" SET status = 1, claimed_by = 'gonegonegone000000000001' WHERE job_id = ?", id)
	c := &tallied{seen: map[tocsin.JobID]int{}}
	run(t, p.config("orders"), c.handlers())
	if info := await(t, p, id, "a delivery", withStatus(tocsin.Done)); info.Crashes != 1 {
		t.Errorf("%+v", info)
	}
}
