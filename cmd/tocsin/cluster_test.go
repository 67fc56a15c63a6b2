package main

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/ownership"
	"github.com/tocsinhq/tocsin/operator/cluster"
)

// taker takes and drops tables without doing anything with them.
type taker struct{ took chan int }

func (h taker) Take(_ context.Context, revisions map[int]int64) error {
	h.took <- len(revisions)
	return nil
}

func (taker) Drop(context.Context, []int) error { return nil }

func (taker) Loosen(context.Context, string) error { return nil }

// node registers a node of a group with the types it handles, and returns its
// id once it owns so many tables. It leaves when the test ends.
func (s *site) node(group, name string, tables int, types ...string) string {
	s.t.Helper()
	h := taker{make(chan int, s.layout.Total())}
	return s.nodeOf(group, name, tables, h, h.took, types...)
}

// nodeOf is node with another holder, which tells what it took.
func (s *site) nodeOf(group, name string, tables int, h assign.Holder, took <-chan int, types ...string) string {
	s.t.Helper()
	client, err := assign.Dial(s.t.Context(), assign.EtcdConfig{Endpoints: []string{devtest.Etcd(s.t)}})
	if err != nil {
		s.t.Fatal(err)
	}
	identity := s.identity
	node, err := assign.New(assign.Config{
		Client: client, Cluster: s.prefix, Group: group, Node: name, Tables: s.layout.Total(),
		Identity: func() assign.Identity { return identity },
		Info:     assign.NodeInfo{Version: "1.2.3", Types: types, Listen: "127.0.0.1:9", Started: time.Now()},
	}, h)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, leave := context.WithCancel(context.Background())
	left := make(chan error, 1)
	go func() { left <- node.Run(ctx) }()
	s.t.Cleanup(func() {
		leave()
		if err := <-left; err != nil {
			s.t.Error(err)
		}
		_ = client.Close()
	})
	for owned := 0; owned < tables; {
		select {
		case n := <-took:
			owned += n
		case <-time.After(runWithin):
			s.t.Fatalf("node %s owns %d tables, want %d", name, owned, tables)
		}
	}
	return node.ID()
}

func TestClusterWithoutNodes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.run("cluster", "nodes").says(t, "no nodes: start one with `tocsin serve`")
	if out := s.run("cluster", "nodes", "--json").ok(t); strings.TrimSpace(out) != "[]" {
		t.Errorf("got %s", out)
	}
	s.add(1)
	s.run("cluster", "tables").says(t,
		"group callback: 0 of 8 tables owned", "group orders: 0 of 8 tables owned",
		"(nobody)  8       1        0        0     -               0-7")
}

func TestClusterNodesAndTables(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.node("orders", "host-a", 8, "order.close", "order.ship")
	callback := s.node("callback", "host-c", 8)
	s.run("cluster", "nodes", "--group", "orders").says(t, "group orders: 1 node\n", a, "1.2.3", "127.0.0.1:9", "order.close, order.ship")
	b := s.node("orders", "host-b", 4, "order.close")
	s.run("cluster", "nodes").says(t, "group callback: 1 node", callback, "group orders: 2 nodes", a, b,
		"note: "+b+" has no handler for order.ship")
	groups := decode[[]cluster.Group](t, s.run("cluster", "nodes", "--json", "--group", "orders"))
	if len(groups) != 1 || groups[0].Group != "orders" || len(groups[0].Nodes) != 2 {
		t.Fatalf("got %+v", groups)
	}
	for _, n := range groups[0].Nodes {
		if n.Tables != 4 || n.Weight != 1 || n.TTL <= 0 || !n.Differs {
			t.Errorf("got %+v", n)
		}
	}
}

