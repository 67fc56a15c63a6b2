package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

func TestDDLPlanShowsEveryStatementWithoutAServer(t *testing.T) {
	t.Parallel()
	s := bareSite(t)
	s.write("tocsin.yaml", s.yaml(s.layout, "nobody@tcp(127.0.0.1:1)/"))
	out := s.run("ddl", "plan").ok(t)
	for _, part := range []string{s.prefix + "_1", "task_0003", "cluster " + s.prefix} {
		if !strings.Contains(out, part) {
			t.Errorf("the plan lacks %q", part)
		}
	}
	planned := decode[[]plannedServer](t, s.run("ddl", "plan", "--json"))
	if len(planned) != 1 || planned[0].Server != "db1" || strings.TrimSpace(planned[0].SQL) != strings.TrimSpace(out) {
		t.Errorf("the JSON of %d servers is not the plan", len(planned))
	}
	s.run("ddl", "plan", "--out", "sql").says(t, filepath.Join("sql", "db1.sql"))
	if text, err := os.ReadFile(filepath.Join(s.dir, "sql", "db1.sql")); err != nil || string(text) != planned[0].SQL {
		t.Errorf("the file is not the plan: %v", err)
	}
	files := decode[[]plannedServer](t, s.run("ddl", "plan", "--out", "sql", "--json"))
	if want := []plannedServer{{Server: "db1", File: filepath.Join("sql", "db1.sql")}}; !reflect.DeepEqual(files, want) {
		t.Errorf("got %+v, want %+v", files, want)
	}
}

func TestDDLApplyCreatesOnceAndSaysHowLongItTook(t *testing.T) {
	t.Parallel()
	s := bareSite(t)
	first := s.run("ddl", "apply") // on a slow machine with lines of progress
	if want := "cluster " + s.prefix + ", layout 2x4: 2 databases and 30 tables created, 0 tables were there; in "; first.code != exitOK || !strings.HasPrefix(first.stdout, want) {
		t.Errorf("exit code %d, want 0 and %q:\n%s%s", first.code, want, first.stdout, first.stderr)
	}
	again := decode[appliedDDL](t, s.run("ddl", "apply", "--json"))
	if again.Cluster != s.prefix || again.Databases != 0 || again.Tables != 0 || again.Existing < s.layout.Total() || again.Seconds <= 0 {
		t.Errorf("second apply: %+v", again)
	}
	s.run("ddl", "apply", "--cluster", "another").refused(t, exitFailed, "another", s.prefix)
}

func TestDDLVerifyNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.run("ddl", "verify").says(t, "all tables of layout 2x4 are as they should be")
	if found := decode[[]ddl.Finding](t, s.run("ddl", "verify", "--json")); len(found) != 0 {
		t.Errorf("findings: %+v", found)
	}
	s.verifyWarns(t)
	s.exec("DROP INDEX uk_biz ON {prefix}_1.task_0002")
	s.exec("ALTER TABLE {prefix}_0.task_0001 DROP COLUMN last_error")
	r := s.run("ddl", "verify")
	if r.code != exitFailed || r.stderr != "" {
		t.Errorf("exit code %d, stderr %q", r.code, r.stderr)
	}
	for _, part := range []string{s.prefix + "_1.task_0002", "uk_biz", s.prefix + "_0.task_0001", "last_error"} {
		if !strings.Contains(r.stdout, part) {
			t.Errorf("verify does not name %q:\n%s", part, r.stdout)
		}
	}
	r = s.run("ddl", "verify", "--json")
	found := decodeText[[]ddl.Finding](t, r.stdout)
	if r.code != exitFailed || len(found) != strings.Count(s.run("ddl", "verify").stdout, "\n") || found[0].Server != "db1" {
		t.Errorf("exit code %d, findings %+v", r.code, found)
	}
	s.applyDDL() // it creates what is missing, and alters nothing
	if r := s.run("ddl", "verify"); r.code != exitFailed {
		t.Errorf("apply altered a table: exit code %d", r.code)
	}
}

