package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/operator"
	"github.com/tocsinhq/tocsin/upkeep"
)

const day = int64(24 * time.Hour / time.Millisecond)

var remindType = tocsin.Define[string]("coupon.remind")

// load adds tasks that are due within a second to all databases, until it is stopped.
type load struct {
	stop context.CancelFunc
	done sync.WaitGroup

	mu      sync.Mutex
	client  *tocsin.Client
	added   map[string]bool
	refused int
}

func (s *site) startLoad(client *tocsin.Client) *load {
	ctx, stop := context.WithCancel(s.t.Context())
	l := &load{client: client, stop: stop, added: map[string]bool{}}
	l.done.Go(func() {
		for n := uint64(1_000_000); ctx.Err() == nil; n++ {
			l.mu.Lock()
			added, err := l.client.Add(s.t.Context(), remindType.New(n, "{}", tocsin.In(time.Duration(n%10)*100*time.Millisecond)))
			if err == nil {
				l.added[added.JobID.String()] = true
			} else {
				l.refused++
			}
			l.mu.Unlock()
			time.Sleep(20 * time.Millisecond)
		}
	})
	s.t.Cleanup(l.end)
	return l
}

// use has further tasks added with another client, as services with a new config.
func (l *load) use(client *tocsin.Client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.client = client
}

func (l *load) end() {
	l.stop()
	l.done.Wait()
}

// counts returns how many tasks are stored, and how many were refused.
func (l *load) counts() (added, refused int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.added), l.refused
}

// addIn adds tasks to one database, and returns their ids.
func (s *site) addIn(client *tocsin.Client, database, n int, in time.Duration) (ids []tocsin.JobID) {
	s.t.Helper()
	for bizID := uint64(1); len(ids) < n; bizID++ {
		if s.layout.DatabaseOf(s.layout.TableOf(bizID)) != database {
			continue
		}
		s.waitFor("a task can be added", func() bool { // a client takes a second to see that a database was released
			added, err := client.Add(s.t.Context(), remindType.New(bizID, "{}", tocsin.In(in)))
			if err == nil {
				ids = append(ids, added.JobID)
			} else if !errors.Is(err, tocsin.ErrLayout) {
				s.t.Fatal(err)
			}
			return err == nil
		})
	}
	return ids
}

// times returns how often the least and the most delivered of some tasks came.
func (c *callbacks) times(ids []tocsin.JobID) (least, most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	least = c.seen[ids[0].String()]
	for _, id := range ids {
		n := c.seen[id.String()]
		least, most = min(least, n), max(most, n)
	}
	return least, most
}

// came waits until each of some tasks was delivered so often, and fails if one was more often.
func (s *site) came(c *callbacks, what string, ids []tocsin.JobID, times int) {
	s.t.Helper()
	s.waitFor(fmt.Sprintf("%s are delivered %d times", what, times), func() bool { least, _ := c.times(ids); return least >= times })
	s.noMore(c, what, ids, times)
}

func (s *site) noMore(c *callbacks, what string, ids []tocsin.JobID, times int) {
	s.t.Helper()
	if _, most := c.times(ids); most > times {
		s.t.Errorf("one of %s was delivered %d times, want %d", what, most, times)
	}
}

// othersGoOn waits until the given number of further tasks is delivered.
func (s *site) othersGoOn(c *callbacks, more int) {
	s.t.Helper()
	before, _, _ := c.counts()
	s.waitFor("tasks of the other database are delivered", func() bool { seen, _, _ := c.counts(); return seen >= before+more })
}

// markOf reads the mark in a database's layout row.
func (s *site) markOf(db *sql.DB, database int) (mark int64) {
	s.t.Helper()
	if err := db.QueryRow("SELECT mark FROM " + s.layout.Database(database) + ".layout").Scan(&mark); err != nil {
		s.t.Fatal(err)
	}
	return mark
}

