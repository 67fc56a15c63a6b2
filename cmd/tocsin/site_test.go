package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/contrib/tocsinkafka/broker"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// asCommand makes this test program be the command: so each test runs the real
// main() in a process of its own, with its exit code, and with -race.
const asCommand = "TOCSIN_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	broker.Main()
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	_ = os.Setenv(envStatus, statusToken) // fails for names that are none
	devtest.Main(m)
}

// A config may name this variable: that of a test alone would keep the test from running beside others.
const (
	envStatus   = "TOCSIN_TEST_STATUS"
	statusToken = "token-of-the-environment"
)

const (
	runWithin = 10 * time.Minute // bounds one call of the command: only one that hangs takes so long
	upWithin  = 8 * time.Minute  // bounds the start of all that `tocsin dev` starts, and the first that comes of it
)

// result is how a call of the command ended.
type result struct {
	stdout, stderr string
	code           int
}

// command prepares a call of the command in the folder dir. A program with the
// race detector would sleep for a second before it ends.
func command(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), asCommand+"=1", "TOCSIN_CONFIG=", "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	cmd.Env = append(cmd.Env, colourful...)
	return cmd
}

// call runs the command in an empty folder.
func call(t *testing.T, args ...string) result { return callIn(t, t.TempDir(), "", args...) }

func callIn(t *testing.T, dir, stdin string, args ...string) result {
	t.Helper()
	return callWith(t, dir, stdin, nil, args...)
}

// callWith is callIn with variables of the environment.
func callWith(t *testing.T, dir, stdin string, env []string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), runWithin)
	defer cancel()
	cmd := command(ctx, dir, args...)
	cmd.Env = append(cmd.Env, env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	err := cmd.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) || cmd.ProcessState.ExitCode() < 0 {
		t.Fatalf("tocsin %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	if found := steersTerminal(stdout.String() + stderr.String()); found != "" {
		t.Errorf("tocsin %s writes for a terminal: %q", strings.Join(args, " "), found)
	}
	return result{stdout.String(), progressLine.ReplaceAllString(stderr.String(), ""), cmd.ProcessState.ExitCode()}
}

// progressLine is what a call writes on standard error each 3 s that it takes.
var progressLine = regexp.MustCompile(`(?m)^[a-z][a-z ]*: \d+ of \d+\n`)

// ended wants exit code 0. A call that takes long may log meanwhile, as that its server is slow.
func (r result) ended(t *testing.T) string {
	t.Helper()
	if r.code != exitOK {
		t.Fatalf("exit code %d, stderr %q, stdout:\n%s", r.code, r.stderr, r.stdout)
	}
	return r.stdout
}

// ok wants exit code 0 and nothing on standard error.
func (r result) ok(t *testing.T) string {
	t.Helper()
	if r.code != exitOK || r.stderr != "" {
		t.Fatalf("exit code %d, stderr %q, stdout:\n%s", r.code, r.stderr, r.stdout)
	}
	return r.stdout
}

// refused wants an exit code and one line on standard error, "tocsin: " before
// it, that holds each part.
func (r result) refused(t *testing.T, code int, parts ...string) {
	t.Helper()
	if r.code != code || !strings.HasPrefix(r.stderr, "tocsin: ") || strings.Count(r.stderr, "\n") != 1 {
		t.Errorf("exit code %d, want %d and one line; stderr:\n%s", r.code, code, r.stderr)
	}
	for _, part := range parts {
		if !strings.Contains(r.stderr, part) {
			t.Errorf("stderr lacks %q:\n%s", part, r.stderr)
		}
	}
}

// says wants exit code 0 and each part in the output.
func (r result) says(t *testing.T, parts ...string) {
	t.Helper()
	r.ok(t)
	r.endedWith(t, parts...)
}

// endedWith is says for a call that may log meanwhile.
func (r result) endedWith(t *testing.T, parts ...string) {
	t.Helper()
	out := r.ended(t)
	for _, part := range parts {
		if !strings.Contains(out, part) {
			t.Errorf("stdout lacks %q:\n%s", part, out)
		}
	}
}