// verifyWarns makes a table as earlier versions did: that is a warning, and no failure. It mends it again.
func (s *site) verifyWarns(t *testing.T) {
	t.Helper()
	s.exec("ALTER TABLE {prefix}_1.task_0003 STATS_AUTO_RECALC = DEFAULT")
	mend := "ALTER TABLE " + s.prefix + "_1.task_0003 STATS_AUTO_RECALC = 0"
	s.run("ddl", "verify").says(t, "warning: server db1: "+s.prefix+"_1 has 1 of 15 tables ", mend, "no table of layout 2x4 is missing or differs")
	found := decode[[]ddl.Finding](t, s.run("ddl", "verify", "--json"))
	if len(found) != 1 || !found[0].Warning || !strings.Contains(found[0].Detail, mend) {
		t.Errorf("findings: %+v", found)
	}
	s.exec(mend)
	s.run("ddl", "verify").says(t, "all tables of layout 2x4 are as they should be")
}

func TestGrants(t *testing.T) {
	t.Parallel()
	s := bareSite(t)
	s.run("ddl", "grants", "--role", "node,sweep", "--out", "grants").says(t, "grants/db1.sql")
	if text := s.text("grants/db1.sql"); !strings.Contains(text, "-- Rights of node, sweep on server db1") || !strings.Contains(text, "TO `tocsin_node`@`%`;") {
		t.Error(text)
	}
	s.run("ddl", "grants").refused(t, exitUsage, "--role is needed")
	s.run("ddl", "grants", "--role", "root").refused(t, exitUsage, `unknown role "root"`)
	s.run("ddl", "grants", "--help").says(t, "client-cancel")
	want := s.run("ddl", "grants", "--role", "node").ok(t)
	_, server, _ := strings.Cut(s.dsn(), "@")
	s.write("tocsin.yaml", s.yaml(s.layout, "${TOCSIN_TEST_UNSET_USER}:${TOCSIN_TEST_UNSET_PASSWORD}@"+server)+
		"node: {status: {token: \"${TOCSIN_TEST_UNSET_TOKEN}\"}}\n")
	if got := s.run("ddl", "grants", "--role", "node").ok(t); got != want {
		t.Errorf("without the variables:\n%s\nwith a password:\n%s", got, want)
	}
	s.run("ddl", "verify").refused(t, exitFailed, "TOCSIN_TEST_UNSET_USER")
}

// second is a server beside that of all tests, for as long as tests at work need one to move databases to.
var second struct {
	sync.Mutex
	server *devserver.MariaDB
	users  int
}

// secondServer starts it, unless another test has.
func secondServer(t *testing.T) *devserver.MariaDB {
	t.Helper()
	second.Lock()
	defer second.Unlock()
	if second.users == 0 {
		var err error
		if second.server, err = devserver.StartMariaDB(context.Background(), devserver.MariaDBConfig{}); err != nil {
			t.Fatal(err)
		}
	}
	second.users++
	t.Cleanup(func() {
		second.Lock()
		defer second.Unlock()
		if second.users--; second.users == 0 {
			_ = second.server.Stop()
		}
	})
	return second.server
}

// movingSite is a site with a second server, to which database 1 moves: new.yaml
// says so, tocsin.yaml does not.
type movingSite struct {
	*site
	name  string // of the database
	other *devserver.MariaDB
	dest  *sql.DB
}

func newMovingSite(s *site) *movingSite {
	s.t.Helper()
	other := secondServer(s.t)
	m := &movingSite{site: s, name: s.layout.Database(1), other: other}
	m.dest = openDB(s.t, other.DSN())
	s.write("new.yaml", s.splitYAML(other.DSN()))
	return m
}

func (m *movingSite) move(step string, more ...string) result {
	m.t.Helper()
	return m.run(append([]string{"ddl", "move", step, "--from", "tocsin.yaml", "--config", "new.yaml", "--wait", "1m"}, more...)...)
}

