package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/operator"
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
	groups := decode[[]operator.Group](t, s.run("cluster", "nodes", "--json", "--group", "orders"))
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
	groups := decode[[]operator.Tables](t, s.run("cluster", "tables", "--json"))
	if len(groups) != 2 || groups[0].Group != "callback" || groups[0].Owned != 0 || groups[0].Shares[0].Pending != 1 {
		t.Fatalf("got %+v", groups)
	}
	share := groups[1].Shares[0]
	if share.Node != node || share.Tables != 8 || share.Pending != 2 || share.Dead != 1 || share.Overdue < 5400 || share.Overdue > 6000 {
		t.Errorf("got %+v", share)
	}
	s.run("cluster", "tables", "--counts=false").says(t, node+"  8       -        -        -     -               0-7")
	s.run("cluster", "tables", "--group", "orders", "--counts=false", "--grid").says(t,
		"\n"+s.prefix+"_0 0  AAAA\n", "\n"+s.prefix+"_1 0  AAAA\n", "OVERDUE  MARK", node+"  8       -        -        -     -               A")
	s.run("cluster", "tables", "--group", "callback", "--grid").says(t, s.prefix+"_1 0  ....\n")
}

// What nodes lack, which databases they miss, and which payloads they leave, and who makes up for it.
func TestClusterNodesHasNotesOfWhatNodesCanNotDo(t *testing.T) {
	t.Parallel()
	node := func(id string, info assign.NodeInfo) assign.NodeState { return assign.NodeState{ID: id, Info: info} }
	lacks := node("a", assign.NodeInfo{Lacks: map[string]string{"order.ship": "no secret"}})
	old := node("a", assign.NodeInfo{Types: []string{"order.ship"}, Newer: map[string]int{"order.ship": 2}})
	reads := node("b", assign.NodeInfo{Types: []string{"order.ship"}, Versions: map[string]int{"order.ship": 2}})
	for _, c := range []struct {
		nodes []assign.NodeState
		want  string
	}{
		{[]assign.NodeState{lacks}, "note: a can't deliver order.ship (no secret); no node of its group can: such tasks wait\n"},
		{[]assign.NodeState{lacks, reads}, "note: a can't deliver order.ship (no secret); others of its group stand in for it\n"},
		{[]assign.NodeState{old}, "note: a leaves tasks of order.ship whose payload has version 2, as it reads 1 at most; no node of its group reads it: such tasks wait\n"},
		{[]assign.NodeState{old, reads}, "note: a leaves tasks of order.ship whose payload has version 2, as it reads 1 at most; others of its group do\n"},
		{[]assign.NodeState{{ID: "a", Misses: []int{2, 3}}, {ID: "b", Misses: []int{3}}}, "note: a can't use the databases 2: their tables go to nodes that can; its log and status page say why (--ask)\n" +
			"note: a can't use the databases 3: no node of its group can, so their tables wait; its log and status page say why (--ask)\n" +
			"note: b can't use the databases 3: no node of its group can, so their tables wait; its log and status page say why (--ask)\n"},
	} {
		var out strings.Builder
		writeNodes(&out, c.nodes, time.Now())
		if _, notes, _ := strings.Cut(out.String(), "note: "); "note: "+notes != c.want {
			t.Errorf("%s, want %s", out.String(), c.want)
		}
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
	if got := decodeText[[]operator.Group](t, s.run("cluster", "nodes", "--json").stdout); len(got) != 1 || got[0].Nodes != nil || len(got[0].Unlisted) != 1 {
		t.Errorf("etcd down: got %+v", got)
	}

	s.write("tocsin.yaml", s.yaml(s.layout, "toc:hunter2@tcp(127.0.0.1:1)/"))
	r = s.run("cluster", "nodes")
	r.refused(t, exitFailed, "db1", "refused")
	if !strings.HasPrefix(r.stdout, "group orders: 1 node\n") || !strings.Contains(r.stdout, id) {
		t.Errorf("MySQL down:\n%s", r.stdout)
	}
	if r := s.run("cluster", "tables"); r.code != exitFailed || !strings.Contains(r.stderr, "db1") || !strings.Contains(r.stdout, id) {
		t.Errorf("MySQL down, exit code %d, want the owners:\n%s%s", r.code, r.stdout, r.stderr)
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

// Two sites have the same cluster id and etcd, as when a staging config is a copy of production's with other databases.
func TestTheCommandsTellTwoClustersWithOneIDApart(t *testing.T) {
	t.Parallel()
	production, staging := newSite(t), bareSite(t)
	staging.write("tocsin.yaml", strings.Replace(staging.yaml(staging.layout, staging.dsn()), "cluster: "+staging.prefix, "cluster: "+production.prefix, 1))
	staging.run("cluster", "adopt").refused(t, exitFailed, "run `tocsin ddl apply`")
	staging.applyDDL()
	production.run("cluster", "adopt").says(t, "etcd knows the cluster by "+production.prefix+"_0 to "+production.prefix+"_1 on db1 (identity ", "before: nothing")
	production.run("cluster", "adopt").says(t, "already")
	production.run("cluster", "nodes").says(t, noNodes)
	if d := decodeText[examined](t, production.run("doctor", "--json").stdout); strings.Contains(d.failures(), "etcd") {
		t.Errorf("doctor of production: %s", d.failures())
	}

	foreign := []string{"etcd knows the cluster by other databases", production.prefix + "_0", staging.prefix + "_0", "give one of the two clusters another id"}
	staging.run("cluster", "nodes").refused(t, exitFailed, foreign...)
	if r := staging.run("serve", "--listen", "off"); r.code != exitFailed || !strings.Contains(r.stderr, "tocsin: group: "+foreign[0]+`: "`+production.prefix) {
		t.Errorf("exit code %d, stderr %s", r.code, r.stderr)
	}
	if d := decodeText[examined](t, staging.run("doctor", "--json").stdout); !strings.Contains(d.failures(), "etcd: identity") {
		t.Errorf("doctor of staging: %s", d.failures())
	}

	was := decode[adopted](t, staging.run("cluster", "adopt", "--json"))
	if was.Before.ID == "" || was.Now.ID == "" || was.Before.ID == was.Now.ID || !strings.HasPrefix(was.Now.Databases, staging.prefix) {
		t.Errorf("adopted %+v", was)
	}
	production.run("cluster", "adopt").ok(t)
	production.nodeIn(assign.Identity{ID: was.Before.ID, Databases: "toc_0 on db1"}, "orders", "host-a")
	staging.run("cluster", "adopt").refused(t, exitFailed, "nodes with other databases are registered: stop host-a-", "toc_0 on db1")
}

// nodeIn registers a node whose databases have an identity.
func (s *site) nodeIn(i assign.Identity, group, name string) string {
	s.t.Helper()
	s.identity = i
	return s.node(group, name, s.layout.Total())
}

// A drain waits until the node has no table left or its time is over, and lasts until it is undone.
func TestClusterDrain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	h := clinging{taker{make(chan int, s.layout.Total())}, &atomic.Bool{}}
	a := s.nodeOf("orders", "host-a", 8, h, h.took)
	t.Cleanup(func() { h.free.Store(true) })
	s.run("cluster", "drain", a).refused(t, exitFailed, a, "no other node of its group would take its tables")
	b := s.node("orders", "host-b", 0)
	s.run("cluster", "drain", a, "--wait", "--timeout", "2s").
		refused(t, exitFailed, "node "+a+" still has 8 tables after 2s, 0-7, and drains on")
	h.free.Store(true)
	s.run("cluster", "drain", a, "--wait").says(t, "node "+a+" of group orders has no table left")
	s.ownedBy(map[string]int{"host-a": 0, "host-b": 8})
	s.run("cluster", "nodes").says(t, a+"  draining   1.2.3    1       0       0", "ownership  1.2.3    1       8       8")
	s.run("cluster", "plan").says(t, "group orders: 0 of 8 tables would move", a+"  0       0     0", b+"  1       8     8")
	s.run("cluster", "drain", a).says(t, "node "+a+" of group orders gives up its tables: see `tocsin cluster nodes`")
	d := decode[drained](t, s.run("cluster", "drain", a, "--wait", "--json"))
	if d.Tables == nil || *d.Tables != 0 || !d.Draining {
		t.Errorf("got %+v", d)
	}
	if d := decode[drained](t, s.run("cluster", "drain", a, "--undo", "--json")); d != (drained{Node: a, Group: "orders"}) {
		t.Errorf("got %+v", d)
	}
	s.ownedBy(map[string]int{"host-a": 4, "host-b": 4})
	s.run("cluster", "drain", a, "--undo").refused(t, exitFailed, a, "it is not draining")
	s.run("cluster", "drain", "host-a").refused(t, exitFailed, `no live node "host-a"`)
	s.run("cluster", "drain", b, "--wait", "--undo").refused(t, exitUsage, "not both")
	s.run("cluster", "drain", b, "--wait", "--timeout", "-1s").refused(t, exitUsage, "--timeout -1s")
	s.run("cluster", "drain", b, "--timeout", "1s").refused(t, exitUsage, "with --wait")
	for _, args := range [][]string{{"drain", ""}, {"plan", "--remove", ""}} {
		if r := s.run(append([]string{"__complete", "cluster"}, args...)...); !strings.HasPrefix(r.stdout, a+"\torders\n") {
			t.Errorf("%v completes to:\n%s", args, r.stdout)
		}
	}
}

// cutOff starts a node whose way to etcd can be cut, and returns the way and the address of its status page.
func cutOff(s *site, name string) (way *devtest.Relay, page string) {
	s.t.Helper()
	way = devtest.NewRelay(s.t, devtest.Etcd(s.t))
	page = devtest.FreeAddress()
	s.write("cut.yaml", strings.Replace(s.yaml(s.layout, s.dsn()), devtest.Etcd(s.t), way.Addr, 1))
	s.serve(name, "--config", "cut.yaml", "--listen", page)
	return way, page
}

// clinging gives up nothing until it is told to.
type clinging struct {
	taker
	free *atomic.Bool
}

func (h clinging) Drop(_ context.Context, tables []int) error {
	if h.free.Load() {
		return nil
	}
	return &assign.Refused{Tables: tables, Err: context.DeadlineExceeded}
}

func TestClusterPlanShowsWhatWouldMoveAndMovesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.run("cluster", "plan").says(t, noNodes)
	a := s.node("orders", "host-a", 8)
	b := s.node("orders", "host-b", 4)
	s.node("callback", "host-c", 8)
	s.run("cluster", "plan").says(t,
		"group callback: 0 of 8 tables would move, the least possible is 0", "group orders: 0 of 8 tables would move")
	s.run("cluster", "plan", "--group", "orders", "--add", "2").says(t,
		"group orders: 4 of 8 tables would move, the least possible is 4", "WOULD OWN",
		a+"  1       4     2", "new-2            1       0     2", a+"  new-1  1", b+"  new-2  1")
	plans := decode[[]groupPlan](t, s.run("cluster", "plan", "--remove", a, "--add", "1", "--json"))
	if len(plans) != 1 || plans[0].Group != "orders" || plans[0].Moves != 4 || plans[0].Least != 4 || plans[0].Tables != 8 {
		t.Fatalf("got %+v", plans)
	}
	if got := fmt.Sprint(plans[0].Flows); got != fmt.Sprintf("[{%s new-1 4}]", a) {
		t.Errorf("flows %s", got)
	}
	s.run("cluster", "plan", "--remove", a, "--remove", b).says(t, a+"  (nobody)  4", b+"  (nobody)  4")
	s.ownedBy(map[string]int{"host-a": 4, "host-b": 4, "host-c": 8})
	s.run("cluster", "plan", "--remove", "host-a").refused(t, exitFailed, `no live node "host-a"`, "cluster nodes")
	s.run("cluster", "plan", "--remove", a, "--group", "callback").refused(t, exitFailed, "no live node", a)
	s.run("cluster", "plan", "--add", "201").refused(t, exitUsage, "--add 201: use 0 to 200")
	s.run("cluster", "plan", "--add", "-1").refused(t, exitUsage, "--add -1: use 0 to 200")
}

// nodes are the live ones of all groups.
func (s *site) nodes() (all []assign.NodeState) {
	s.t.Helper()
	for _, g := range decode[[]operator.Group](s.t, s.run("cluster", "nodes", "--json")) {
		all = append(all, g.Nodes...)
	}
	return all
}
