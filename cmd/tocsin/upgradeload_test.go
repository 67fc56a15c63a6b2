package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/quantile"
)

// oldModule names the folder of a checkout of the commit to upgrade from. Without it, this program plays the old one, on tables
// of version 2.
const oldModule = "TOCSIN_OLD"

// upgradeSize is how large the cluster is that TestUpgradeUnderLoad upgrades.
type upgradeSize struct {
	layout            tocsin.Layout
	rows, rate, nodes int
	rest              time.Duration // of the load between two steps
}

// envFaults asks for the long form.
const envFaults = "TOCSIN_FAULTS"

// sizeOfUpgrade is that of the figures in docs/operations.md in the long form, else a small one.
func sizeOfUpgrade() upgradeSize {
	if os.Getenv(envFaults) == "" {
		return upgradeSize{layoutOfTests, 1000, 50, 2, time.Second}
	}
	return upgradeSize{tocsin.Layout{Databases: 8, Tables: 64}, 1_000_000, 500, 3, 10 * time.Second}
}

// generation is the programs of one commit.
type generation struct{ tocsin, adder string }

// build compiles the service that adds tasks, and the command unless it is this one.
func build(t *testing.T, module string, command bool) (g generation) {
	t.Helper()
	dir := t.TempDir()
	source, err := filepath.Abs(filepath.Join("testdata", "adder", "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(module, "cmd", "adder", "main.go"): source}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	compile := func(name string) string {
		cmd := exec.CommandContext(t.Context(), "go", "build", "-overlay", file, "-o", filepath.Join(dir, name), "./cmd/"+name)
		cmd.Dir = module
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", name, err, out)
		}
		return filepath.Join(dir, name)
	}
	g.adder = compile("adder")
	if command {
		g.tocsin = compile("tocsin")
	}
	return g
}

// command calls the generation's tocsin.
func (g generation) command(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := command(ctx, dir, args...)
	if g.tocsin != "" {
		cmd.Path, cmd.Args[0] = g.tocsin, g.tocsin
	}
	return cmd
}

// adding is a service at work.
type adding struct {
	cmd *exec.Cmd
	end io.Closer
	out *output
}

// add starts the generation's service.
func (u *upgradeRun) add(g generation, args ...string) *adding {
	u.t.Helper()
	cmd := exec.CommandContext(u.t.Context(), g.adder, append([]string{"-dsn", u.dsn(), "-prefix", u.prefix,
		"-databases", fmt.Sprint(u.layout.Databases), "-tables", fmt.Sprint(u.layout.Tables)}, args...)...)
	a := &adding{cmd: cmd, out: &output{}}
	cmd.Stdout, cmd.Stderr = a.out, a.out
	var err error
	if a.end, err = cmd.StdinPipe(); err != nil {
		u.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		u.t.Fatal(err)
	}
	return a
}

// added is what a service prints when it ends.
type added struct {
	Calls, Failed int
	Errors        []string
	P99           int `json:"p99_ms"`
	Max           int `json:"max_ms"`
}

// stop ends a service and returns how it went.
func (a *adding) stop(t *testing.T) added {
	t.Helper()
	_ = a.end.Close()
	if err := a.cmd.Wait(); err != nil {
		t.Fatalf("the service that adds: %v\n%s", err, a.out)
	}
	return decodeText[added](t, a.out.String())
}

// upgradeRun is a cluster of version 2 under load, and its figures.
type upgradeRun struct {
	*site
	*callbacks
	size     upgradeSize
	real     bool // the old generation is an older commit's
	old, new generation
	phases   []phase
}

// phase is a part of the run.
type phase struct {
	name string
	from time.Time
}

func (u *upgradeRun) begin(name string) { u.phases = append(u.phases, phase{name, time.Now()}) }

func newUpgradeRun(t *testing.T) *upgradeRun {
	t.Helper()
	u := &upgradeRun{size: sizeOfUpgrade()}
	u.site, u.callbacks = siteOf(t, u.size.layout), newCallbacks(t)
	here, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	u.new = build(t, here, false)
	if module := os.Getenv(oldModule); module != "" {
		u.real, u.old = true, build(t, module, true)
		u.byOld("ddl", "apply")
	} else {
		u.old = u.new
		devtest.Version2(t, u.dsn(), u.prefix, u.layout.Databases, u.layout.Tables)
	}
	u.applyCallbacks(u.callbacks)
	u.logSlow()
	return u
}