// age sets the marks of databases to an hour ago: they count as soon as they are read. Call it before a node starts.
func (s *site) age(databases ...int) {
	s.t.Helper()
	for _, database := range databases {
		s.exec("UPDATE "+s.layout.Database(database)+".layout SET mark = ?", time.Now().Add(-time.Hour).UnixMilli())
	}
}

// keepsMark waits until a database has the mark of another one.
func (s *site) keepsMark(name string) {
	s.t.Helper()
	s.waitFor("the database keeps the mark of the other", func() bool {
		var mark int64
		return s.db.QueryRow("SELECT mark FROM "+name+".mark").Scan(&mark) == nil
	})
}

// marked waits until the cluster worked with a database after all that happened until now.
func (s *site) marked(db *sql.DB, database int) {
	s.t.Helper()
	now := time.Now().UnixMilli()
	s.waitFor("the mark of "+s.layout.Database(database)+" is raised", func() bool { return s.markOf(db, database) > now })
}

// markInDump is a mark in the layout row, or in a row of the table mark.
var markInDump = regexp.MustCompile(`('etcd',|\(\d+,'[a-z0-9]+',)(\d{13})\b`)

// yesterday makes a dump a day older than it is: no test can wait for a day.
func (s *site) yesterday(dump string) string {
	s.t.Helper()
	if !strings.Contains(dump, "'etcd',") || len(markInDump.FindAllString(dump, -1)) < 2 {
		s.t.Fatalf("no marks in the dump: %q", markInDump.FindAllString(dump, -1))
	}
	return markInDump.ReplaceAllStringFunc(dump, func(text string) string {
		at := len(text) - 13
		mark, err := strconv.ParseInt(text[at:], 10, 64)
		if err != nil {
			s.t.Fatal(err)
		}
		return text[:at] + strconv.FormatInt(mark-day, 10)
	})
}

// saysOf waits until a node's status page says this about its second database.
func (s *site) saysOf(page, part string) {
	s.t.Helper()
	s.waitFor("the status page says "+part, func() bool {
		r, err := s.report(page)
		return err == nil && len(r.Databases) == 1 && r.Databases[0].Number == 1 && r.Databases[0].Is == store.Wrong &&
			strings.Contains(r.Databases[0].Why, part)
	})
}

// statuses counts tasks by status.
func (s *site) statuses(client *tocsin.Client, ids []tocsin.JobID) map[tocsin.Status]int {
	s.t.Helper()
	found := map[tocsin.Status]int{}
	for _, id := range ids {
		info, err := client.Get(s.t.Context(), id)
		if err != nil {
			s.t.Fatal(err)
		}
		found[info.Status]++
	}
	return found
}

// waiting decodes the one database that waits for a decision.
func (s *site) waiting(args ...string) restoredJSON {
	s.t.Helper()
	r := s.run(append([]string{"ddl", "restore-check", "--json"}, args...)...)
	all := decodeText[[]restoredJSON](s.t, r.stdout)
	if r.code != exitFailed || len(all) != 1 || all[0].Database != s.layout.Database(1) || len(all[0].Types) != 1 {
		s.t.Fatalf("exit code %d, %+v; stderr %s", r.code, all, r.stderr)
	}
	return all[0]
}

// restoreSteps returns the commands of the section "Restore a database" of docs/operations.md, for the second database.
func (s *site) restoreSteps(want ...string) (steps [][]string) {
	s.t.Helper()
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		s.t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n### Restore a database\n")
	section, _, _ = strings.Cut(section, "\n### ")
	for _, line := range regexp.MustCompile(`(?m)^ *tocsin (.*)$`).FindAllStringSubmatch(section, -1) {
		steps = append(steps, strings.Fields(strings.ReplaceAll(line[1], "toc_3", s.layout.Database(1))))
	}
	if len(steps) != len(want) {
		s.t.Fatalf("the page has the steps %q, want %q", steps, want)
	}
	for i, part := range want {
		if !strings.Contains(strings.Join(steps[i], " "), part) {
			s.t.Fatalf("step %d of the page is %q, want one with %s", i+1, steps[i], part)
		}
	}
	return steps
}

