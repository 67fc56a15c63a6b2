package node_test

import (
	"context"
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/node"
)

// tallied counts deliveries by task.
type tallied struct {
	mu   sync.Mutex
	seen map[tocsin.JobID]int
}

func (c *tallied) handle(_ context.Context, task *tocsin.Task[order]) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[task.JobID]++
	return nil
}

func (c *tallied) handlers() *node.Handlers {
	var h node.Handlers
	node.Handle(&h, orderClose, c.handle)
	return &h
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
	a, _ := run(t, p.config("orders"), c.handlers())
	b, _ := run(t, p.config("orders"), c.handlers())
	inMode := func(want node.Mode) {
		t.Helper()
		until(t, "both are in mode "+string(want), func() bool {
			ra, _ := a.Report()
			rb, _ := b.Report()
			return ra.Mode == want && rb.Mode == want && ra.Owned == 4 && rb.Owned == 4
		})
	}
	deliver := func(from uint64) []tocsin.JobID {
		t.Helper()
		var ids []tocsin.JobID
		for i := range uint64(100) {
			ids = append(ids, add(t, p, orderClose.New(from+i, order{i}, tocsin.In(0))))
		}
		for _, id := range ids {
			await(t, p, id, "a delivery", withStatus(tocsin.Done))
		}
		return ids
	}
	inMode(node.Ownership)
	deliver(1)
	if err := etcd.Stop(); err != nil {
		t.Fatal(err)
	}
	inMode(node.Claim)
	for _, id := range deliver(1001) {
		if info, _ := p.client.Get(t.Context(), id); info.ClaimedBy == "" {
			t.Fatalf("task %s was delivered without a claim", id)
		}
	}
	ownEtcd(t, &cfg)
	inMode(node.Ownership)
	deliver(2001)
	if len(c.seen) != 300 {
		t.Errorf("%d tasks were delivered, want 300", len(c.seen))
	}
	for id, n := range c.seen {
		if n != 1 {
			t.Errorf("task %s was delivered %d times", id, n)
		}
	}
}