// byOld calls the old command, and logs what it says if it is an older commit's.
func (u *upgradeRun) byOld(args ...string) (out string, code int) {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(u.t.Context(), runWithin)
	defer cancel()
	cmd := u.old.command(ctx, u.dir, args...)
	text, _ := cmd.CombinedOutput()
	if u.real {
		u.t.Logf("the old program: tocsin %s: exit code %d\n%s", strings.Join(args, " "), cmd.ProcessState.ExitCode(), text)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// tries has an old and a new client add a task each, and an old and a new command look at the tables.
func (u *upgradeRun) tries(when string) {
	u.t.Helper()
	add := []string{"task", "add", "--type", "coupon.remind", "--biz-id", "1", "--in", "2s"}
	u.run(add...).ok(u.t)
	if out, code := u.byOld(add...); code != exitOK {
		u.t.Errorf("%s: the old client: exit code %d\n%s", when, code, out)
	}
	u.byOld("ddl", "verify")
	r := u.run("ddl", "verify")
	u.t.Logf("%s: `ddl verify` of the new program: exit code %d\n%.600s", when, r.code, r.stdout)
}

// roll replaces the node in a seat by one of the new program.
func (u *upgradeRun) roll(n *serving, name string) *serving {
	u.t.Helper()
	n.end(u.t)
	return u.start1(u.new, name)
}

// start1 starts one node and waits until it owns its share.
func (u *upgradeRun) start1(g generation, name string) *serving {
	u.t.Helper()
	n := u.serveBy(g.command(u.t.Context(), u.dir, serveArgs(name)...), name)
	u.waitFor(name+" owns tables", func() bool {
		for _, state := range u.nodes() {
			if strings.HasPrefix(state.ID, name+"-") && state.Tables >= u.layout.Total()/u.size.nodes/2 {
				return true
			}
		}
		return false
	})
	return n
}

// TestUpgradeUnderLoad upgrades a cluster as docs/operations.md says, while tasks are added and delivered. With TOCSIN_FAULTS=1
// it is a large one, and with TOCSIN_OLD the nodes and the service that adds are those of an older commit until they are
// replaced:
//
//	git worktree add --detach FOLDER 93fae2b
//	TOCSIN_FAULTS=1 TOCSIN_OLD=FOLDER go test -v -count=1 -run '^TestUpgradeUnderLoad$' ./cmd/tocsin
func TestUpgradeUnderLoad(t *testing.T) {
	if os.Getenv(envFaults) == "" {
		t.Parallel()
	}
	u := newUpgradeRun(t)
	filled := u.add(u.old, "-rows", fmt.Sprint(u.size.rows), "-ahead", "24h", "-first", "1000000000").stop(t)
	if filled.Failed > 0 {
		t.Fatal(filled)
	}
	var nodes []*serving
	for i := range u.size.nodes {
		nodes = append(nodes, u.start1(u.old, fmt.Sprintf("n%d", i)))
	}
	rate := fmt.Sprint(u.size.rate)
	oldService := u.add(u.old, "-rate", rate, "-first", "1")
	u.waitFor("tasks are delivered", func() bool { seen, _, _ := u.counts(); return seen > u.size.rate })
	u.begin("old program, version 2")
	u.tries("old tables")
	time.Sleep(u.size.rest)

	u.saysToApply()
	u.begin("migrated, killed half-way, again")
	waits := u.watchLocks()
	u.killedApply(u.layout.Total() / 2)
	u.doctor().finding(t, "warn", "schema", "a migration to version 3 has begun and is not done: "+u.prefix+"_0", "run `tocsin ddl apply` again")
	r := u.run("ddl", "apply") // a slow machine has it print its progress
	if r.code != exitOK || !strings.Contains(r.stdout, "schema version 3, was 2: ") {
		t.Fatalf("exit code %d, %s%s", r.code, r.stdout, r.stderr)
	}
	t.Logf("ddl apply again: %s", r.stdout)
	waits.end(t)
	u.begin("old program, new version")
	u.doctor().finding(t, "warn", "schema", "the upgrade to version 3 is not finished: older programs may still use "+u.prefix+"_0, ", "run `tocsin ddl finish`")
	u.tries("new tables")
	time.Sleep(u.size.rest)

	u.begin("nodes and services are replaced")
	for i, n := range nodes {
		nodes[i] = u.roll(n, fmt.Sprintf("n%d", i))
	}
	newService := u.add(u.new, "-rate", rate, "-first", "500000000")
	byOld := oldService.stop(t)
	u.begin("new program, new version")
	u.run("ddl", "finish").says(t, "refuse programs for older ones from now on")
	if got := decode[ddl.Finished](t, u.run("ddl", "finish", "--json")); got != (ddl.Finished{Version: 3, WorkedFor: 3}) {
		t.Errorf("finish again: %+v", got)
	}
	u.run("ddl", "verify").says(t, "as they should be: schema version 3")
	u.doctor().finding(t, "ok", "schema", "version 3, as this program's")
	time.Sleep(u.size.rest)
	u.oldIsRefused()
	u.goBack()
	u.verdict(byOld, newService.stop(t))
}

// saysToApply wants that commands advise `ddl apply` for tables of version 2, and that a plan changes nothing.
func (u *upgradeRun) saysToApply() {
	u.t.Helper()
	u.doctor().finding(u.t, "warn", "schema", "of version 2 or newer, and this program is for 3", "run `tocsin ddl apply`")
	r := u.run("ddl", "verify")
	if want := u.prefix + "_0 has schema version 2, this program is for 3, which "; r.code != exitFailed || !strings.Contains(r.stdout, want) {
		u.t.Errorf("verify: exit code %d, want 1 and %q:\n%s", r.code, want, r.stdout)
	}
	u.run("ddl", "finish").refused(u.t, exitFailed, "has schema version 2, this program is for 3", "run `tocsin ddl apply`")
	u.run("ddl", "plan", "--migrate").says(u.t, "from version 2 to 3, for server db1", "ALTER /* tocsin ddl migrate */ TABLE ", "`"+u.prefix+"_1`.`task_0003`", "ADD COLUMN /*M! IF NOT EXISTS */ sweep_grace_ms")
	u.run("ddl", "plan", "--migrate", "--out", "sql").says(u.t, filepath.Join("sql", "db1.sql"))
	if n := u.migratedTables(); n != 0 {
		u.t.Errorf("the plan migrated %d tables", n)
	}
}

// goBack undoes `ddl finish`, as docs/operations.md says, tries the old client, and finishes again.
func (u *upgradeRun) goBack() {
	u.t.Helper()
	for db := range u.layout.Databases {
		u.exec("UPDATE " + u.layout.Database(db) + ".layout SET works_with = 2 WHERE id = 1")
	}
	if out, code := u.byOld("task", "add", "--type", "coupon.remind", "--biz-id", "1", "--in", "2s"); code != exitOK {
		u.t.Errorf("after going back, the old client: exit code %d\n%s", code, out)
	}
	u.run("ddl", "finish").says(u.t, "until now those for version 2 worked")
}

// oldIsRefused tries the old commands after `ddl finish`.
func (u *upgradeRun) oldIsRefused() {
	u.t.Helper()
	if !u.real {
		return
	}
	for _, args := range [][]string{
		{"task", "add", "--type", "coupon.remind", "--biz-id", "1", "--in", "2s"}, serveArgs("old"), {"sweep"}, {"ddl", "verify"}, {"ddl", "apply"},
	} {
		if out, code := u.byOld(args...); code == exitOK {
			u.t.Errorf("after finish, the old tocsin %s is not refused:\n%s", args, out)
		}
	}
}

// slowLog is the server's log of slow statements, a file beside its data: a log in a table would be slow itself.
const slowLog = "tocsin-slow.log"

// logSlow has the server note every statement of 10 ms or more of the sessions that begin from now on.
func (u *upgradeRun) logSlow() {
	u.t.Helper()
	for _, set := range []string{"log_slow_admin_statements = 1", "log_output = 'FILE'", "slow_query_log_file = '" + slowLog + "'", "long_query_time = 0.01", "slow_query_log = 1"} {
		u.exec("SET GLOBAL " + set)
	}
	u.t.Cleanup(func() { u.exec("SET GLOBAL slow_query_log = 0") })
}

// slowest returns the longest statement of each sender in a span, which the log knows to the second.
func (u *upgradeRun) slowest(from, to time.Time) map[string]time.Duration {
	u.t.Helper()
	var dir string
	if err := u.db.QueryRow("SELECT @@datadir").Scan(&dir); err != nil {
		u.t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, slowLog))
	if err != nil {
		u.t.Fatal(err)
	}
	longest := map[string]time.Duration{}
	for _, m := range slowEntry.FindAllStringSubmatch(string(text), -1) {
		took, err := strconv.ParseFloat(m[1], 64)
		at, wrong := strconv.ParseInt(m[2], 10, 64)
		if err != nil || wrong != nil {
			u.t.Fatalf("slow log: %q", m[0])
		}
		if begun := time.Unix(at, 0); !begun.Before(from.Truncate(time.Second)) && begun.Before(to) {
			longest[m[3]] = max(longest[m[3]], time.Duration(took*1e6)*time.Microsecond)
		}
	}
	return longest
}

// slowEntry is a statement of ours in the log: how long it took, when it began, and who sent it.
var slowEntry = regexp.MustCompile(`(?m)^# Query_time: ([0-9.]+) .*\n(?:#.*\n|use .*\n)*SET timestamp=([0-9]+)(?:\.[0-9]+)?;\n[^#;]{0,100}?/\* (tocsin [a-z ]+[a-z]) \*/`)

// sentBy finds who sent a statement.
var sentBy = regexp.MustCompile(`/\* (tocsin [a-z ]+[a-z]) \*/`)

// lockWaits is what waits for a table, looked at every few milliseconds.
type lockWaits struct {
	stop    context.CancelFunc
	ended   chan struct{}
	longest map[string]time.Duration // by sender
	most    int                      // statements at once
	looks   int
	err     error
}

// watchLocks looks until the end of the watch.
func (u *upgradeRun) watchLocks() *lockWaits {
	ctx, cancel := context.WithCancel(u.t.Context())
	w := &lockWaits{stop: cancel, ended: make(chan struct{}), longest: map[string]time.Duration{}}
	go func() {
		defer close(w.ended)
		since := map[waiter]time.Time{}
		for ctx.Err() == nil && w.err == nil {
			w.err = w.look(ctx, u, since)
			time.Sleep(5 * time.Millisecond)
		}
	}()
	return w
}

// waiter is a statement that waits.
type waiter struct {
	id   int64 // of its connection
	text string
}

// look notes who waits, and since when. MySQL's own log of slow statements has a lock of another name.
func (w *lockWaits) look(ctx context.Context, u *upgradeRun, since map[waiter]time.Time) error {
	rows, err := u.db.QueryContext(ctx, `SELECT id, COALESCE(LEFT(info, 1000), '') FROM information_schema.processlist WHERE state = 'Waiting for table metadata lock'`)
	if err != nil {
		return unlessEnded(ctx, err)
	}
	defer func() { _ = rows.Close() }()
	now, waiting := time.Now(), map[waiter]bool{}
	for rows.Next() {
		var one waiter
		if err := rows.Scan(&one.id, &one.text); err != nil {
			return unlessEnded(ctx, err)
		}
		waiting[one] = true
		if since[one].IsZero() {
			since[one] = now
		}
		if m := sentBy.FindStringSubmatch(one.text); m != nil && now.After(since[one]) {
			w.longest[m[1]] = max(w.longest[m[1]], now.Sub(since[one]).Truncate(time.Millisecond))
		}
	}
	maps.DeleteFunc(since, func(one waiter, _ time.Time) bool { return !waiting[one] })
	w.most, w.looks = max(w.most, len(waiting)), w.looks+1
	return unlessEnded(ctx, rows.Err())
}

func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// end stops the watch and prints what it saw.
func (w *lockWaits) end(t *testing.T) {
	t.Helper()
	w.stop()
	<-w.ended
	if w.err != nil {
		t.Error(w.err)
	}
	t.Logf("waits for tables, in %d looks: at most %d statements at once, the longest seen by sender: %v", w.looks, w.most, w.longest)
}

// verdict waits until all is delivered, prints the figures, and fails for a task that is lost, early, or came twice.
func (u *upgradeRun) verdict(services ...added) {
	u.t.Helper()
	u.waitFor("all tasks are done", func() bool { return u.notDone() == u.size.rows })
	u.begin("the end")
	for _, s := range services {
		u.t.Logf("a service: %+v", s)
		if s.Failed > 0 {
			u.t.Errorf("%d adds failed", s.Failed)
		}
	}
	done := u.rows() - u.size.rows
	seen, again, early := u.counts()
	u.t.Logf("%d tasks done beside %d that are not due: %d lost, %d early, %d more than once", done, u.size.rows, done-seen, early, again)
	if done < 2*u.size.rate || done != seen || early != 0 || again != 0 {
		u.t.Error("a promise is broken")
	}
	for i, p := range u.phases[:len(u.phases)-1] {
		to := u.phases[i+1].from
		u.t.Logf("%s: %.1f s; lateness %s; longest statements %v", p.name, to.Sub(p.from).Seconds(), u.lateness(p.from, to), u.slowest(p.from, to))
	}
}

// lateness describes the callbacks of tasks that were due in a span.
func (u *upgradeRun) lateness(from, to time.Time) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	var late []time.Duration
	for _, a := range u.arrivals {
		if a.due.After(from) && a.due.Before(to) {
			late = append(late, a.at.Sub(a.due))
		}
	}
	if len(late) == 0 {
		return "of none"
	}
	slices.Sort(late)
	at := func(q float64) time.Duration { return quantile.Of(late, q).Round(100 * time.Microsecond) }
	return fmt.Sprintf("of %d: p50 %s, p99 %s, max %s", len(late), at(0.5), at(0.99), at(1))
}
