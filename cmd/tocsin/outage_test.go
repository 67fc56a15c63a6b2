package main

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/operator"
	"github.com/tocsinhq/tocsin/upkeep"
)

// bizIDIn gives a biz_id whose tasks are in the database.
func (s *site) bizIDIn(database int) string {
	for n := uint64(1); ; n++ {
		if s.layout.DatabaseOf(s.layout.TableOf(n)) == database {
			return fmt.Sprint(n)
		}
	}
}

// Each command does what the other server allows, and names the one that is down without its password.
func TestWithOneServerDownTheOtherStillServes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.write("tocsin.yaml", s.splitYAML("toc:hunter2@tcp(127.0.0.1:1)/"))
	fails := func(line string) string {
		t.Helper()
		r := s.run(strings.Fields(line)...)
		if r.refused(t, exitFailed, "db2", "refused"); strings.Contains(r.stderr, "hunter2") {
			t.Errorf("tells the password: %s", r.stderr)
		}
		return r.stdout
	}
	const add = "task add --type order.close --in 1h --biz-id "
	s.run(strings.Fields(add+s.bizIDIn(0))...).says(t, "pending")
	fails(add + s.bizIDIn(1))
	s.run("task", "list", "--biz-id", s.bizIDIn(0)).says(t, "pending")
	s.run("biz", "list").says(t, "order.close")
	if n := s.rows(); n != 1 {
		t.Errorf("%d tasks are stored, want 1", n)
	}
	for line, want := range map[string]string{
		"task redrive --all":             "0 dead tasks redriven\n",
		"task list --status pending":     "order.close  biz_id ",
		"task list --status dead":        "no dead tasks in what could be read\n",
		"task list --status dead --json": "[]\n",
		"schedule list":                  "no schedules in what could be read\n",
		"biz stats":                      "not counted in full: db2\n",
		"cluster tables":                 "not counted in full: db2\n",
		"audit":                          "audit: no fault in what could be read; not read in full: db2; 4 tables, ",
	} {
		if said := fails(line); !strings.Contains(said, want) {
			t.Errorf("%s: no %q in %q", line, want, said)
		}
	}
	if got := decodeText[upkeep.PurgeResult](t, fails("purge --json")); got.Tables != 4 || !slices.Equal(got.Failed, []string{"db2"}) {
		t.Errorf("purge: %+v", got)
	}
	if got := decodeText[upkeep.AuditReport](t, fails("audit --json")); got.Tables != 4 || !slices.Equal(got.Failed, []string{"db2"}) {
		t.Errorf("audit: %+v", got)
	}
	s.write("biz.yaml", strings.Replace(bizYAML, "attempts: 3", "attempts: 5", 1))
	if got := decodeText[appliedBiz](t, fails("biz apply biz.yaml --json")); got.Databases != 1 {
		t.Errorf("biz apply: %+v", got)
	}
	s.run("biz", "show", "order.close").says(t, "attempts: 5")
	s.user("SELECT ON {prefix}_0.layout", "SELECT ON {prefix}_1.layout", "SELECT ON {prefix}_0.biz_type", "SELECT ON {prefix}_1.biz_type")
	for _, line := range []string{"task list --status pending --json", "biz stats", "biz stats --json"} {
		r := s.run(strings.Fields(line)...)
		if r.refused(t, exitFailed, "SELECT command denied"); r.stdout != "" {
			t.Errorf("%s prints of tables that it may not read: %s", line, r.stdout)
		}
	}
}

