package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/operator/cluster"
)

// callbacks is a receiver that notes which task came how often.
type callbacks struct {
	*httptest.Server

	mu       sync.Mutex
	seen     map[string]int
	keys     map[string]map[string]bool // webhook-ids, by job_id
	early    int
	arrivals []arrival
}

// arrival is one callback: for when it was due, and when it came.
type arrival struct{ due, at time.Time }

func newCallbacks(t *testing.T) *callbacks {
	t.Helper()
	c := &callbacks{seen: map[string]int{}, keys: map[string]map[string]bool{}}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

func (c *callbacks) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	var body struct {
		Data struct {
			JobID   string    `json:"job_id"`
			DueTime time.Time `json:"due_time"`
		} `json:"data"`
	}
	_ = json.NewDecoder(r.Body).Decode(&body)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[body.Data.JobID]++
	if c.keys[body.Data.JobID] == nil {
		c.keys[body.Data.JobID] = map[string]bool{}
	}
	c.keys[body.Data.JobID][r.Header.Get("webhook-id")] = true
	c.arrivals = append(c.arrivals, arrival{body.Data.DueTime, time.Now()})
	if time.Now().Before(body.Data.DueTime) {
		c.early++
	}
}

// counts gives tasks seen, of these more than once, and deliveries that were early.
func (c *callbacks) counts() (seen, again, early int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.seen {
		if n > 1 {
			again++
		}
	}
	return len(c.seen), again, c.early
}

// callbackSite has one biz type, whose callbacks go to the receiver.
func callbackSite(t *testing.T) (*site, *callbacks) {
	t.Helper()
	s, c := bareSite(t), newCallbacks(t)
	s.run("ddl", "apply", "--json").ok(t) // which shows no progress
	s.applyCallbacks(c)
	return s, c
}

// applyCallbacks makes the one biz type.
func (s *site) applyCallbacks(c *callbacks) {
	s.t.Helper()
	s.write("biz.yaml", fmt.Sprintf(`biz_types:
  - name: coupon.remind
    number: 2
    timeout: 30s
    webhook:
      url: %s
      allow: [127.0.0.0/8]
`, c.URL))
	s.run("biz", "apply", "biz.yaml").ok(s.t)
}

// client adds tasks faster than the command can.
func (s *site) client() *tocsin.Client {
	s.t.Helper()
	client, err := tocsin.Open(s.t.Context(), tocsin.Config{Layout: s.layout, Servers: []tocsin.Server{{Name: "db1", DSN: s.dsn()}}})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = client.Close() })
	return client
}

// fill adds n callback tasks that are due over the given time.
func (s *site) fill(n int, over time.Duration) {
	s.t.Helper()
	remind := tocsin.Define[string]("coupon.remind")
	tasks := make([]tocsin.NewTask, n)
	for i := range tasks {
		tasks[i] = remind.New(uint64(i+1), "{}", tocsin.In(over*time.Duration(i)/time.Duration(n)))
	}
	if _, err := s.client().AddMany(s.t.Context(), tasks); err != nil {
		s.t.Fatal(err)
	}
}

// serving is a `tocsin serve` in a process of its own.
type serving struct {
	*exec.Cmd
	log *output
}

// output is what a process has written so far.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func (s *site) serve(name string, more ...string) *serving {
	s.t.Helper()
	return s.serveBy(command(s.t.Context(), s.dir, serveArgs(name, more...)...), name)
}

func serveArgs(name string, more ...string) []string {
	return append([]string{"serve", "--name", name, "--listen", "off"}, more...)
}

// serveBy starts a call of `tocsin serve`.
func (s *site) serveBy(cmd *exec.Cmd, name string) *serving {
	s.t.Helper()
	n := &serving{cmd, &output{}}
	cmd.Stderr = n.log
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if s.t.Failed() {
			s.t.Logf("log of %s:\n%s", name, n.log)
		}
	})
	return n
}

// ownedBy waits until the nodes, by name, own so many tables each.
func (s *site) ownedBy(want map[string]int) {
	s.t.Helper()
	s.waitFor("tables are owned as wanted", func() bool {
		got := map[string]int{}
		for _, n := range s.nodes() {
			got[n.ID[:strings.LastIndex(n.ID, "-")]] += n.Tables
		}
		for name, tables := range want {
			if got[name] != tables {
				return false
			}
		}
		return true
	})
}

// nodes are the live ones of all groups.
func (s *site) nodes() (all []assign.NodeState) {
	s.t.Helper()
	for _, g := range decode[[]cluster.Group](s.t, s.run("cluster", "nodes", "--json")) {
		all = append(all, g.Nodes...)
	}
	return all
}

// waitFor waits until ok. Where ok calls the command, most of the time is left to what it waits for.
func (s *site) waitFor(what string, ok func() bool) {
	s.t.Helper()
	s.waitWithin(3*time.Minute, what, ok)
}

// waitWithin is waitFor with another bound.
func (s *site) waitWithin(bound time.Duration, what string, ok func() bool) {
	s.t.Helper()
	for end := time.Now().Add(bound); ; {
		asked := time.Now()
		if ok() {
			return
		}
		if asked.After(end) {
			s.t.Fatalf("waited too long until %s", what)
		}
		time.Sleep(min(max(20*time.Millisecond, 4*time.Since(asked)), time.Second))
	}
}

