package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

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
	other, err := devserver.StartMariaDB(s.t.Context(), devserver.MariaDBConfig{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = other.Stop() })
	m := &movingSite{site: s, name: s.layout.Database(1), other: other}
	if m.dest, err = sql.Open("mysql", other.DSN()); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = m.dest.Close() })
	s.write("new.yaml", strings.Replace(s.yaml(s.layout, s.dsn()), "etcd:", "    databases: [0]\n"+
		"  - name: db2\n    dsn: "+other.DSN()+"\n    databases: [1]\netcd:", 1))
	return m
}

func (m *movingSite) move(step string, more ...string) result {
	m.t.Helper()
	return m.run(append([]string{"ddl", "move", step, "--from", "tocsin.yaml", "--config", "new.yaml", "--wait", "1m"}, more...)...)
}

func (m *movingSite) copy() {
	m.t.Helper()
	devtest.CopyDatabase(m.t, m.db, m.dest, m.name)
}

func TestAMoveStepByStepAndOutOfTurn(t *testing.T) {
	t.Parallel()
	m := newMovingSite(newSite(t))
	m.run("task", "add", "--type", "order.close", "--biz-id", m.bizIDIn(1), "--in", "1h").ok(t)
	m.move("check").says(t, m.name+": active on db1, absent on db2; next: `tocsin ddl move retire`")
	m.move("compare").refused(t, exitFailed, m.name+" on server db1 is active: run `tocsin ddl move retire` first")
	m.move("activate").refused(t, exitFailed, "run `tocsin ddl move retire` first")
	m.move("undo").says(t, "active on db1, absent on db2")
	m.move("retire").says(t, "retired on db1, absent on db2; next: copy it, all tables, then `tocsin ddl move compare`")
	m.run("task", "add", "--type", "order.close", "--biz-id", m.bizIDIn(1), "--in", "1h").
		refused(t, exitFailed, m.name+" on db1 is retired: its tables have moved, correct the servers of the config")
	m.run("ddl", "apply").refused(t, exitFailed, m.name+" on server db1 is retired")
	m.move("activate").refused(t, exitFailed, "there is no "+m.name+" on server db2: copy it from server db1, all tables")
	m.copy()
	if _, err := m.dest.Exec("DELETE FROM " + m.name + ".retired_task_0001"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.dest.Exec("UPDATE " + m.name + ".biz_type SET policy = '{}'"); err != nil {
		t.Fatal(err)
	}
	r := m.move("compare")
	if r.code != exitFailed || !strings.Contains(r.stdout, m.name+".biz_type differs from that on db1") {
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
	m.move("retire").refused(t, exitFailed, m.name+" on server db2 is active: there is nothing to retire on server db1")
	m.move("undo").says(t, "active on db1, retired on db2")
	m.run("task", "list", "--biz-id", m.bizIDIn(1)).says(t, "pending")
	m.run("ddl", "move", "retire", "--config", "new.yaml").refused(t, exitUsage, "--from is needed")
	m.run("ddl", "move", "retire", "--from", "tocsin.yaml").refused(t, exitFailed, "nothing to move: both configs name the same servers")
	m.run("ddl", "move", "retire", "--from", "none.yaml").refused(t, exitFailed, "none.yaml")
	m.move("retire", "--database", "toc_9").refused(t, exitFailed, "no database toc_9")
	m.run("ddl", "move", "faster").refused(t, exitUsage, `"faster"`)
}

// twins starts two servers that have the same host name, port, folder and, as they share a network card, server_uid.
func twins(t *testing.T) (first, second *devserver.MariaDB) {
	t.Helper()
	link := filepath.Join(t.TempDir(), "current")
	start := func() *devserver.MariaDB {
		dir := t.TempDir()
		_ = os.Remove(link)
		if err := os.Symlink(dir, link); err != nil {
			t.Fatal(err)
		}
		m, err := devserver.StartMariaDB(t.Context(), devserver.MariaDBConfig{
			Dir: dir, Args: []string{"--datadir=" + filepath.Join(link, "data"), "--port=3306", "--skip-networking"},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = m.Kill(); _ = m.Stop() })
		return m
	}
	return start(), start()
}

func TestAMoveTellsServersApartThatLookAlike(t *testing.T) {
	t.Parallel()
	first, second := twins(t)
	s := bareSite(t)
	s.write("tocsin.yaml", s.yaml(s.layout, first.SocketDSN()))
	s.applyDDL()
	m := &movingSite{site: s, name: s.layout.Database(1)}
	to := func(dsn string) string {
		return strings.Replace(s.yaml(s.layout, first.SocketDSN()), "etcd:", "    databases: [0]\n"+
			"  - name: db2\n    dsn: "+dsn+"\n    databases: [1]\netcd:", 1)
	}
	s.write("new.yaml", to(second.SocketDSN()))
	m.move("check").says(t, m.name+": active on db1, absent on db2")
	m.move("retire").says(t, "retired on db1, absent on db2")
	m.move("undo").says(t, "active on db1, absent on db2")
	alias := filepath.Join(t.TempDir(), "alias")
	if err := os.Symlink(first.Socket(), alias); err != nil {
		t.Fatal(err)
	}
	s.write("new.yaml", to("root@unix("+alias+")/"))
	for _, step := range []string{"check", "retire", "activate", "undo"} {
		m.move(step).refused(t, exitFailed, "servers db1 and db2 are the same one: nothing moves")
	}
}

// adder adds tasks until it is stopped, as services would: refused, it tries
// again, and takes the new config when it is told to.
type adder struct {
	m    *movingSite
	stop context.CancelFunc
	done sync.WaitGroup

	mu      sync.Mutex
	client  *tocsin.Client
	added   map[string]bool
	refused int
}

func (m *movingSite) startAdding(client *tocsin.Client) *adder {
	ctx, stop := context.WithCancel(m.t.Context())
	a := &adder{m: m, stop: stop, client: client, added: map[string]bool{}}
	remind := tocsin.Define[string]("coupon.remind")
	a.done.Go(func() {
		for n := uint64(1); ctx.Err() == nil; n++ {
			for ctx.Err() == nil && !a.add(ctx, remind.New(n, "{}", tocsin.In(time.Second)).Dedup("once")) {
				time.Sleep(20 * time.Millisecond)
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	m.t.Cleanup(a.end)
	return a
}

// add reports whether the task is stored.
func (a *adder) add(ctx context.Context, task tocsin.NewTask) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	added, err := a.client.Add(ctx, task)
	if err != nil {
		a.refused++
		return false
	}
	a.added[added.JobID.String()] = true
	return true
}

func (a *adder) use(client *tocsin.Client) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.client = client
}

func (a *adder) end() {
	a.stop()
	a.done.Wait()
}

// count gives how many tasks are stored.
func (a *adder) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.added)
}

// serveWith starts a node with a config file.
func (m *movingSite) serveWith(name, file string) *serving {
	return m.serve(name, "--config", file)
}

func TestAMoveUnderLoadLosesNoTask(t *testing.T) {
	t.Parallel()
	s, c := callbackSite(t)
	m := newMovingSite(s)
	nodes := []*serving{m.serveWith("a", "tocsin.yaml"), m.serveWith("b", "tocsin.yaml")}
	m.ownedBy(map[string]int{"a": 4, "b": 4})
	a := m.startAdding(m.client())
	m.waitFor("some are delivered", func() bool { seen, _, _ := c.counts(); return seen > 40 })
	began := time.Now()
	m.move("retire").says(t, "retired on db1")
	m.copy()
	m.move("activate").says(t, "active on db2")
	stood := time.Since(began)
	after, err := tocsin.Open(t.Context(), tocsin.Config{Layout: m.layout, Servers: []tocsin.Server{
		{Name: "db1", DSN: m.dsn(), Databases: []int{0}}, {Name: "db2", DSN: m.other.DSN(), Databases: []int{1}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = after.Close() })
	a.use(after)
	for i, old := range nodes {
		_ = old.Process.Signal(syscall.SIGTERM)
		_ = old.Wait() // it may say that outcomes are left: their tasks are delivered again
		m.serveWith(fmt.Sprint("new-", i), "new.yaml")
	}
	m.ownedBy(map[string]int{"new-0": 4, "new-1": 4})
	moved := a.count()
	m.waitFor("the new nodes are delivering", func() bool { return a.count() > moved+40 })
	a.end()
	m.waitFor("all are delivered", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for id := range a.added {
			if c.seen[id] == 0 {
				return false
			}
		}
		return true
	})
	seen, again, early := c.counts()
	t.Logf("%d tasks stored, %d refusals meanwhile, %d delivered, %d more than once, %d early; the database stood still for %.1f s",
		len(a.added), a.refused, seen, again, early, stood.Seconds())
	if early != 0 || a.refused == 0 {
		t.Errorf("%d early, %d refusals; want none early, and refusals by the retired copy", early, a.refused)
	}
}
