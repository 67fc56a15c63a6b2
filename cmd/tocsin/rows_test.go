package main

import (
	"errors"
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
	if r := s.run("top", "--once"); r.code != exitFailed || !strings.Contains(r.stdout, "0 of 0 nodes answer; no rates yet") || !strings.Contains(r.stdout, noNodes) {
		t.Errorf("top: exit code %d:\n%s", r.code, r.stdout)
	}
	one := s.serve("one", "--listen", devtest.FreeAddress())
	s.ownedBy(map[string]int{"one": s.layout.Total()})
	s.run("top", "--once", "--interval", "5s").says(t, "1 of 1 nodes answer", "callback  rows  8       8")
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

func TestHandlersWithoutTasksAndGroupsWithoutNodesAreShown(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	shop := s.node("shop", "host-a", 8, "order.close", "order.opne")
	s.run("cluster", "nodes").says(t,
		"note: "+shop+" of group shop: the handler of order.close gets no task, as its policy names group orders; to mend it, start these nodes in group orders, or name group shop in the policy",
		"note: "+shop+" of group shop: the handler of order.opne gets no task, as this biz type has no policy; to mend it, apply one with `tocsin biz apply`, or remove the handler",
		"group orders: 0 nodes\nnote: no node of group orders runs: tasks of order.close wait; to mend it, start a node of group orders",
		"group callback: 0 nodes\nnote: no node of group callback runs: tasks of coupon.remind wait")
	doctor := s.doctor()
	doctor.finding(t, "warn", "handlers", shop+" of group shop: the handler of order.close gets no task, as its policy names group orders")
	doctor.finding(t, "warn", "delivered", "no node of group callback runs: tasks of coupon.remind wait")
	doctor.finding(t, "fail", "delivered", "no node of group orders runs: tasks of order.close wait")
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

// actSweep sweeps where tables have owners, and where claims are made under sessions; if a right is missing, where that shows.
func (u *roleUser) actSweep() error {
	if !u.lacks || !u.byRows {
		if err := u.sweepIn("etcd"); err != nil || u.lacks {
			return err
		}
	}
	return u.sweepIn("rows")
}

func (u *roleUser) sweepIn(ownership string) error {
	for db := range u.layout.Databases {
		u.exec("UPDATE " + u.layout.Database(db) + ".layout SET ownership = '" + ownership + "'")
	}
	u.age(0, 1)
	u.overdue("coupon.remind", 8)
	id := u.addOne("coupon.remind") // one whose claim ran out
	u.set(id, "status = 1, claimed_by = 'gone', action_time = UTC_TIMESTAMP(3) - INTERVAL 10 MINUTE")
	u.hourly("hourly"+ownership, -time.Second)
	sweep := "sweep --once"
	if u.lacks {
		sweep += " --timeout 5s" // it tries again until its time is over
	}
	return errors.Join(u.runAll(sweep), u.left("status = 1"), u.left("status <> 2 AND biz_id < 99"), u.recorded())
}
