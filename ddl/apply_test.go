package ddl

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

func TestApplyCreatesEverythingOnceAndThenNothing(t *testing.T) {
	t.Parallel()
	cfg := config(t, 8, 16)
	var done, total int
	first := applied(t, cfg, Options{Progress: func(d, n int) { done, total = d, n }})
	if want := (Result{Cluster: first.Cluster, Identity: first.Identity, Databases: 8, Tables: 8 * 27, WorksWith: 3}); first != want || first.Cluster == "" || first.Identity == "" {
		t.Errorf("first Apply: %+v, want %+v", first, want)
	}
	if done != 216 || total != 216 {
		t.Errorf("progress ended at %d of %d, want 216 of 216", done, total)
	}
	if again, want := applied(t, cfg, Options{}), (Result{Cluster: first.Cluster, Identity: first.Identity, Existing: 216, From: 3, WorksWith: 3}); again != want {
		t.Errorf("second Apply: %+v, want %+v", again, want)
	}
}

func TestApplyGoesOnAfterAKill(t *testing.T) {
	t.Parallel()
	cfg := config(t, 8, 64)
	killApply(t, cfg, envApply, func(line string) bool {
		var done int
		_, err := fmt.Sscanf(line, "done %d", &done)
		return err == nil && done > 100
	})
	before, err := Verify(t.Context(), cfg)
	if err != nil || len(before) == 0 {
		t.Fatalf("the kill came too late to test anything: %d findings, %v", len(before), err)
	}
	if res := applied(t, cfg, Options{}); res.Existing == 0 || res.Tables == 0 || res.Existing+res.Tables != 8*75 {
		t.Errorf("%+v", res)
	}
	verified(t, cfg)
}

// envApply holds the config of an Apply to run in a process of its own.
const envApply = "TOCSIN_TEST_APPLY"

// killApply kills -9 a process, whose task TestMain finds in env, when it has printed a line.
func killApply(t *testing.T, cfg tocsin.Config, env string, last func(line string) bool) {
	t.Helper()
	text, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), env+"="+string(text))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan() && !last(lines.Text()); {
	}
	_ = cmd.Process.Kill()
	if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != -1 {
		t.Fatalf("Apply ended before it was killed: %s", cmd.ProcessState)
	}
}

