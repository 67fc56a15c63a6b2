package node_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/node"
)

// newOpenPlace makes a cluster in which nobody owns tables, with closePolicy and more. It has no etcd.
func newOpenPlace(t *testing.T, more ...biztype.Policy) place {
	t.Helper()
	prefix := devtest.Prefix(t)
	return place{
		cfg: tocsin.Config{
			Layout: tocsin.Layout{Databases: 2, Tables: 8, Prefix: prefix}, Cluster: prefix,
			Servers: []tocsin.Server{{Name: "db1", DSN: devtest.DSN(t)}},
		},
		ownership: node.ByRows,
	}.made(t, append(more, closePolicy())...)
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
			if info := await(t, p, id, "a delivery", withStatus(tocsin.Done)); info.ClaimedBy == "" {
				t.Errorf("task %s was delivered without a claim", id)
			}
		}
	}
	deliver(1)
	if len(one.seen) == 0 || len(two.seen) == 0 {
		t.Errorf("one node delivered %d tasks, the other %d", len(one.seen), len(two.seen))
	}
	stopA()
	deliver(1001) // the other node has all tables at once, if only as a guest
	shares(t, 16, b)
	times := map[tocsin.JobID]int{}
	for _, c := range []*tallied{one, two} {
		for id, n := range c.seen {
			times[id] += n
		}
	}
	if len(times) != 400 {
		t.Errorf("%d tasks were delivered, want 400", len(times))
	}
	for id, n := range times {
		if n != 1 {
			t.Errorf("task %s was delivered %d times", id, n)
		}
	}
}

func TestANodeOfTheOtherKindIsRefused(t *testing.T) {
	t.Parallel()
	const nobody = "127.0.0.1:1"
	for name, c := range map[string]struct{ stored, node, etcd string }{
		"a node that claims rows, where tables have owners":   {node.ByEtcd, node.ByRows, devtest.Etcd(t)},
		"a node that owns tables, where every row is claimed": {node.ByRows, node.ByEtcd, devtest.Etcd(t)},
		"the same while etcd is away":                         {node.ByRows, node.ByEtcd, nobody},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newOpenPlace(t)
			if c.stored == node.ByEtcd {
				p = newPlace(t, closePolicy())
			}
			cfg := p.config("orders")
			cfg.Ownership, cfg.Etcd = c.node, node.EtcdConfig{Endpoints: []string{c.etcd}}
			n, err := node.New(cfg, (&tallied{}).handlers())
			if err != nil {
				t.Fatal(err)
			}
			err = n.Run(t.Context())
			if !errors.Is(err, tocsin.ErrLayout) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("%v", err)
			}
			for _, part := range []string{`ownership of this node is "` + c.node, `is "` + c.stored, "tocsin ddl ownership " + c.node, "node.Config.Ownership"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%v: says nothing of %q", err, part)
				}
			}
		})
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
	for i := range uint64(50) {
		await(t, p, add(t, p, orderClose.New(i+1, order{i}, tocsin.In(0))), "a delivery", withStatus(tocsin.Done))
	}
}

// What a process took and did not finish is delivered by another, although the claim outlives the process.
func TestAClaimThatRanOutIsDeliveredAgain(t *testing.T) {
	t.Parallel()
	p := newOpenPlace(t)
	id := add(t, p, orderClose.New(1, order{1}, tocsin.In(0)))
	db := openDB(t, devtest.DSN(t))
	if _, err := db.Exec("UPDATE "+p.cfg.Layout.Table(id.Table())+" SET status = 1, claimed_by = 'gone-1', action_time = UTC_TIMESTAMP(3) - INTERVAL 4 SECOND WHERE job_id = ?", id); err != nil {
		t.Fatal(err)
	}
	c := &tallied{seen: map[tocsin.JobID]int{}}
	run(t, p.config("orders"), c.handlers())
	if info := await(t, p, id, "a delivery", withStatus(tocsin.Done)); info.Crashes != 1 {
		t.Errorf("%+v", info)
	}
}