// decode reads the JSON of a call that succeeded; unknown fields are a mistake
// of the test.
func decode[T any](t *testing.T, r result) T {
	t.Helper()
	return decodeText[T](t, r.ok(t))
}

func decodeText[T any](t *testing.T, text string) (v T) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	if err := d.Decode(&v); err != nil || d.More() {
		t.Fatalf("not one JSON value of %T: %v\n%s", v, err, text)
	}
	return v
}

// site is an own cluster on the test's servers, with a config file.
type site struct {
	t      *testing.T
	dir    string
	prefix string
	layout tocsin.Layout
	db     *sql.DB

	identity assign.Identity // of the databases of nodes that register later
}

// layoutOfTests is small, and has more than one of everything.
var layoutOfTests = tocsin.Layout{Databases: 2, Tables: 4}

// bareSite has a config file and no tables.
func bareSite(t *testing.T) *site {
	t.Helper()
	return siteOf(t, layoutOfTests)
}

func siteOf(t *testing.T, layout tocsin.Layout) *site {
	t.Helper()
	s := &site{t: t, dir: t.TempDir(), prefix: devtest.Prefix(t), layout: layout}
	s.layout.Prefix = s.prefix
	s.write("tocsin.yaml", s.yaml(s.layout, devtest.DSN(t)))
	s.db = openDB(t, devtest.DSN(t))
	return s
}

// openDB opens a pool on a server, until the test ends.
func openDB(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// startServer starts a server for this test alone: its settings or its faults are what is tested.
func startServer(t *testing.T, cfg devserver.MariaDBConfig) *devserver.MariaDB {
	t.Helper()
	m, err := devserver.StartMariaDB(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Stop() })
	return m
}

// newSite has tables and biz types.
func newSite(t *testing.T) *site {
	t.Helper()
	s := bareSite(t)
	s.applyAll()
	return s
}

// applyAll creates the tables and the biz types of the servers that the config names.
func (s *site) applyAll() {
	s.t.Helper()
	s.applyDDL()
	s.applyBiz(bizYAML)
}

// applyBiz makes biz.yaml the file of biz types.
func (s *site) applyBiz(yaml string) {
	s.t.Helper()
	s.write("biz.yaml", yaml)
	s.run("biz", "apply", "biz.yaml").ok(s.t)
}

// applyDDL creates the tables, without lines of progress on a slow machine.
func (s *site) applyDDL() {
	s.t.Helper()
	s.run("ddl", "apply", "--json").ok(s.t)
}

const bizYAML = `biz_types:
  - name: order.close
    number: 1
    group: orders
    attempts: 3
  - name: coupon.remind
    number: 2
    webhook:
      url: https://example.com/hook
    paused: true
`

// yaml is a config of one server, db1.
func (s *site) yaml(layout tocsin.Layout, dsn string) string {
	return fmt.Sprintf(`cluster: %s
layout:
  databases: %d
  tables: %d
  prefix: %s
servers:
  - name: db1
    dsn: %s
etcd:
  endpoints: [%q]
`, s.prefix, layout.Databases, layout.Tables, s.prefix, dsn, devtest.Etcd(s.t))
}

// dsn is that of the test's server.
func (s *site) dsn() string { return devtest.DSN(s.t) }

// splitYAML is a config whose database 1 is on another server, db2.
func (s *site) splitYAML(dsn string) string {
	return strings.Replace(s.yaml(s.layout, s.dsn()), "etcd:", "    databases: [0]\n  - name: db2\n    dsn: "+dsn+"\n    databases: [1]\netcd:", 1)
}

// write makes a file in the site's folder, where the command runs.
func (s *site) write(name, text string) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// run calls the command where the config file is ./tocsin.yaml.
func (s *site) run(args ...string) result {
	s.t.Helper()
	return callIn(s.t, s.dir, "", args...)
}

// exec changes rows as a node, or a mistaken DBA, would.
func (s *site) exec(statement string, args ...any) {
	s.t.Helper()
	if _, err := s.db.Exec(strings.ReplaceAll(statement, "{prefix}", s.prefix), args...); err != nil {
		s.t.Fatalf("%s: %v", statement, err)
	}
}