func TestClusterTablesSayWhatWaits(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	node := s.node("orders", "host-a", 8)
	s.add(1)
	dead, late := s.add(2), s.add(3)
	s.set(dead, "status = 4")
	s.set(late, "action_time = UTC_TIMESTAMP(3) - INTERVAL 90 MINUTE")
	s.run("task", "add", "--type", "coupon.remind", "--biz-id", "1", "--in", "1h").ok(t)
	s.run("cluster", "tables", "--group", "orders").says(t, "group orders: 8 of 8 tables owned", node+"  8       2        0        1     1h3", "  0-7")
	groups := decode[[]cluster.Tables](t, s.run("cluster", "tables", "--json"))
	if len(groups) != 2 || groups[0].Group != "callback" || groups[0].Owned != 0 || groups[0].Shares[0].Pending != 1 {
		t.Fatalf("got %+v", groups)
	}
	share := groups[1].Shares[0]
	if share.Node != node || share.Tables != 8 || share.Pending != 2 || share.Dead != 1 || share.Overdue < 5400 || share.Overdue > 6000 {
		t.Errorf("got %+v", share)
	}
	s.run("cluster", "tables", "--counts=false").says(t, node+"  8       -        -        -     -               0-7")
}

func TestTasksOfAPausedTypeAreNotOverdue(t *testing.T) {
	t.Parallel()
	s := newSite(t) // coupon.remind is paused
	for biz := range 4 {
		s.run("task", "add", "--type", "coupon.remind", "--biz-id", strconv.Itoa(biz+1), "--in", "0s").ok(t)
	}
	share := func() ownership.Share {
		return decode[[]cluster.Tables](t, s.run("cluster", "tables", "--group", "callback", "--json"))[0].Shares[0]
	}
	if got := share(); got.Pending != 4 || got.Overdue != 0 {
		t.Errorf("paused: got %+v", got)
	}
	s.run("cluster", "tables", "--group", "callback").says(t, "(nobody)  8       4        0        0     -               0-7")
	s.run("biz", "resume", "coupon.remind").ok(t)
	if got := share(); got.Pending != 4 || got.Overdue <= 0 {
		t.Errorf("resumed: got %+v", got)
	}
}

func TestClusterNodesDoesNotTakeAnOutageForNoNodes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.node("orders", "host-a", 8)
	s.exec("INSERT INTO {prefix}_0.owner (group_name, table_no, node, revision, gmt_modified) VALUES ('orders', 1, ?, 1, NOW())", id)
	good := s.yaml(s.layout, s.dsn())

	s.write("tocsin.yaml", withoutEtcd(good))
	r := s.run("cluster", "nodes")
	r.refused(t, exitFailed, "etcd 127.0.0.1:1")
	if !strings.HasPrefix(r.stdout, "group orders: etcd does not say which nodes are registered\n") || strings.Contains(r.stdout, "0 nodes") {
		t.Errorf("etcd down:\n%s", r.stdout)
	}
	if got := decodeText[[]cluster.Group](t, s.run("cluster", "nodes", "--json").stdout); len(got) != 1 || got[0].Nodes != nil || len(got[0].Unlisted) != 1 {
		t.Errorf("etcd down: got %+v", got)
	}

	s.write("tocsin.yaml", s.yaml(s.layout, "toc:hunter2@tcp(127.0.0.1:1)/"))
	r = s.run("cluster", "nodes")
	r.refused(t, exitFailed, "db1", "refused")
	if !strings.HasPrefix(r.stdout, "group orders: 1 node\n") || !strings.Contains(r.stdout, id) {
		t.Errorf("MySQL down:\n%s", r.stdout)
	}

	for what, yaml := range map[string]string{
		"both down":               withoutEtcd(s.yaml(s.layout, "toc:hunter2@tcp(127.0.0.1:1)/")),
		"MySQL down, and no node": strings.Replace(s.yaml(s.layout, "toc:hunter2@tcp(127.0.0.1:1)/"), "cluster: ", "cluster: x", 1),
	} {
		s.write("tocsin.yaml", yaml)
		r := s.run("cluster", "nodes")
		r.refused(t, exitFailed, "db1", "refused")
		if r.stdout != "" {
			t.Errorf("%s: prints %q", what, r.stdout)
		}
	}
}

func TestClusterTablesShowOwnersAlsoWhereAServerIsDown(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	node := s.node("orders", "host-a", 8)
	s.write("tocsin.yaml", s.yaml(s.layout, "toc:hunter2@tcp(127.0.0.1:1)/"))
	r := s.run("cluster", "tables")
	r.refused(t, exitFailed, "db1")
	if !strings.Contains(r.stdout, node) {
		t.Errorf("the owners are not shown:\n%s", r.stdout)
	}
}
