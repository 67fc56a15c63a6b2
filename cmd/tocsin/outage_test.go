package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/dispatcher"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/operator"
	"github.com/tocsinhq/tocsin/upkeep"
)

// halfDown gives a site whose database 1 is on a server that is down.
func halfDown(t *testing.T) *site {
	t.Helper()
	s := newSite(t)
	s.write("tocsin.yaml", s.splitYAML("toc:hunter2@tcp(127.0.0.1:1)/"))
	return s
}

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
	s := halfDown(t)
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
	if said := fails("task redrive --all"); said != "0 dead tasks redriven\n" {
		t.Errorf("redrive says %q", said)
	}
	if got := decodeText[upkeep.PurgeResult](t, fails("purge --json")); got.Tables != 4 || !slices.Equal(got.Failed, []string{"db2"}) {
		t.Errorf("purge: %+v", got)
	}
	s.write("biz.yaml", strings.Replace(bizYAML, "attempts: 3", "attempts: 5", 1))
	if got := decodeText[appliedBiz](t, fails("biz apply biz.yaml --json")); got.Databases != 1 {
		t.Errorf("biz apply: %+v", got)
	}
	s.run("biz", "show", "order.close").says(t, "attempts: 5")
}

// What the other servers hold is printed while one is away or frozen, and that one is named.
func TestListsHaveWhatTheOtherServersHold(t *testing.T) {
	t.Parallel()
	s := halfDown(t)
	s.run("task", "add", "--type", "order.close", "--in", "1h", "--biz-id", s.bizIDIn(0)).ok(t)
	for line, want := range map[string]string{
		"task list --status pending":     "order.close  biz_id ",
		"task list --status dead":        "no dead tasks in what could be read\n",
		"task list --status dead --json": "[]\n",
		"schedule list":                  "no schedules in what could be read\n",
		"biz stats":                      "not counted in full: db2\n",
		"cluster tables":                 "not counted in full: db2\n",
	} {
		r := s.run(strings.Fields(line)...)
		r.refused(t, exitFailed, "db2")
		if !strings.Contains(r.stdout, want) {
			t.Errorf("%s: no %q in %q", line, want, r.stdout)
		}
	}
	s.user("SELECT ON {prefix}_0.layout", "SELECT ON {prefix}_1.layout", "SELECT ON {prefix}_0.biz_type", "SELECT ON {prefix}_1.biz_type")
	for _, line := range []string{"task list --status pending --json", "biz stats", "biz stats --json"} {
		r := s.run(strings.Fields(line)...)
		r.refused(t, exitFailed, "SELECT command denied")
		if r.stdout != "" {
			t.Errorf("%s prints of tables that it may not read: %s", line, r.stdout)
		}
	}
}

func TestAFrozenServerHoldsUpNoListForLong(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	m, err := devserver.StartMariaDB(t.Context(), devserver.MariaDBConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Kill() })
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

