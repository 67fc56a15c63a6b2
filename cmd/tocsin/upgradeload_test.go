package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
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
	if err := n.Process.Signal(syscall.SIGTERM); err != nil {
		u.t.Fatal(err)
	}
	if err := n.Wait(); err != nil {
		u.t.Errorf("%s: %v", name, err)
	}
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

	u.begin("migrated, killed half-way, again")
	waits := u.watchLocks()
	u.killedApply(u.layout.Total() / 2)
	r := u.run("ddl", "apply") // a slow machine has it print its progress
	if r.code != exitOK || !strings.Contains(r.stdout, "schema version 3, was 2: ") {
		t.Fatalf("exit code %d, %s%s", r.code, r.stdout, r.stderr)
	}
	t.Logf("ddl apply again: %s", r.stdout)
	waits.end(t)
	u.begin("old program, new version")
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
	u.run("ddl", "verify").says(t, "as they should be: schema version 3")
	time.Sleep(u.size.rest)
	u.oldIsRefused()
	u.goBack()
	u.verdict(byOld, newService.stop(t))
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
