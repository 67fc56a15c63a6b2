package main

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// physicalSite has its second database on a server of its own, in a folder that a physical copy can replace.
type physicalSite struct {
	*site
	server *devserver.MariaDB
	cfg    devserver.MariaDBConfig
	db     *sql.DB
}

func newPhysicalSite(s *site) *physicalSite {
	s.t.Helper()
	p := &physicalSite{site: s, cfg: devserver.MariaDBConfig{Dir: filepath.Join(s.t.TempDir(), "db2")}}
	p.start()
	p.cfg.Port = p.server.Port()
	var err error
	if p.db, err = sql.Open("mysql", p.server.DSN()); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = p.db.Close() })
	s.write("tocsin.yaml", strings.Replace(s.yaml(s.layout, s.dsn()), "etcd:", "    databases: [0]\n"+
		"  - name: db2\n    dsn: "+p.server.DSN()+"\n    databases: [1]\netcd:", 1))
	return p
}

func (p *physicalSite) start() {
	p.t.Helper()
	server, err := devserver.StartMariaDB(p.t.Context(), p.cfg)
	if err != nil {
		p.t.Fatal(err)
	}
	p.server = server
	p.t.Cleanup(func() { _ = server.Stop() })
}

// backUp makes a physical copy of the second server. Without a program for that, the server is stopped and copied.
func (p *physicalSite) backUp() (dir string) {
	p.t.Helper()
	if devtest.CanBackUp(p.t) {
		return devtest.BackUp(p.t, p.server)
	}
	if err := p.server.Stop(); err != nil {
		p.t.Fatal(err)
	}
	dir = filepath.Join(p.t.TempDir(), "backup")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(p.server.Dir(), "data"))); err != nil {
		p.t.Fatal(err)
	}
	p.start()
	return dir
}

// restore replaces the second server by a physical copy.
func (p *physicalSite) restore(dir string) {
	p.t.Helper()
	if err := p.server.Stop(); err != nil {
		p.t.Fatal(err)
	}
	if !devtest.CanBackUp(p.t) {
		data := filepath.Join(p.server.Dir(), "data")
		if err := os.RemoveAll(data); err != nil {
			p.t.Fatal(err)
		}
		if err := os.CopyFS(data, os.DirFS(dir)); err != nil {
			p.t.Fatal(err)
		}
	} else {
		devtest.MoveBack(p.t, p.server, dir)
	}
	p.start()
}