func (m *movingSite) copy() {
	m.t.Helper()
	devtest.CopyDatabase(m.t, m.dsn(), m.other.DSN(), m.name)
}

func TestAMoveStepByStepAndOutOfTurn(t *testing.T) {
	t.Parallel()
	m := newMovingSite(newSite(t))
	m.run("task", "add", "--type", "order.close", "--biz-id", m.bizIDIn(1), "--in", "1h").ok(t)
	m.move("check").says(t, m.name+": active on db1, absent on db2; next: `tocsin ddl move retire`")
	m.move("compare").refused(t, exitFailed, m.name+" on server db1 is active: run `tocsin ddl move retire` first")
	m.move("retire").says(t, "retired on db1, absent on db2; next: copy it, all tables, then `tocsin ddl move compare`")
	m.run("task", "add", "--type", "order.close", "--biz-id", m.bizIDIn(1), "--in", "1h").
		refused(t, exitFailed, m.name+" on db1 is retired: its tables have moved, correct the servers of the config")
	m.run("ddl", "apply").refused(t, exitFailed, m.name+" on server db1 is retired")
	m.copy()
	if _, err := m.dest.Exec("UPDATE " + m.name + ".biz_type SET policy = '{}'"); err != nil {
		t.Fatal(err)
	}
	if r := m.move("compare"); r.code != exitFailed || !strings.Contains(r.stdout, m.name+".biz_type differs from that on db1") {
		t.Errorf("compare of a bad copy: exit code %d, %s%s", r.code, r.stdout, r.stderr)
	}
	m.move("activate").refused(t, exitFailed, "the copies differ")
	m.copy()
	m.move("compare").says(t, "the copies are equal; next: `tocsin ddl move activate`")
	got := decode[[]movedJSON](t, m.move("activate", "--json"))
	if len(got) != 1 || got[0].FromState != "retired" || got[0].ToState != "active" || got[0].Database != m.name {
		t.Errorf("got %+v", got)
	}
	m.run("ddl", "verify", "--config", "new.yaml").says(t, "as they should be")
	m.run("task", "list", "--biz-id", m.bizIDIn(1), "--config", "new.yaml").says(t, "pending")
	m.move("undo").says(t, "active on db1, retired on db2")
	m.run("task", "list", "--biz-id", m.bizIDIn(1)).says(t, "pending")
	m.run("ddl", "move", "retire", "--config", "new.yaml").refused(t, exitUsage, "--from is needed")
	m.run("ddl", "move", "retire", "--from", "none.yaml").refused(t, exitFailed, "none.yaml")
	m.move("retire", "--database", "toc_9").refused(t, exitFailed, "no database toc_9")
}

func TestAMoveUnderLoadLosesNoTask(t *testing.T) {
	t.Parallel()
	s, c := callbackSite(t)
	m := newMovingSite(s)
	nodes := []*serving{m.serve("a"), m.serve("b")}
	m.ownedBy(map[string]int{"a": 4, "b": 4})
	l := m.startLoad(m.client())
	m.waitFor("some are delivered", func() bool { seen, _, _ := c.counts(); return seen > 40 })
	began := time.Now()
	m.move("retire").says(t, "retired on db1")
	m.copy()
	m.move("activate").says(t, "active on db2")
	stood := time.Since(began)
	l.use(m.splitClient(m.other.DSN()))
	for i, old := range nodes {
		_ = old.Process.Signal(syscall.SIGTERM)
		_ = old.Wait() // it may say that outcomes are left: their tasks are delivered again
		m.serve(fmt.Sprint("new-", i), "--config", "new.yaml")
	}
	m.ownedBy(map[string]int{"new-0": 4, "new-1": 4})
	moved, _ := l.counts()
	m.waitFor("the new nodes are delivering", func() bool { added, _ := l.counts(); return added > moved+40 })
	l.end()
	m.waitFor("all are delivered", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for id := range l.added {
			if c.seen[id] == 0 {
				return false
			}
		}
		return true
	})
	seen, again, early := c.counts()
	added, refused := l.counts()
	t.Logf("%d tasks stored, %d refusals meanwhile, %d delivered, %d more than once, %d early; the database stood still for %.1f s",
		added, refused, seen, again, early, stood.Seconds())
	if early != 0 || refused == 0 {
		t.Errorf("%d early, %d refusals; want none early, and refusals by the retired copy", early, refused)
	}
}