// notDone counts the tasks that are not done.
func (s *site) notDone() (n int) {
	s.t.Helper()
	for table := range s.layout.Total() {
		var here int
		if err := s.db.QueryRow("SELECT COUNT(*) FROM " + s.layout.Table(table) + " WHERE status <> 2").Scan(&here); err != nil {
			s.t.Fatal(err)
		}
		n += here
	}
	return n
}

func TestKilledNodeLosesNoTask(t *testing.T) {
	t.Parallel()
	const tasks = 5000
	s, c := callbackSite(t)
	victim := s.serve("victim")
	s.serve("heir")
	s.ownedBy(map[string]int{"victim": 4, "heir": 4})
	s.fill(tasks, 20*time.Second)
	s.waitFor("a fifth is delivered", func() bool { seen, _, _ := c.counts(); return seen >= tasks/5 })
	killed := time.Now()
	if err := victim.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.ownedBy(map[string]int{"heir": 8})
	t.Logf("the last table had its new owner %.1f s after the kill", time.Since(killed).Seconds())
	s.waitFor("all are done", func() bool { return s.notDone() == 0 })
	seen, again, early := c.counts()
	t.Logf("%d tasks seen, %d more than once, %d early", seen, again, early)
	if seen != tasks || early != 0 {
		t.Errorf("%d of %d tasks were delivered, %d early", seen, tasks, early)
	}
}

func TestNodeLeavesInOrderOnSIGTERM(t *testing.T) {
	t.Parallel()
	s, _ := callbackSite(t)
	n := s.serve("leaver")
	s.ownedBy(map[string]int{"leaver": 8})
	if err := n.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := n.Wait(); err != nil {
		t.Errorf("exit after SIGTERM: %v\n%s", err, n.log)
	}
	if nodes := s.nodes(); len(nodes) != 0 {
		t.Errorf("nodes are left: %+v", nodes)
	}
}

func TestSweepDeliversEverythingOverdueAloneAndTwiceAtOnceNoneTwice(t *testing.T) {
	t.Parallel()
	const tasks = 3000
	s, c := callbackSite(t)
	s.fill(tasks, time.Millisecond)
	s.write("tocsin.yaml", withoutEtcd(s.yaml(s.layout, s.dsn())))
	dry := decode[sweepJSON](t, s.run("sweep", "--grace", "0s", "--dry-run", "--json"))
	if dry.Overdue != tasks || dry.Delivered != 0 {
		t.Errorf("dry run: %+v", dry)
	}
	results := make(chan result, 2)
	for range 2 {
		go func() { results <- s.run("sweep", "--grace", "0s", "--timeout", "0s", "--force", "--json") }()
	}
	first, second := <-results, <-results
	a, b := decodeText[sweepJSON](t, first.ended(t)), decodeText[sweepJSON](t, second.ended(t))
	seen, again, _ := c.counts()
	t.Logf("%d and %d delivered, %d seen, %d more than once", a.Delivered, b.Delivered, seen, again)
	if a.Delivered+b.Delivered != tasks || seen != tasks || again != 0 || s.notDone() != 0 {
		t.Errorf("delivered %d + %d, seen %d, twice %d, not done %d; want %d in all, each once", a.Delivered, b.Delivered, seen, again, s.notDone(), tasks)
	}
	s.run("sweep", "--grace", "0s", "--force").says(t, "sweep: 8 tables, 0 overdue, 0 delivered")
}

// sweepJSON is what scripts may rely on.
type sweepJSON struct {
	Tables    int      `json:"tables"`
	Overdue   int      `json:"overdue"`
	Delivered int      `json:"delivered"`
	Failed    []string `json:"failed"`
}

// withoutEtcd names an endpoint where nothing listens.
func withoutEtcd(yaml string) string {
	return yaml[:strings.Index(yaml, "etcd:")] + "etcd:\n  endpoints: [\"127.0.0.1:1\"]\n"
}

func TestServeAndSweepRefuseWhatCannotWork(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	address := taken.Addr().String()
	s.run("serve", "--listen", address).refused(t, exitFailed, address, "address already in use", "--listen")
	s.run("relay", "--dsn", s.dsn(), "--table", "shop.tocsin_outbox", "--listen", address).refused(t, exitFailed, address, "address already in use", "--listen")
	s.run("sweep", "--cron", "every day").refused(t, exitUsage, `cron expression "every day"`, `"*/5 * * * *"`)
	for _, command := range []string{"sweep", "purge"} {
		s.run(command, "--cron", "0 0 30 2 *").refused(t, exitUsage, `cron expression "0 0 30 2 *" never fires within five years`)
	}
	s.run("sweep", "--grace=-1s").refused(t, exitUsage, "--grace -1s")
	s.run("sweep", "--cron", "@every 1m", "--once").refused(t, exitUsage, "exclude each other")
	yaml := s.yaml(s.layout, s.dsn())
	s.write("tocsin.yaml", yaml[:strings.Index(yaml, "etcd:")])
	s.run("serve", "--listen", "off").refused(t, exitFailed, "no etcd endpoints", "layout.ownership")
}