// A server comes back from a physical copy, and nobody tells the nodes. The operator has the tasks delivered again.
func TestAServerFromAPhysicalCopyDeliversNothingUnasked(t *testing.T) {
	t.Parallel()
	s, c := bareSite(t), newCallbacks(t)
	p := newPhysicalSite(s)
	s.applyDDL()
	s.applyCallbacks(c)
	page, name := devtest.FreeAddress(), s.layout.Database(1)
	s.serve("node", "--listen", page)
	s.ownedBy(map[string]int{"node": 8})
	client, err := tocsin.Open(t.Context(), tocsin.Config{Layout: s.layout, Servers: []tocsin.Server{
		{Name: "db1", DSN: s.dsn(), Databases: []int{0}}, {Name: "db2", DSN: p.server.DSN(), Databases: []int{1}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	s.marked(p.db, 1)
	settled := s.addIn(client, 1, 40, 30*time.Second) // the copy comes first
	dir := p.backUp()
	s.came(c, "the tasks that are pending in the copy", settled, 1)
	s.waitFor("they are done", func() bool { return s.statuses(client, settled)[tocsin.Done] == len(settled) })
	s.exec("UPDATE {prefix}_0.layout SET mark = mark + ?", day)
	if _, err := p.db.Exec("UPDATE "+name+".layout SET mark = mark + ?", day); err != nil {
		t.Fatal(err)
	}
	s.waitFor("the other database knows the mark", func() bool {
		var mark int64
		err := s.db.QueryRow("SELECT mark FROM " + s.layout.Database(0) + ".mark WHERE database_no = 1").Scan(&mark)
		return err == nil && mark > time.Now().UnixMilli()+day/2
	})

	l := s.startLoad(client) // for a minute the mark was not ripe
	p.restore(dir)
	s.saysOf(page, name+" on db2 is an older copy: it ends at ")
	s.othersGoOn(c, 40)
	s.noMore(c, "the tasks that were settled after the copy", settled, 1)
	was := s.waiting()
	if got := was.Types[0]; got.Settled < len(settled) || !was.Older || was.Ends == nil || was.Known.Sub(*was.Ends) < 23*time.Hour {
		t.Errorf("restore-check: %+v", was)
	}
	s.run("ddl", "restore-check", "--database", name, "--accept").says(t, name+" is in use now, with ")
	s.came(c, "the tasks that were settled after the copy", settled, 2)
	l.end()
	seen, again, early := c.counts()
	added, refused := l.counts()
	t.Logf("%d tasks stored by the load and %d adds refused; %d delivered, %d more than once, %d early; of the copy: %+v", added, refused, seen, again, early, was.Types[0])
	if most := again; early != 0 || most > was.Types[0].Settled+was.Types[0].Due {
		t.Errorf("%d early, %d delivered more than once, of %+v", early, most, was.Types[0])
	}
}

// All databases are restored, so none of them knows better; etcd does.
func TestAWholeRestoreIsRecognisedByEtcd(t *testing.T) {
	t.Parallel()
	s, c := callbackSite(t)
	s.age(0, 1)
	first := s.serve("first")
	s.ownedBy(map[string]int{"first": 8})
	client := s.client()
	s.marked(s.db, 0)
	s.marked(s.db, 1)
	keys, err := assign.OpenRegistry(t.Context(), assign.EtcdConfig{Endpoints: []string{devtest.Etcd(t)}}, s.prefix, s.layout.Total())
	if err != nil {
		t.Fatal(err)
	}
	defer keys.Close()
	var id string
	if err := s.db.QueryRow("SELECT identity FROM " + s.layout.Database(0) + ".layout").Scan(&id); err != nil {
		t.Fatal(err)
	}
	s.waitFor("etcd keeps the marks", func() bool { kept, err := keys.Marks(t.Context(), id); return err == nil && len(kept) == 2 })
	settled := append(s.addIn(client, 0, 20, 20*time.Second), s.addIn(client, 1, 20, 20*time.Second)...) // the dumps come first
	var dumps [2]string
	for database := range dumps {
		dumps[database] = s.yesterday(devtest.Dump(t, s.dsn(), s.layout.Database(database)))
	}
	s.came(c, "the tasks", settled, 1)
	_ = first.Process.Signal(syscall.SIGTERM)
	_ = first.Wait()
	for database, dump := range dumps {
		devtest.Load(t, s.dsn(), s.layout.Database(database), dump)
	}

	page := devtest.FreeAddress()
	s.serve("second", "--listen", page)
	s.waitFor("both databases are held", func() bool {
		r, err := s.report(page)
		return err == nil && len(r.Databases) == 2 && strings.Contains(r.Databases[0].Why, "is an older copy") && strings.Contains(r.Databases[1].Why, "is an older copy")
	})
	r := s.run("ddl", "restore-check", "--json")
	if all := decodeText[[]restoredJSON](t, r.stdout); r.code != exitFailed || len(all) != 2 || !all[0].Older || !all[1].Older || all[0].KnownBy != "etcd" {
		t.Errorf("exit code %d, %+v", r.code, all)
	}
	s.noMore(c, "the tasks", settled, 1)
	s.run("ddl", "restore-check", "--database", s.layout.Database(0)+","+s.layout.Database(1), "--cancel", "all",
		"--until", time.Now().UTC().Format(time.RFC3339Nano), "--accept").says(t,
		s.layout.Database(1)+" is in use now, with 0 tasks to deliver at once")
	s.came(c, "new tasks", append(s.addIn(client, 0, 5, 0), s.addIn(client, 1, 5, 0)...), 1)
	if got := s.statuses(client, settled); got[tocsin.Cancelled] != len(settled) {
		t.Errorf("the tasks: %v", got)
	}
	s.noMore(c, "the tasks", settled, 1)
}
