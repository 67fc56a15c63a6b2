package main

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/operator"
)

// byRows makes the config one of a cluster without etcd.
func byRows(yaml string) string {
	return strings.Replace(yaml[:strings.Index(yaml, "etcd:")], "layout:\n", "layout:\n  ownership: rows\n", 1)
}

// rowsSite has callbacks, and no etcd.
func rowsSite(t *testing.T) (*site, *callbacks) {
	t.Helper()
	s, c := bareSite(t), newCallbacks(t)
	s.write("etcd.yaml", s.text("tocsin.yaml"))
	s.write("tocsin.yaml", byRows(s.text("tocsin.yaml")))
	s.applyDDL()
	s.applyCallbacks(c)
	return s, c
}

func TestAClusterWithoutEtcdDeliversAndShowsItsNodes(t *testing.T) {
	t.Parallel()
	s, c := rowsSite(t)
	one := s.serve("one")
	s.ownedBy(map[string]int{"one": s.layout.Total()})
	s.serve("two")
	s.ownedBy(map[string]int{"one": s.layout.Total() / 2, "two": s.layout.Total() / 2})
	s.fill(300, time.Second)
	s.waitFor("all tasks are done", func() bool { return s.notDone() == 0 })
	if seen, again, _ := c.counts(); seen != 300 || again != 0 {
		t.Errorf("%d tasks were delivered, %d of them more than once", seen, again)
	}
	s.run("cluster", "nodes").says(t, "group callback: 2 nodes", "one-", "two-", "rows")
	s.run("cluster", "tables").says(t, "one-", "two-")
	if found := s.run("doctor").stdout; !strings.Contains(found, "not needed: layout.ownership is rows") {
		t.Errorf("doctor says\n%s", found)
	}
	s.run("audit").ok(t)
	for _, command := range [][]string{{"plan"}, {"drain", "one-abcdefgh"}, {"adopt"}} {
		s.run(append([]string{"cluster"}, command...)...).refused(t, exitFailed, "nobody owns tables")
	}
	one.end(t)
	s.ownedBy(map[string]int{"two": s.layout.Total()})
}

func TestTheOwnershipIsChangedWithAllNodesStopped(t *testing.T) {
	t.Parallel()
	s, c := rowsSite(t)
	etcd, rows := []string{"--config", "etcd.yaml"}, []string{}
	run := func(config []string, args ...string) result { return s.run(append(args, config...)...) }
	delivers := func(tasks int, config ...string) {
		t.Helper()
		before, _, _ := c.counts()
		n := s.serve("one", config...)
		s.fill(tasks, 0)
		s.waitFor("all tasks are done", func() bool { return s.notDone() == 0 })
		if seen, again, _ := c.counts(); seen != before+tasks || again != 0 {
			t.Errorf("%d tasks were delivered, %d of them more than once", seen-before, again)
		}
		to := "etcd"
		if len(config) > 0 {
			to = "rows"
		}
		run(etcd, "ddl", "ownership", to).refused(t, exitFailed, "one-", "stop all nodes")
		n.end(t)
	}
	refuses := func(config []string, parts ...string) {
		t.Helper()
		run(config, "serve", "--listen", "off").refused(t, exitFailed, parts...)
	}
	delivers(50)
	refuses(etcd, `is "rows"`, "tocsin ddl ownership etcd")
	run(etcd, "ddl", "ownership", "etcd").says(t, "ownership is etcd", "databases were changed")
	run(etcd, "ddl", "ownership", "etcd").says(t, "already")
	refuses(rows, `is "etcd"`, "tocsin ddl ownership rows")
	run(rows, "ddl", "apply").refused(t, exitFailed, `is "etcd"`, "tocsin ddl ownership rows")
	delivers(50, etcd...)
	run(etcd, "ddl", "ownership", "rows").says(t, "ownership is rows")
	delivers(50)
	run(rows, "ddl", "ownership", "both").refused(t, exitUsage, "want etcd or rows")
	run(rows, "ddl", "verify").ok(t)
}

