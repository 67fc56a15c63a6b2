package main

import (
	"fmt"
	"strings"
	"testing"
)

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
	s.run("cluster", "plan", "--add", "-1").refused(t, exitUsage, "--add -1: give 0 to 200 nodes")
}

func TestClusterDrainMovesANodesTablesToTheOthersUntilUndone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.node("orders", "host-a", 8)
	s.run("cluster", "drain", a).refused(t, exitFailed, a, "no other node of its group would take its tables")
	s.node("orders", "host-b", 4)
	s.run("cluster", "drain", a).says(t, "node "+a+" of group orders gives up its tables: see `tocsin cluster nodes`")
	s.ownedBy(map[string]int{"host-a": 0, "host-b": 8})
	s.run("cluster", "nodes").says(t, a+"  draining   1.2.3    1       0       0", "ownership  1.2.3    1       8       8")
	s.run("cluster", "plan").says(t, "group orders: 0 of 8 tables would move", a+"  0       0     0")
	d := decode[drained](t, s.run("cluster", "drain", a, "--undo", "--json"))
	if d != (drained{Node: a, Group: "orders"}) {
		t.Errorf("got %+v", d)
	}
	s.ownedBy(map[string]int{"host-a": 4, "host-b": 4})
	s.run("cluster", "drain", a, "--undo").refused(t, exitFailed, a, "it is not draining")
	s.run("cluster", "drain", "host-a").refused(t, exitFailed, `no live node "host-a"`)
	s.run("cluster", "drain").refused(t, exitUsage, "want ID")
	for _, args := range [][]string{{"drain", ""}, {"plan", "--remove", ""}} {
		r := s.run(append([]string{"__complete", "cluster"}, args...)...)
		if !strings.HasPrefix(r.stdout, a+"\torders\n") {
			t.Errorf("%v completes to:\n%s", args, r.stdout)
		}
	}
}

func TestClusterTablesDrawAGrid(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.node("orders", "host-a", 8)
	b := s.node("orders", "host-b", 4)
	s.run("cluster", "tables", "--group", "orders", "--counts=false", "--grid").says(t,
		"\n"+s.prefix+"_0 0  ", "\n"+s.prefix+"_1 0  ", "OVERDUE  MARK", a+"  4       -        -        -     -               A", b)
	out := s.run("cluster", "tables", "--grid").ok(t)
	if !strings.Contains(out, s.prefix+"_1 0  ....\n") {
		t.Errorf("the group callback has no node:\n%s", out)
	}
	if out := s.run("cluster", "tables").ok(t); strings.Contains(out, "MARK") {
		t.Errorf("a grid, though this is no terminal:\n%s", out)
	}
}