// Every command does its work on the correct database, names the wrong one once, and fails. The other ways of a database to be wrong
// are played in packages store and node.
func TestCommandsGoOnBesideAWrongDatabase(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	says := s.prefix + "_1 on db1 has no layout table"
	for database := range 2 {
		n, err := strconv.Atoi(s.bizIDIn(database))
		if err != nil {
			t.Fatal(err)
		}
		s.settled(n, tocsin.Done, "31 DAY")
		s.settled(n, tocsin.Pending, "1 HOUR")
	}
	s.exec("RENAME TABLE {prefix}_1.layout TO {prefix}_1.away")
	s.node("orders", "host", 1)
	const add = "task add --type order.close --in 1h --biz-id "
	s.run(strings.Fields(add+s.bizIDIn(0))...).says(t, "pending")
	s.write("biz.yaml", strings.Replace(bizYAML, "attempts: 3", "attempts: 5", 1))
	for _, c := range []struct{ line, want string }{
		{"sweep", "sweep: 4 tables, 1 overdue, "}, {"audit", "overdue 1; not read in full: db1; 4 tables, "}, {"purge", "purge: 4 tables, 1 done, "},
		{"biz apply biz.yaml", " 1 databases written"}, {"biz pause order.close", " 1 databases written"}, {add + s.bizIDIn(1), ""},
	} {
		r := s.run(strings.Fields(c.line)...)
		r.refused(t, exitFailed, says)
		if n := strings.Count(r.stderr, says); n > 1 || !strings.Contains(r.stdout, c.want) {
			t.Errorf("%s names the database %d times, want %q:\n%s%s", c.line, n, c.want, r.stdout, r.stderr)
		}
	}
	for _, line := range []string{"cluster nodes", "doctor"} {
		if r := s.run(strings.Fields(line)...); r.code != exitFailed || !strings.Contains(r.stdout+r.stderr, says) {
			t.Errorf("%s: exit code %d, want %s:\n%s%s", line, r.code, says, r.stdout, r.stderr)
		}
	}
	s.run("biz", "show", "order.close").says(t, "attempts: 5", "paused: true")
	if n := s.answered("SELECT 1 FROM " + s.layout.Database(1) + ".biz_type WHERE number = 1 AND policy NOT LIKE '%paused%' AND revision < (SELECT MAX(revision) FROM " + s.layout.Database(0) + ".biz_type WHERE number = 1)"); n != 1 {
		t.Error("the wrong database was written")
	}
}