// Nodes claim what is nearly as late as the grace, so a sweep with a shorter one would deliver beside them. How each process is refused
// is played in package node.
func TestTheGraceOfSweepsIsChangedWithAllNodesStopped(t *testing.T) {
	t.Parallel()
	s, c := callbackSite(t)
	s.write("twenty.yaml", s.text("tocsin.yaml")+"sweep: {grace: 20s}\n")
	differs := []string{"grace of sweeps of this process is 20s, that of", "is 1m0s", "sweep.grace", "tocsin ddl grace 20s"}
	n := s.serve("one")
	s.ownedBy(map[string]int{"one": s.layout.Total()})
	for _, args := range [][]string{{"sweep", "--grace", "20s"}, {"sweep", "--cron", "@every 1s", "--config", "twenty.yaml"}, {"serve", "--listen", "off", "--config", "twenty.yaml"}} {
		s.run(args...).refused(t, exitFailed, differs...)
	}
	withAPI := s.run("serve", "--listen", "off", "--api", "127.0.0.1:0", "--config", "twenty.yaml") // it logs that the API listens, and ends all the same
	if withAPI.code != exitFailed || !strings.Contains(withAPI.stderr, differs[0]) {
		t.Errorf("serve with the API: exit code %d\n%s", withAPI.code, withAPI.stderr)
	}
	s.run("ddl", "apply", "--config", "twenty.yaml").refused(t, exitFailed, "sweep.grace of the config is 20s", "is 1m0s", "tocsin ddl grace 20s")
	if r := s.run("doctor", "--config", "twenty.yaml"); r.code != exitFailed || !strings.Contains(r.stdout, differs[0]) {
		t.Errorf("doctor: exit code %d\n%s", r.code, r.stdout)
	}
	s.run("sweep", "--grace", "20s", "--dry-run").says(t, "0 overdue")
	s.run("sweep", "--grace", "0s").refused(t, exitFailed, "would deliver beside live nodes", "node one-", "--force")
	s.run("sweep", "--grace", "500us").refused(t, exitUsage, "--grace 500µs: want 0s, or 1s to 24h0m0s in whole milliseconds")
	s.run("sweep", "--grace", "0s", "--cron", "@every 1s").refused(t, exitUsage, "nodes that start later", "--once")
	s.run("ddl", "grace", "20s").refused(t, exitFailed, "node one-", "stop all nodes")
	s.run("ddl", "grace", "soon").refused(t, exitUsage, `grace "soon": want 1s to 24h0m0s`)
	n.end(t)

	s.fill(20, 0)
	s.run("sweep", "--grace", "0s").says(t, "20 overdue, 20 delivered")
	s.write("alone.yaml", s.yaml(s.layout, s.dsn())[:strings.Index(s.yaml(s.layout, s.dsn()), "etcd:")])
	s.run("sweep", "--grace", "0s", "--config", "alone.yaml").refused(t, exitFailed, "no etcd to ask", "--force")
	s.run("sweep", "--grace", "0s", "--config", "alone.yaml", "--force").says(t, "0 overdue")
	s.run("ddl", "grace", "20s").says(t, "grace of sweeps is 20s: 2 databases were changed", "sweep.grace: 20s")
	s.run("ddl", "grace", "20s").says(t, "grace of sweeps is 20s already")
	s.run("sweep").refused(t, exitFailed, "grace of sweeps of this process is 1m0s", "is 20s")
	s.run("sweep", "--config", "twenty.yaml").says(t, "0 overdue")
	if seen, again, _ := c.counts(); seen != 20 || again != 0 {
		t.Errorf("%d tasks were delivered, %d of them more than once", seen, again)
	}
}