// A node that starts while etcd is away delivers what is overdue, and owns its tables when etcd is there.
func TestANodeThatStartsWithoutEtcdSweepsUntilItAnswers(t *testing.T) {
	t.Parallel()
	s, c := callbackSite(t)
	etcd := s.ownEtcd()
	if err := etcd.Stop(); err != nil {
		t.Fatal(err)
	}
	s.write("tocsin.yaml", s.text("tocsin.yaml")+"sweep:\n  grace: 1s\n")
	s.run("ddl", "grace", "1s", "--force").ok(t)
	s.fill(50, 0)
	page := devtest.FreeAddress()
	s.serve("early", "--listen", page)
	s.waitFor("the node says that it sweeps", func() bool { return s.mode(page) == "sweep" })
	exports := func(line string) bool {
		_, text := get(t, http.DefaultClient, "http://"+page+"/metrics", "")
		return strings.Contains(text, "\n"+line+"\n")
	}
	if !exports(`tocsin_node_mode{mode="sweep"} 1`) || !exports(`tocsin_node_mode{mode="ownership"} 0`) {
		t.Error("its mode is not among its metrics")
	}
	s.waitFor("what is overdue is delivered", func() bool { return s.notDone() == 0 })
	etcd.start()
	s.ownedBy(map[string]int{"early": s.layout.Total()})
	if !exports(`tocsin_node_mode{mode="sweep"} 0`) || !exports(`tocsin_node_mode{mode="ownership"} 1`) {
		t.Error("its mode among the metrics is not that of an owner")
	}
	s.fill(50, 0)
	s.waitFor("all tasks are done", func() bool { return s.notDone() == 0 })
	if seen, again, _ := c.counts(); seen != 100 || again != 0 {
		t.Errorf("%d tasks were delivered, %d of them more than once", seen, again)
	}
}

// faults returns doctor's complaints about what nodes deliver.
func (s *site) faults() (all []string) {
	s.t.Helper()
	for _, c := range decodeText[examined](s.t, s.run("doctor", "--json").stdout).Checks {
		if (c.Check == "handlers" || c.Check == "delivered") && c.Level != "ok" {
			all = append(all, c.Level+" "+c.Is)
		}
	}
	return all
}

func TestHandlersWithoutTasksAndGroupsWithoutNodesAreShown(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	if got := s.faults(); got != nil {
		t.Errorf("before a node was started, doctor says %q", got)
	}
	shop := s.node("shop", "host-a", 8, "order.close", "order.opne")
	s.run("cluster", "nodes").says(t,
		"note: "+shop+" of group shop: the handler of order.close gets no task, as its policy names group orders; to mend it, start these nodes in group orders, or name group shop in the policy",
		"note: "+shop+" of group shop: the handler of order.opne gets no task, as this biz type has no policy; to mend it, apply one with `tocsin biz apply`, or remove the handler",
		"group orders: 0 nodes\nnote: no node of group orders runs: tasks of order.close wait; to mend it, start a node of group orders",
		"group callback: 0 nodes\nnote: no node of group callback runs: tasks of coupon.remind wait")
	want := []string{
		"warn no node of group callback runs: tasks of coupon.remind wait", "fail no node of group orders runs: tasks of order.close wait",
		"warn " + shop + " of group shop: the handler of order.close gets no task, as its policy names group orders",
		"warn " + shop + " of group shop: the handler of order.opne gets no task, as this biz type has no policy",
	}
	if got := s.faults(); !slices.Equal(got, want) {
		t.Errorf("doctor says %q, want %q", got, want)
	}
	groups := decode[[]operator.Group](t, s.run("cluster", "nodes", "--json", "--group", "shop"))
	if len(groups) != 1 || len(groups[0].Faults) != 2 || groups[0].Faults[0].Fix == "" {
		t.Errorf("group shop: %+v", groups)
	}
	s.node("orders", "host-b", 8, "order.close")
	out := s.run("cluster", "nodes").ok(t)
	if strings.Contains(out, "no node of group orders") || !strings.Contains(out, shop+" of group shop: the handler of order.close gets no task") {
		t.Errorf("with a node of the right group:\n%s", out)
	}
}