// Every command does its work on the correct database, names the wrong one once, and
// fails.
func TestCommandsGoOnBesideAWrongDatabase(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ wrong, says string }{
		"its layout table is gone":                  {"RENAME TABLE {prefix}_1.layout TO {prefix}_1.away", "{prefix}_1 on db1 has no layout table"},
		"it is of another cluster":                  {"UPDATE {prefix}_1.layout SET cluster_id = 'other'", `that of {prefix}_1 on db1 is "other"`},
		"it is of another cluster with the same id": {"UPDATE {prefix}_1.layout SET identity = 'other'", "that of {prefix}_1 on db1 is other"},
		"the database is gone":                      {"DROP DATABASE {prefix}_1", "{prefix}_1 on db1 has no layout table"},
		"it says that it is retired":                {"UPDATE {prefix}_1.layout SET state = 'retired'", "{prefix}_1 on db1 is retired"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			says := strings.ReplaceAll(c.says, "{prefix}", s.prefix)
			for database := range 2 {
				n, err := strconv.Atoi(s.bizIDIn(database))
				if err != nil {
					t.Fatal(err)
				}
				s.settled(n, tocsin.Done, "31 DAY")
				s.settled(n, tocsin.Pending, "1 HOUR")
			}
			s.exec(c.wrong)
			fails := func(args ...string) result {
				r := s.run(args...)
				r.refused(t, exitFailed, says)
				if n := strings.Count(r.stderr, says); n > 1 {
					t.Errorf("%s names the database %d times: %s", args[0], n, r.stderr)
				}
				return r
			}
			if got := decodeText[node.SweepResult](t, fails("sweep", "--json").stdout); got.Tables != 4 || got.Overdue != 1 {
				t.Errorf("sweep: %+v, want 4 tables, 1 overdue", got)
			}
			if got := decodeText[upkeep.AuditReport](t, fails("audit", "--json").stdout); got.Tables != 4 || got.Faults["overdue"] != 1 {
				t.Errorf("audit: %+v, want 4 tables, 1 overdue", got)
			}
			if got := decodeText[upkeep.PurgeResult](t, fails("purge", "--json").stdout); got.Tables != 4 || got.Types["order.close"].Done != 1 {
				t.Errorf("purge: %+v, want 4 tables, 1 done", got)
			}
			s.write("biz.yaml", strings.Replace(bizYAML, "attempts: 3", "attempts: 5", 1))
			if got := decodeText[appliedBiz](t, fails("biz", "apply", "biz.yaml", "--json").stdout); got.Databases != 1 {
				t.Errorf("biz apply: %+v, want 1 database", got)
			}
			s.run("biz", "show", "order.close").says(t, "attempts: 5")
			s.pausesTheOther(c.wrong, fails)
			add := func(database int) result {
				return s.run("task", "add", "--type", "order.close", "--in", "1h", "--biz-id", s.bizIDIn(database))
			}
			add(0).says(t, "pending")
			add(1).refused(t, exitFailed, says)
			s.node("orders", "host", 1)
			if r := s.run("cluster", "nodes"); name != "it says that it is retired" && (r.code != exitFailed || !strings.Contains(r.stderr, says)) {
				t.Errorf("cluster nodes: exit code %d, want %s:\n%s", r.code, says, r.stderr)
			}
			if r := s.run("doctor"); r.code != exitFailed || !strings.Contains(r.stdout, says) {
				t.Errorf("doctor: exit code %d, want %s:\n%s", r.code, says, r.stdout)
			}
		})
	}
}

// pausesTheOther pauses a type in database 0 alone, and resumes it.
func (s *site) pausesTheOther(wrong string, fails func(args ...string) result) {
	s.t.Helper()
	if got := decodeText[appliedBiz](s.t, fails("biz", "pause", "order.close", "--json").stdout); got.Databases != 1 {
		s.t.Errorf("biz pause: %+v, want 1 database", got)
	}
	s.run("biz", "show", "order.close").says(s.t, "paused: true")
	s.unpaused(1, wrong)
	fails("biz", "resume", "order.close")
}

// unpaused fails the test if a type in a database was changed, unless the database is
// gone.
func (s *site) unpaused(database int, wrong string) {
	s.t.Helper()
	if strings.HasPrefix(wrong, "DROP DATABASE") {
		return
	}
	var policy string
	var revision int
	err := s.db.QueryRow("SELECT policy, revision FROM "+s.layout.Database(database)+".biz_type WHERE number = 1").Scan(&policy, &revision)
	if err != nil || revision != 1 || strings.Contains(policy, "paused") {
		s.t.Errorf("the wrong database was written: revision %d, %s, %v", revision, policy, err)
	}
}

