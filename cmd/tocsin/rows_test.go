package main

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/internal/devcluster"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
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
	s.run("ddl", "apply", "--json").ok(t) // which shows no progress
	s.applyCallbacks(c)
	return s, c
}

// end stops a node in order, and wants exit code 0.
func (n *serving) end(t *testing.T) {
	t.Helper()
	if err := n.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := n.Wait(); err != nil {
		t.Errorf("a node ended with %v", err)
	}
}

func TestDevWithoutEtcdDeliversItsSamples(t *testing.T) {
	t.Parallel()
	s := decodeText[devcluster.Summary](t, call(t, "dev", "--etcd=false", "--tasks", "200", "--over", "1s", "--exit", "--json").ended(t))
	if s.Delivered != 200 || s.Seen != 200 || s.Again != 0 || s.Early != 0 || s.Dead != 0 || s.Unsettled != 0 {
		t.Errorf("%+v", s)
	}
	if len(s.Nodes) != 2 || s.Nodes[0].Tables != 64 || s.Nodes[1].Tables != 64 || s.Nodes[0].Delivered+s.Nodes[1].Delivered != 200 {
		t.Errorf("nodes: %+v", s.Nodes)
	}
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
