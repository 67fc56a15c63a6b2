package main

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/operator/cluster"
)

// cutOff starts a node whose way to etcd can be cut, and says where its status
// page is.
func cutOff(s *site, name string) (way *devtest.Relay, page string) {
	s.t.Helper()
	return cutOffFrom(s, name, devtest.Etcd(s.t))
}

// cutOffFrom is cutOff from another etcd.
func cutOffFrom(s *site, name, etcd string) (way *devtest.Relay, page string) {
	s.t.Helper()
	way = devtest.NewRelay(s.t, etcd)
	page = devtest.FreeAddress()
	s.write("cut.yaml", strings.Replace(s.yaml(s.layout, s.dsn()), devtest.Etcd(s.t), way.Addr, 1))
	s.serve(name, "--config", "cut.yaml", "--listen", page)
	return way, page
}

func TestClusterNodesShowsANodeInClaimMode(t *testing.T) {
	t.Parallel()
	s, _ := callbackSite(t)
	way, page := cutOff(s, "lonely")
	s.ownedBy(map[string]int{"lonely": 8})
	id := s.nodes()[0].ID
	s.run("cluster", "nodes", "--ask", page).says(t, id+"  ownership", page+"  "+id+"  ownership")
	way.Cut()
	s.waitFor("the node is not listed any more", func() bool { return len(s.nodes()) == 0 })
	s.run("cluster", "nodes").says(t, "note: "+id+" is not registered and took 8 tables last, which nobody has now")
	s.run("cluster", "nodes", "--ask", page).says(t, page+"  "+id+"  claim")
	s.write("without.yaml", withoutEtcd(s.yaml(s.layout, s.dsn())))
	r := s.run("cluster", "nodes", "--ask", page, "--config", "without.yaml")
	r.refused(t, exitFailed, "etcd 127.0.0.1:1")
	if !strings.Contains(r.stdout, id+"  claim") || !strings.Contains(r.stdout, id+" is not registered") {
		t.Errorf("without etcd:\n%s", r.stdout)
	}
	groups := decode[[]cluster.Group](t, s.run("cluster", "nodes", "--json", "--ask", page+",127.0.0.1:1"))
	if len(groups) != 1 || len(groups[0].Unlisted) != 1 || groups[0].Unlisted[0] != (cluster.LastOwner{ID: id, Tables: 8}) || len(groups[0].Asked) != 2 ||
		groups[0].Asked[0].Report.Mode != "claim" || !strings.Contains(groups[0].Asked[1].Error, "refused") {
		t.Errorf("got %+v", groups)
	}
	s.run("cluster", "nodes", "--ask", "nowhere").refused(t, exitUsage, `--ask "nowhere": want host:port`)
	way.Mend(t)
	s.ownedBy(map[string]int{"lonely": 8})
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

func TestClusterDrainWaits(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	h := clinging{taker{make(chan int, s.layout.Total())}, &atomic.Bool{}}
	a := s.nodeOf("orders", "host-a", 8, h, h.took)
	t.Cleanup(func() { h.free.Store(true) })
	b := s.node("orders", "host-b", 0)
	s.run("cluster", "drain", a, "--wait", "--timeout", "2s").
		refused(t, exitFailed, "node "+a+" still has 8 tables after 2s, 0-7, and drains on")
	h.free.Store(true)
	s.run("cluster", "drain", a, "--wait").says(t, "node "+a+" of group orders has no table left")
	s.ownedBy(map[string]int{"host-a": 0, "host-b": 8})
	d := decode[drained](t, s.run("cluster", "drain", a, "--wait", "--json"))
	if d.Tables == nil || *d.Tables != 0 || !d.Draining {
		t.Errorf("got %+v", d)
	}
	s.run("cluster", "drain", b, "--wait", "--undo").refused(t, exitUsage, "not both")
	s.run("cluster", "drain", b, "--wait", "--timeout", "-1s").refused(t, exitUsage, "--timeout -1s")
	s.run("cluster", "drain", b, "--timeout", "1s").refused(t, exitUsage, "with --wait")
}