// oneKey fails unless all deliveries of each task had the same key, whose version is the given one.
func (s *site) oneKey(c *callbacks, ids []tocsin.JobID, version string) {
	s.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		if keys := c.keys[id.String()]; len(keys) != 1 || !keys[id.String()+"."+version] {
			s.t.Fatalf("task %s came with the keys %v, want version %s alone", id, keys, version)
		}
	}
}

// eachTask runs a command for each of some tasks.
func (s *site) eachTask(verb string, ids []tocsin.JobID) {
	s.t.Helper()
	for _, id := range ids {
		s.run("task", verb, id.String()).ok(s.t)
	}
}

// A dump of one database is loaded a day later, beside today's other database, under load. The commands are those of the page.
func TestYesterdaysDumpOfOneDatabaseBesideTodaysOther(t *testing.T) {
	t.Parallel()
	s, c := callbackSite(t)
	page, name := devtest.FreeAddress(), s.layout.Database(1)
	s.age(0, 1)
	first := s.serve("first", "--listen", page)
	s.ownedBy(map[string]int{"first": 8})
	client := s.client()
	l := s.startLoad(client)
	revived, other := s.addIn(client, 1, 3, time.Hour), s.addIn(client, 0, 2, time.Hour)
	s.eachTask("bury", append(revived, other...))
	s.keepsMark(name)
	first.end(t) // so that the dump comes before the tasks are delivered
	later, settled := s.addIn(client, 1, 10, time.Hour), s.addIn(client, 1, 40, 0)
	steps := s.restoreSteps("--hold", "restore-check", "--dead all --accept", "--since 2h --dry-run", "--since 2h", "--restored --same-key --dry-run", "--restored --same-key")
	dump := s.yesterday(devtest.Dump(t, s.dsn(), name))
	first = s.serve("first", "--listen", page)
	s.eachTask("redrive", revived)
	s.came(c, "the tasks that were redriven after the dump", revived, 1)
	s.came(c, "the tasks that are pending in the dump", settled, 1)
	s.waitFor("they are done", func() bool { return s.statuses(client, settled)[tocsin.Done] == len(settled) })
	missing := s.addIn(client, 1, 15, time.Hour)
	s.marked(s.db, 1)

	s.run(steps[0]...).says(t, "held: "+name)
	s.saysOf(page, "is held")
	devtest.Load(t, s.dsn(), name, dump)
	s.saysOf(page, name+" on db1 is an older copy: it ends at ")
	s.othersGoOn(c, 40)
	s.refusesTheCopy(page, first)
	_ = first.Process.Signal(syscall.SIGTERM)
	_ = first.Wait()
	second := s.serve("second", "--listen", page)
	s.saysOf(page, "run `tocsin ddl restore-check`")
	s.othersGoOn(c, 40)
	s.noMore(c, "the tasks that were settled after the dump", settled, 1)
	was := s.waiting()
	if got := was.Types[0]; got.Settled < len(settled) || got.Later != len(later) || was.Added == nil || !was.Older {
		t.Errorf("restore-check: %+v", was)
	}
	if r := s.run(steps[1]...); r.code != exitFailed || !strings.Contains(r.stdout, name+" on db1: it ends at ") {
		t.Errorf("exit code %d:\n%s%s", r.code, r.stdout, r.stderr)
	}
	s.run(steps[2]...).says(t, "coupon.remind", name+" is in use now, with ")
	s.ownedBy(map[string]int{"second": 8})
	s.came(c, "new tasks", s.addIn(client, 1, 20, 0), 1)
	l.end()
	s.redrivesAsThePageSays(c, steps[3:], settled, revived, other)
	if got := s.statuses(client, later); got[tocsin.Pending] != len(later) {
		t.Errorf("the tasks that are not due: %v", got)
	}
	s.run("task", "get", missing[0].String()).refused(t, exitFailed, "no task")
	s.isInUse()
	seen, again, early := c.counts()
	added, refused := l.counts()
	t.Logf("%d tasks stored by the load and %d adds refused; %d delivered, %d more than once, %d early, as redriven; of the copy: %+v", added, refused, seen, again, early, was.Types[0])
	if early != len(revived)+len(other) || refused == 0 || strings.Contains(second.log.String(), `"level":"error"`) && !strings.Contains(second.log.String(), "restore-check") {
		t.Errorf("%d early, %d refused; log:\n%s", early, refused, second.log)
	}
}