// applyAlone is the process that killApply kills. It gives its exit code.
func applyAlone(text string) int {
	var cfg tocsin.Config
	err := json.Unmarshal([]byte(text), &cfg)
	if err == nil {
		_, err = Apply(context.Background(), cfg, Options{Progress: func(done, _ int) { fmt.Println("done", done) }})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func TestApplyStopsWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	cfg := config(t, 4, 64)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	res, err := Apply(ctx, cfg, Options{Parallel: 1, Progress: func(done, _ int) {
		if done > 40 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) || res.Tables == 0 || res.Tables >= 4*70 {
		t.Errorf("%+v, %v", res, err)
	}
}

// limited makes a user who may use the databases of a cluster and no others,
// and returns the config with that user.
func limited(t *testing.T, cfg tocsin.Config) tocsin.Config {
	t.Helper()
	user := cfg.Layout.Prefix
	execute(t, cfg, "CREATE USER '"+user+"'@'%' IDENTIFIED BY 'pw'")
	db := pool(t, cfg)
	t.Cleanup(func() {
		if _, err := db.ExecContext(context.Background(), "DROP USER '"+user+"'@'%'"); err != nil {
			t.Error(err)
		}
	})
	for db := range cfg.Layout.Databases {
		// An ordinary grant on a named database includes its creation; this one does not.
		execute(t, cfg, "GRANT SELECT, INSERT ON `"+cfg.Layout.Database(db)+"`.* TO '"+user+"'@'%'")
	}
	dsn, err := driver.ParseDSN(cfg.Servers[0].DSN)
	if err != nil {
		t.Fatal(err)
	}
	dsn.User, dsn.Passwd = user, "pw"
	cfg.Servers = []tocsin.Server{{Name: "db1", DSN: dsn.FormatDSN()}}
	return cfg
}

func TestWithoutTheCreateDatabaseRight(t *testing.T) {
	t.Parallel()
	admin := config(t, 2, 2)
	cfg := limited(t, admin)
	_, err := Apply(t.Context(), cfg, Options{})
	for _, want := range []string{
		"server db1: the user may not create databases; let an administrator run: ",
		"CREATE DATABASE IF NOT EXISTS `" + cfg.Layout.Database(0) + "` DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin; ",
		"CREATE DATABASE IF NOT EXISTS `" + cfg.Layout.Database(1) + "`",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("databases missing: got %v\nwant it to say %s", err, want)
		}
	}
	for db := range 2 {
		execute(t, admin, "CREATE DATABASE "+cfg.Layout.Database(db))
		for _, table := range tablesOf(cfg.Layout, db) {
			execute(t, admin, "GRANT CREATE ON "+table.full()+" TO '"+cfg.Layout.Prefix+"'@'%'")
		}
	}
	res := applied(t, cfg, Options{})
	if want := (Result{Cluster: res.Cluster, Identity: res.Identity, Tables: 26, WorksWith: 3}); res != want {
		t.Errorf("databases made by an administrator: %+v, want %+v", res, want)
	}
	verified(t, cfg)
}

func TestDatabasesSplitOverTwoServersShareOneCluster(t *testing.T) {
	t.Parallel()
	cfg := config(t, 4, 2)
	second := otherServer(t, t.TempDir())
	cfg.Servers = []tocsin.Server{
		{Name: "db2", DSN: second.DSN(), Databases: []int{1, 3}},
		{Name: "db1", DSN: devtest.DSN(t), Databases: []int{0, 2}},
	}
	res := applied(t, cfg, Options{})
	if want := (Result{Cluster: res.Cluster, Identity: res.Identity, Databases: 4, Tables: 52, WorksWith: 3}); res != want {
		t.Fatalf("%+v, want %+v", res, want)
	}
	verified(t, cfg)
	swapped := cfg
	swapped.Servers = []tocsin.Server{cfg.Servers[0], cfg.Servers[1]}
	swapped.Servers[0].Databases, swapped.Servers[1].Databases = []int{0, 2}, []int{1, 3}
	verified(t, swapped, "is missing", "is missing", "is missing", "is missing")
	if err := second.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := Apply(t.Context(), cfg, Options{}); err == nil || !strings.HasPrefix(err.Error(), "server db2: list databases: ") {
		t.Errorf("one server down: %v", err)
	}
}

func TestApplyRefusesWhatIsStoredOtherwiseAndWritesNothing(t *testing.T) {
	t.Parallel()
	cfg := config(t, 2, 2)
	applied(t, cfg, Options{Cluster: "c1", Identity: "i1"})
	name := cfg.Layout.Database(0)
	bigger, fewer := cfg, cfg
	bigger.Layout.Databases, bigger.Layout.Tables = 3, 4
	fewer.Layout.Databases = 1
	for about, c := range map[string]struct {
		cfg  tocsin.Config
		opt  Options
		want string
	}{
		"bigger layout":   {bigger, Options{}, "layout of the config is 3x4, that of " + name + " on server db1 is 2x2: the layout is fixed for the life of a cluster"},
		"fewer databases": {fewer, Options{}, "layout of the config is 1x2, that of " + name + " on server db1 is 2x2: the layout is fixed for the life of a cluster"},
		"other cluster":   {cfg, Options{Cluster: "c2"}, `cluster is "c2", but ` + name + ` on server db1 belongs to cluster "c1"`},
		"bad cluster id":  {cfg, Options{Cluster: "a/b"}, `cluster id "a/b": use letters, digits, '.', '_' and '-', a letter or digit first, at most 64`},
		"other identity":  {cfg, Options{Identity: "i2"}, "identity is i2, but " + name + " on server db1 has i1: it is of another cluster with the same id, correct the servers of the config"},
		"bad identity":    {cfg, Options{Identity: "i 2"}, `identity "i 2": use letters, digits, '.', '_' and '-', a letter or digit first, at most 64`},
		"no connections":  {cfg, Options{Parallel: -1}, "-1 connections to each server: use 1 to 64"},
		"long horizon":    {cfg, Options{DoorbellHorizon: 2 * time.Hour}, "doorbell horizon 2h0m0s: use 1ms to 1h0m0s"},
	} {
		if _, err := Apply(t.Context(), c.cfg, c.opt); err == nil || err.Error() != c.want {
			t.Errorf("%s: got  %v\nwant %s", about, err, c.want)
		}
	}
	if res := applied(t, cfg, Options{}); res != (Result{Cluster: "c1", Identity: "i1", Existing: 26, From: 3, WorksWith: 3}) {
		t.Errorf("afterwards: %+v", res)
	}
}

func TestALockOnATableThatStandsHoldsNothingUp(t *testing.T) {
	t.Parallel()
	cfg := config(t, 1, 2)
	applied(t, cfg, Options{})
	execute(t, cfg, "DROP TABLE $0.task_0001")
	conn := must(pool(t, cfg).Conn(t.Context()))
	defer conn.Close()
	must(conn.ExecContext(t.Context(), "LOCK TABLES "+cfg.Layout.Table(0)+" WRITE"))
	if res := applied(t, cfg, Options{}); res.Tables != 1 {
		t.Errorf("%+v", res)
	}
}

// BenchmarkWholeLayout gives the figures of 8x1024, one after another; it takes
// half a minute: go test -run '^$' -bench WholeLayout -benchtime 1x ./ddl
func BenchmarkWholeLayout(b *testing.B) {
	cfg := config(b, 8, 1024)
	for _, step := range []struct {
		name string
		run  func() (any, error)
	}{
		{"apply", func() (any, error) { return Apply(b.Context(), cfg, Options{}) }},
		{"apply again", func() (any, error) { return Apply(b.Context(), cfg, Options{}) }},
		{"verify", func() (any, error) { return Verify(b.Context(), cfg) }},
	} {
		b.Run(step.name, func(b *testing.B) {
			for b.Loop() {
				if _, err := step.run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