// set changes columns of one task.
func (s *site) set(id tocsin.JobID, columns string) {
	s.t.Helper()
	s.exec("UPDATE "+s.layout.Table(id.Table())+" SET "+columns+" WHERE job_id = ?", uint64(id))
}

// rows counts the tasks of all tables.
func (s *site) rows() int { return s.counted("TRUE") }

// notDone counts the tasks that are not done.
func (s *site) notDone() int { return s.counted("status <> 2") }

// count counts the tasks in a status.
func (s *site) count(status tocsin.Status) int {
	return s.counted(fmt.Sprint("status = ", uint8(status)))
}

// add adds a task due in an hour.
func (s *site) add(bizID int, more ...string) tocsin.JobID {
	s.t.Helper()
	args := []string{"task", "add", "--json", "--type", "order.close", "--biz-id", fmt.Sprint(bizID), "--in", "1h"}
	return decode[taskJSON](s.t, s.run(append(args, more...)...)).JobID
}

// taskJSON is what scripts may rely on.
type taskJSON struct {
	JobID      tocsin.JobID `json:"job_id"`
	BizID      string       `json:"biz_id"`
	BizType    string       `json:"biz_type"`
	Status     string       `json:"status"`
	ActionTime time.Time    `json:"action_time"`
	DueTime    time.Time    `json:"due_time"`
	Attempts   int          `json:"attempts"`
	Version    int          `json:"version"`
	DedupKey   string       `json:"dedup_key"`
	Payload    string       `json:"payload"`
	Existing   bool         `json:"existing"`
}

// counted returns how many tasks meet the condition, over all tables.
func (s *site) counted(condition string) (n int) {
	s.t.Helper()
	for table := range s.layout.Total() {
		var here int
		if err := s.db.QueryRow("SELECT COUNT(*) FROM " + s.layout.Table(table) + " WHERE " + condition).Scan(&here); err != nil {
			s.t.Fatal(err)
		}
		n += here
	}
	return n
}

// text reads a file of the site's folder.
func (s *site) text(name string) string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

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
	s.applyDDL()
	s.applyCallbacks(c)
	return s, c
}

// applyCallbacks makes the one biz type.
func (s *site) applyCallbacks(c *callbacks) {
	s.t.Helper()
	s.applyBiz(fmt.Sprintf(`biz_types:
  - name: coupon.remind
    number: 2
    timeout: 30s
    webhook:
      url: %s
      allow: [127.0.0.0/8]
`, c.URL))
}

// client adds tasks faster than the command can.
func (s *site) client() *tocsin.Client {
	s.t.Helper()
	return s.clientOf(tocsin.Server{Name: "db1", DSN: s.dsn()})
}

// clientOf is client of other servers.
func (s *site) clientOf(servers ...tocsin.Server) *tocsin.Client {
	s.t.Helper()
	client, err := tocsin.Open(s.t.Context(), tocsin.Config{Layout: s.layout, Servers: servers})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = client.Close() })
	return client
}

// splitClient is client with database 1 on another server, as in splitYAML.
func (s *site) splitClient(dsn string) *tocsin.Client {
	s.t.Helper()
	return s.clientOf(tocsin.Server{Name: "db1", DSN: s.dsn(), Databases: []int{0}}, tocsin.Server{Name: "db2", DSN: dsn, Databases: []int{1}})
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

// serving is a command that stays, in a process of its own.
type serving struct {
	*exec.Cmd
	log *output
}

// end stops it in order, and wants exit code 0. A signal before the first line of its log could meet a process that handles none yet.
func (n *serving) end(t *testing.T) {
	t.Helper()
	for begin := time.Now(); n.log.String() == ""; time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatal("no line in the log")
		}
	}
	if err := n.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := n.Wait(); err != nil {
		t.Errorf("exit after SIGTERM: %v", err)
	}
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

// stays starts a command that stays.
func (s *site) stays(args ...string) *serving {
	s.t.Helper()
	return s.serveBy(command(s.t.Context(), s.dir, args...), args[0])
}

// serveBy starts a call that stays.
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

// ownedBy waits until each node, by its name, owns this number of tables.
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