// isInUse checks what commands say after the copy was accepted.
func (s *site) isInUse() {
	s.t.Helper()
	s.run("ddl", "restore-check").says(s.t, "2 databases: none is held or an older copy")
	if r := s.run("audit"); r.code != exitOK || !strings.Contains(r.stdout, "all fits") {
		s.t.Errorf("audit: exit code %d:\n%s%s", r.code, r.stdout, r.stderr)
	}
}

// redrivesAsThePageSays redrives other, which died of something else, and then what the restore made dead, with the keys that the
// receiver has seen.
func (s *site) redrivesAsThePageSays(c *callbacks, steps [][]string, settled, revived, other []tocsin.JobID) {
	s.t.Helper()
	left := func(step []string) operator.Redriven {
		got := decodeText[operator.Redriven](s.t, s.run(append(step, "--json")...).stdout)
		if got.Tasks != len(other) || got.Left < len(settled)+len(revived) {
			s.t.Errorf("%s: %+v, want %d redriven and at least %d left", step, got, len(other), len(settled)+len(revived))
		}
		return got
	}
	left(steps[0])
	got := left(steps[1])
	s.came(c, "what died of something else", other, 1)
	if _, again, _ := c.counts(); again != 0 {
		s.t.Errorf("%d tasks were delivered more than once before anybody asked", again)
	}
	if dry := decodeText[operator.Redriven](s.t, s.run(append(steps[2], "--json")...).stdout); dry.Tasks != got.Left || !dry.DryRun {
		s.t.Errorf("%+v would be redriven, want the %d that were left", dry, got.Left)
	}
	s.run(steps[3]...).says(s.t, strconv.Itoa(got.Left)+" dead tasks redriven")
	s.came(c, "the tasks that were settled after the dump", settled, 2)
	s.came(c, "the tasks that were redriven after the dump", revived, 2)
	s.oneKey(c, settled, "0")
	s.oneKey(c, revived, "1")
}

// refusesTheCopy checks what each command says of the older copy.
func (s *site) refusesTheCopy(page string, n *serving) {
	s.t.Helper()
	const advice = "run `tocsin ddl restore-check`"
	name := s.layout.Database(1)
	s.waitFor("the log names the copy", func() bool { return strings.Contains(n.log.String(), name+" on db1 is an older copy") })
	s.waitFor("the copy is held", func() bool {
		var state string
		err := s.db.QueryRow("SELECT state FROM " + name + ".layout").Scan(&state)
		return err == nil && state == "held"
	})
	for _, args := range [][]string{
		{"sweep"}, {"purge"}, {"audit"}, {"cluster", "nodes", "--ask", page},
		{"task", "add", "--type", "coupon.remind", "--biz-id", s.bizIDIn(1), "--in", "1h"},
	} {
		if r := s.run(args...); r.code != exitFailed || !strings.Contains(r.stderr, name) || !strings.Contains(r.stderr, advice) {
			s.t.Errorf("%s: exit code %d:\n%s%s", args[0], r.code, r.stdout, r.stderr)
		}
	}
	if got := decodeText[upkeep.AuditReport](s.t, s.run("audit", "--json").stdout); got.Tables != 4 || len(got.Findings) != 0 {
		s.t.Errorf("audit: %+v, want 4 tables without a fault", got)
	}
	for _, args := range [][]string{{"doctor"}, {"ddl", "verify"}} {
		if r := s.run(args...); r.code != exitFailed || !strings.Contains(r.stdout, advice) {
			s.t.Errorf("%s: exit code %d:\n%s%s", args[0], r.code, r.stdout, r.stderr)
		}
	}
	s.run("ddl", "restore-check", "--database", name, "--dead", "order.close").refused(s.t, exitFailed, `unknown biz type "order.close"`)
	s.run("ddl", "restore-check", "--accept").refused(s.t, exitUsage, "--database is needed")
	s.run("ddl", "restore-check", "--database", s.layout.Database(0), "--accept").refused(s.t, exitFailed, "there is nothing to accept")
}

