package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// asCommand makes this test program be the command: so each test runs the real
// main() in a process of its own, with its exit code, and with -race.
const asCommand = "TOCSIN_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	devtest.Main(m)
}

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
	return cmd
}

// call runs the command in an empty folder.
func call(t *testing.T, args ...string) result { return callIn(t, t.TempDir(), "", args...) }

func callIn(t *testing.T, dir, stdin string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), runWithin)
	defer cancel()
	cmd := command(ctx, dir, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	err := cmd.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) || cmd.ProcessState.ExitCode() < 0 {
		t.Fatalf("tocsin %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
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
	var err error
	if s.db, err = sql.Open("mysql", devtest.DSN(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.db.Close() })
	return s
}

// newSite has tables and biz types.
func newSite(t *testing.T) *site {
	t.Helper()
	s := bareSite(t)
	s.applyDDL()
	s.write("biz.yaml", bizYAML)
	s.run("biz", "apply", "biz.yaml").ok(t)
	return s
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
func (s *site) rows() int {
	s.t.Helper()
	total := 0
	for table := range s.layout.Total() {
		var n int
		if err := s.db.QueryRow("SELECT COUNT(*) FROM " + s.layout.Table(table)).Scan(&n); err != nil {
			s.t.Fatal(err)
		}
		total += n
	}
	return total
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