// awaySite has a biz type whose receiver is down, and a function that starts the receiver.
func awaySite(t *testing.T) (s *site, c *callbacks, back func()) {
	t.Helper()
	s, c = callbackSite(t)
	c.Close()
	return s, c, func() {
		l, err := net.Listen("tcp", c.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		again := httptest.NewUnstartedServer(c)
		_ = again.Listener.Close()
		again.Listener = l
		again.Start()
		t.Cleanup(again.Close)
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

// lane reads what a node says of the biz type.
func (s *site) lane(page string) (l dispatcher.LaneReport) {
	s.t.Helper()
	r, err := s.report(page)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, l := range r.Lanes {
		if l.BizType == "coupon.remind" {
			return l
		}
	}
	return l
}

const notReached = `tocsin_dispatcher_not_reached_total{biz_type="coupon.remind"}`

// While an endpoint is down its tasks wait, use no attempt, and are tried one at a time; once it is back, all come once.
func TestTasksWaitWithoutAnAttemptWhileTheirEndpointIsDown(t *testing.T) {
	t.Parallel()
	const tasks = 2000
	s, c, back := awaySite(t)
	s.fill(tasks, 0)
	page := devtest.FreeAddress()
	began := time.Now()
	s.serve("owner", "--listen", page)
	s.ownedBy(map[string]int{"owner": 8})
	s.waitFor("the node finds that it can't reach it", func() bool { return s.lane(page).State == dispatcher.Away })
	id := s.nodes()[0].ID

	last := s.adding("coupon.remind", tasks+1, "0s")
	s.until(last, operator.StateTargetAway, nil, "node "+id+" can't reach the target of coupon.remind since 20", "connection refused", "it tries one task", "and the others wait, without an attempt")
	s.run("task", "why", last.String()).says(t, "\ntarget_away: node "+id)
	s.run("top", "--once", "--status", page).says(t, "away")
	s.run("biz", "show", "coupon.remind").says(t, "# "+id+": away, ", " tasks wait, since 20", ", next try 20", "connection refused")
	s.waitFor("the fourth probe has failed", func() bool {
		l := s.lane(page)
		return l.State == dispatcher.Away && l.NextTry.Sub(l.AwaySince) > 14*time.Second
	})
	tried := s.metric(page, notReached)
	if most := float64(20 + slots + 6); tried < 20 || tried > most {
		t.Errorf("%v deliveries were tried, want 20 to %v", tried, most)
	}
	if state := s.metric(page, `tocsin_dispatcher_lane_state{biz_type="coupon.remind"}`); state != 4 {
		t.Errorf("the state of the lane is %v", state)
	}
	if n := s.counted("status = 0 AND attempts + crashes = 0"); n != tasks+1 {
		t.Errorf("%d of %d tasks wait without an attempt", n, tasks+1)
	}
	down := time.Since(began)
	back()
	returned := time.Now()
	s.waitFor("all tasks are done", func() bool { return s.notDone() == 0 })
	t.Logf("down for %s: %v deliveries tried; back: all done after %s", down.Round(time.Second), s.metric(page, notReached), time.Since(returned).Round(time.Millisecond))
	if seen, again, _ := c.counts(); seen != tasks+1 || again != 0 {
		t.Errorf("%d of %d tasks came, %d of them more than once", seen, tasks+1, again)
	}
	if n := s.counted("attempts + crashes > 0"); n != 0 {
		t.Errorf("%d tasks have an attempt", n)
	}
	if l := s.lane(page); l.State != dispatcher.Open || !l.AwaySince.IsZero() {
		t.Errorf("afterwards: %+v", l)
	}
}

// A sweep ends soon, leaves the tasks as they were, and says why.
func TestASweepLeavesTasksWhoseEndpointIsDown(t *testing.T) {
	t.Parallel()
	for name, tasks := range map[string]int{"few": 5, "many": 6000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, c, back := awaySite(t)
			s.write("tocsin.yaml", withoutEtcd(s.yaml(s.layout, s.dsn())))
			s.overdue("coupon.remind", tasks)
			r := s.run("sweep", "--once", "--timeout", "5m", "--json")
			got := decodeText[sweptJSON](t, r.stdout)
			if left := fmt.Sprintf("tocsin: overdue tasks are left: coupon.remind (target away): %d\n", tasks); r.code != exitFailed ||
				!strings.HasSuffix(r.stderr, left) || !strings.Contains(r.stderr, "connection refused") {
				t.Errorf("exit code %d, stderr:\n%s", r.code, r.stderr)
			}
			if got.Overdue != tasks || got.Left["coupon.remind (target away)"] != tasks || got.Delivered+got.Unread+got.CutOff != 0 || got.TimedOut {
				t.Errorf("%s", r.stdout)
			}
			if n := s.counted("status = 0 AND attempts + crashes = 0 AND action_time < UTC_TIMESTAMP() - INTERVAL 9 MINUTE"); n != tasks {
				t.Errorf("%d of %d tasks wait as they were", n, tasks)
			}
			back()
			s.run("sweep", "--once", "--timeout", "0s").endedWith(t, fmt.Sprintf("%d delivered", tasks))
			if seen, again, _ := c.counts(); seen != tasks || again != 0 {
				t.Errorf("%d of %d tasks came, %d of them more than once", seen, tasks, again)
			}
		})
	}
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

// lastOwners reads the nodes that the owner rows name, by name without incarnation.
func (s *site) lastOwners() (names []string) {
	s.t.Helper()
	for db := range s.layout.Databases {
		rows, err := s.db.Query("SELECT node FROM " + s.layout.Database(db) + ".owner WHERE group_name = 'callback'")
		if err != nil {
			s.t.Fatal(err)
		}
		for rows.Next() {
			var id string
			if err := rows.Scan(&id); err != nil {
				s.t.Fatal(err)
			}
			names = append(names, id[:strings.LastIndex(id, "-")])
		}
		if err := rows.Err(); err != nil {
			s.t.Fatal(err)
		}
	}
	return names
}

// A node is cut off from etcd and goes on in claim mode, etcd is wiped, and another node takes the tables. When etcd is
// away next, the other node's claims count and the first one's don't.
func TestAfterEtcdWasWipedTheNewOwnerIsTheOneWhoClaims(t *testing.T) {
	t.Parallel()
	const tasks = 40
	s, c := callbackSite(t)
	etcd := s.ownEtcd()
	way, oldPage := cutOffFrom(s, "old", etcd.Endpoint())
	s.ownedBy(map[string]int{"old": 8})
	way.Cut()
	s.waitFor("the old node is in claim mode", func() bool { return s.mode(oldPage) == "claim" })
	etcd.wipe()
	page := devtest.FreeAddress()
	s.serve("new", "--listen", page)
	s.ownedBy(map[string]int{"new": 8})
	s.waitFor("the owner rows name the new node", func() bool { return slices.Equal(s.lastOwners(), slices.Repeat([]string{"new"}, 8)) })
	if err := etcd.Stop(); err != nil {
		t.Fatal(err)
	}
	s.waitFor("the new node is in claim mode", func() bool { return s.mode(page) == "claim" })
	s.fill(tasks, 0)
	s.waitFor("all are done", func() bool { return s.notDone() == 0 })
	if seen, again, early := c.counts(); seen != tasks || again+early != 0 {
		t.Errorf("%d of %d tasks seen, %d more than once, %d early", seen, tasks, again, early)
	}
	for db := range s.layout.Databases {
		for table := range s.layout.Tables {
			name := s.layout.Table(db*s.layout.Tables + table)
			var others int
			if err := s.db.QueryRow("SELECT COUNT(*) FROM " + name + " WHERE claimed_by NOT LIKE 'new-%'").Scan(&others); err != nil || others != 0 {
				t.Errorf("%s: %d tasks are claimed by another than the new node, %v", name, others, err)
			}
		}
	}
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
	before, _, _ := c.counts()
	lost := time.Now()
	gap := c.longestGap(func() {
		etcd.wipe()
		s.ownedBy(map[string]int{"a": 4, "b": 4})
		s.othersGoOn(c, 40)
	})
	whole := time.Since(lost)
	during, _, _ := c.counts()
	l.end()
	s.waitFor("all are done", func() bool { return s.notDone() == 0 })
	seen, again, early := c.counts()
	added, refused := l.counts()
	t.Logf("etcd was wiped and the tables owned again within %.1f s, in which %d tasks were delivered; the longest time without a delivery was %.2f s; of %d tasks stored %d were delivered, %d more than once, %d early",
		whole.Seconds(), during-before, gap.Seconds(), added, seen, again, early)
	if seen != added || refused != 0 || early != 0 {
		t.Errorf("%d stored, %d refused, %d delivered, %d early", added, refused, seen, early)
	}
	s.run("cluster", "nodes").says(t, "ownership")
}

// longestGap returns the longest time without a new delivery while work runs, to within some milliseconds.
func (c *callbacks) longestGap(work func()) (gap time.Duration) {
	stop, ended := make(chan struct{}), make(chan time.Duration)
	go func() {
		last, since, longest := 0, time.Now(), time.Duration(0)
		for {
			select {
			case <-stop:
				ended <- max(longest, time.Since(since))
				return
			case <-time.After(2 * time.Millisecond):
			}
			if seen, _, _ := c.counts(); seen != last {
				longest = max(longest, time.Since(since))
				last, since = seen, time.Now()
			}
		}
	}()
	work()
	close(stop)
	return <-ended
}