// Marks that can't be read may be later than those that can.
func TestNothingIsAcceptedWithoutTheMarksInEtcd(t *testing.T) {
	t.Parallel()
	s := bareSite(t)
	s.applyDDL()
	s.exec("UPDATE {prefix}_1.layout SET state = 'held'")
	s.write("tocsin.yaml", s.yaml(s.layout, s.dsn())+"  tls: {ca: /no/such.pem}\n")
	if r := s.run("ddl", "restore-check"); r.code != exitFailed || !strings.Contains(r.stdout, "warning: the marks in etcd can't be read") {
		t.Errorf("exit code %d:\n%s%s", r.code, r.stdout, r.stderr)
	}
	accept := []string{"ddl", "restore-check", "--database", s.layout.Database(1), "--accept"}
	s.run(accept...).refused(t, exitFailed, "the marks in etcd can't be read", "etcd.tls.ca: open /no/such.pem")
	s.run(append(accept, "--until", "2026-11-21T02:00:00Z")...).says(t, s.layout.Database(1)+" is in use now")
}

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
	p.db = openDB(s.t, p.server.DSN())
	s.write("tocsin.yaml", s.splitYAML(p.server.DSN()))
	return p
}

func (p *physicalSite) start() {
	p.t.Helper()
	p.server = startServer(p.t, p.cfg)
}

// mark sets that of the second database.
func (p *physicalSite) mark(mark int64) {
	p.t.Helper()
	if _, err := p.db.Exec("UPDATE "+p.layout.Database(1)+".layout SET mark = ?", mark); err != nil {
		p.t.Fatal(err)
	}
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
	client := s.splitClient(p.server.DSN())
	settled := s.addIn(client, 1, 40, 0)
	at := func(ago time.Duration) int64 { return time.Now().Add(-ago).UnixMilli() }
	p.mark(at(24 * time.Hour))
	dir := p.backUp()
	p.mark(at(45 * time.Second)) // it counts as soon as it is read, and so do those that follow it
	s.exec("UPDATE {prefix}_0.layout SET mark = ?", at(45*time.Second))
	s.serve("node", "--listen", page)
	s.came(c, "the tasks that are pending in the copy", settled, 1)
	s.waitFor("they are done", func() bool { return s.statuses(client, settled)[tocsin.Done] == len(settled) })
	now := at(0)
	s.waitFor("the other database knows the mark", func() bool {
		var mark int64
		err := s.db.QueryRow("SELECT mark FROM " + s.layout.Database(0) + ".mark WHERE database_no = 1").Scan(&mark)
		return err == nil && mark > now
	})

	l := s.startLoad(client)
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
	first.end(t) // so that the dumps come before the tasks are delivered
	settled := append(s.addIn(client, 0, 20, 0), s.addIn(client, 1, 20, 0)...)
	var dumps [2]string
	for database := range dumps {
		dumps[database] = s.yesterday(devtest.Dump(t, s.dsn(), s.layout.Database(database)))
	}
	again := s.serve("again")
	s.came(c, "the tasks", settled, 1)
	again.end(t)
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