func TestAFrozenServerHoldsUpNoListForLong(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	m := startServer(t, devserver.MariaDBConfig{})
	s.exec("DROP DATABASE {prefix}_1")
	s.write("tocsin.yaml", s.splitYAML(m.DSN()))
	s.run("ddl", "apply").ok(t)
	s.run("biz", "apply", "biz.yaml").ok(t)
	s.run("task", "add", "--type", "order.close", "--in", "1h", "--biz-id", s.bizIDIn(0)).ok(t)
	if err := syscall.Kill(m.Pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var lists sync.WaitGroup
	for line, want := range map[string]string{
		"task list --status pending": "order.close  biz_id ", "schedule list": "no schedules in what could be read", "biz stats": "order.close    1 ",
	} {
		lists.Go(func() {
			r := s.run(strings.Fields(line)...)
			if r.code != exitFailed || !strings.Contains(r.stdout, want) || !strings.Contains(r.stderr, "on db2: no answer within ") {
				t.Errorf("%s: exit code %d\n%s%s", line, r.code, r.stdout, r.stderr)
			}
		})
	}
	lists.Go(func() {
		got := s.doctor()
		got.finding(t, "fail", "reachable", "read the clock on db2: no answer within 10", "it hangs: see docs/runbook.md#tocsinserverhangs")
		got.finding(t, "ok", "identity", "none other in etcd")
	})
	lists.Wait()
}

// While an endpoint is down its tasks wait and use no attempt; once it is back, all come once.
func TestTasksWaitWithoutAnAttemptWhileTheirEndpointIsDown(t *testing.T) {
	t.Parallel()
	const tasks = 1000
	s, c := callbackSite(t)
	c.Close()
	s.overdue("coupon.remind", 5)
	swept := s.run("sweep", "--once", "--timeout", "5m", "--json")
	if swept.code != exitFailed || !strings.HasSuffix(swept.stderr, "tocsin: overdue tasks are left: coupon.remind (target away): 5\n") || !strings.Contains(swept.stderr, "connection refused") {
		t.Errorf("exit code %d, stderr:\n%s", swept.code, swept.stderr)
	}
	if got := decodeText[node.SweepResult](t, swept.stdout); got.Overdue != 5 || got.Left["coupon.remind (target away)"] != 5 || got.Delivered+got.Unread+got.CutOff != 0 || got.TimedOut {
		t.Errorf("%s", swept.stdout)
	}
	if n := s.counted("status = 0 AND attempts + crashes = 0 AND action_time < UTC_TIMESTAMP() - INTERVAL 9 MINUTE"); n != 5 {
		t.Errorf("%d of 5 tasks wait as they were", n)
	}
	s.emptied()
	s.fill(tasks, 0)
	for database := range 2 { // a fallback that no config has, which `biz apply` would refuse
		s.exec(fmt.Sprintf(`UPDATE {prefix}_%d.biz_type SET policy = JSON_SET(policy, '$.fallback', JSON_OBJECT('sink', JSON_OBJECT('name', 'gone'))), revision = revision + 1 WHERE name = 'coupon.remind'`, database))
	}
	page := s.servePage("owner")
	s.ownedBy(map[string]int{"owner": 8})
	id, last := s.nodes()[0].ID, s.adding("coupon.remind", tasks+1, "0s")
	s.until(last, operator.StateTargetAway, nil, "node "+id+" can't reach the target of coupon.remind since 20", "connection refused", "it tries one task", "and the others wait, without an attempt",
		"node "+id+" can't use the fallback of coupon.remind (biz type coupon.remind: no sink is named gone where this node runs: add it to the sinks of the config)")
	s.run("top", "--once", "--status", page).says(t, "away")
	s.run("biz", "show", "coupon.remind").says(t, "# "+id+": away, ", " tasks wait, since 20", ", next try 20", "connection refused")
	if n := s.counted("status = 0 AND attempts + crashes = 0"); n != tasks+1 {
		t.Errorf("%d of %d tasks wait without an attempt", n, tasks+1)
	}
	l, err := net.Listen("tcp", c.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	back := &http.Server{Handler: c}
	t.Cleanup(func() { _ = back.Close() })
	go func() { _ = back.Serve(l) }()
	s.waitFor("all tasks are done", func() bool { return s.notDone() == 0 })
	if seen, again, _ := c.counts(); seen != tasks+1 || again != 0 || s.counted("attempts + crashes > 0") != 0 {
		t.Errorf("%d of %d tasks came, %d of them more than once, %d have an attempt", seen, tasks+1, again, s.counted("attempts + crashes > 0"))
	}
}

// metric reads one value from the page of a node; 0: it is not there.
func (s *site) metric(page, name string) float64 {
	s.t.Helper()
	_, text := get(s.t, http.DefaultClient, "http://"+page+"/metrics", "")
	_, rest, _ := strings.Cut(text, "\n"+name+" ")
	value, _, _ := strings.Cut(rest, "\n")
	number, _ := strconv.ParseFloat(value, 64)
	return number
}

// ownEtcd is one site's own etcd, which can be wiped.
type ownEtcd struct {
	*devserver.Etcd
	s   *site
	cfg devserver.EtcdConfig
}

// ownEtcd starts an etcd and names it in the site's config.
func (s *site) ownEtcd() *ownEtcd {
	s.t.Helper()
	e := &ownEtcd{s: s}
	e.start()
	_, port, _ := net.SplitHostPort(e.Endpoint())
	e.cfg.ClientPort, _ = strconv.Atoi(port)
	s.write("tocsin.yaml", strings.Replace(s.yaml(s.layout, s.dsn()), devtest.Etcd(s.t), e.Endpoint(), 1))
	return e
}

func (e *ownEtcd) start() {
	e.s.t.Helper()
	var err error
	if e.Etcd, err = devserver.StartEtcd(e.s.t.Context(), e.cfg); err != nil {
		e.s.t.Fatal(err)
	}
	e.s.t.Cleanup(func() { _ = e.Stop() })
}

// wipe replaces the etcd by an empty one.
func (e *ownEtcd) wipe() {
	e.s.t.Helper()
	if err := e.Stop(); err != nil {
		e.s.t.Fatal(err)
	}
	e.start()
}

// mode reads a node's mode from its status page; "" if it does not answer.
func (s *site) mode(page string) string {
	r, err := s.report(page)
	if err != nil {
		return ""
	}
	return string(r.Mode)
}

// report reads a node's status page.
func (s *site) report(page string) (*node.Report, error) {
	return operator.Asker{Client: http.DefaultClient, Scheme: "http"}.Report(s.t.Context(), page, "/status")
}

// etcd is lost with all its data under load, and starts empty.
func TestEtcdIsRebuiltFromNothing(t *testing.T) {
	t.Parallel()
	s, c := callbackSite(t)
	etcd := s.ownEtcd()
	s.serve("a")
	s.serve("b")
	s.ownedBy(map[string]int{"a": 4, "b": 4})
	l := s.startLoad(s.client())
	s.othersGoOn(c, 40)
	etcd.wipe()
	s.ownedBy(map[string]int{"a": 4, "b": 4})
	s.othersGoOn(c, 40)
	l.end()
	s.waitFor("all are done", func() bool { return s.notDone() == 0 })
	seen, again, early := c.counts()
	added, refused := l.counts()
	if seen != added || refused != 0 || again != 0 || early != 0 {
		t.Errorf("%d stored, %d refused, %d delivered, %d more than once, %d early", added, refused, seen, again, early)
	}
	s.run("cluster", "nodes").says(t, "ownership")
}
