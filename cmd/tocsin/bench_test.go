package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/test/bench"
)

// The keys that other programs read, by command.
var (
	boundKeys    = []string{"tasks_per_second", "bound_per_second", "ratio", "per_task", "bound_per_task"}
	latenessKeys = []string{"p50_ms", "p99_ms", "p999_ms", "max_ms", "early"}
	idleKeys     = []string{"statements_per_second", "node_cpu_percent", "server_cpu_percent"}
)

// benchmark runs one on private servers and decodes what it prints, which has
// the keys.
func benchmark[T any](t *testing.T, keys []string, args ...string) T {
	t.Helper()
	r := call(t, append([]string{"bench"}, append(args, "--json")...)...)
	all := decode[map[string]any](t, r)
	for _, key := range append(keys, "layout", "settings") {
		if _, ok := all[key]; !ok {
			t.Errorf("no %s among %v", key, slices.Sorted(maps.Keys(all)))
		}
	}
	settings, _ := all["settings"].(map[string]any)
	if settings["innodb_flush_log_at_trx_commit"] != "1" {
		t.Errorf("the private server is not durable: %v", settings)
	}
	return decode[T](t, r)
}

// plausible wants a rate on both sides and what both sent.
func plausible(t *testing.T, name string, f bench.Figures) {
	t.Helper()
	sent, raw := f.PerTask, f.BoundPerTask
	if f.TasksPerSecond <= 0 || f.BoundPerSecond <= 0 || f.Ratio <= 0 {
		t.Errorf("%s: %+v", name, f)
	}
	if sent.Statements <= 0 || sent.BytesReceived <= 0 || raw.Statements <= 0 || raw.BytesReceived <= 0 || raw.ServerMicros == nil {
		t.Errorf("%s: a task cost %+v, raw %+v", name, sent, raw)
	}
}

func TestBenchDrain(t *testing.T) {
	t.Parallel()
	r := benchmark[bench.DrainResult](t, boundKeys, "drain", "--tasks", "400", "--layout", "2x4", "--warm", "0s", "--nodes", "2", "--overdue", "1h", "--pending", "300", "--to", "kafka")
	if r.Tasks != 400 || r.Delivered != 400 || r.Claimed < 400 {
		t.Errorf("%d of %d delivered, %d claimed, want all", r.Delivered, r.Tasks, r.Claimed)
	}
	if r.Metrics == nil || r.Metrics.Series < 100 || r.Metrics.Times == 0 {
		t.Errorf("metrics %+v", r.Metrics)
	}
	plausible(t, "drain", r.Figures)
}

func TestBenchLateness(t *testing.T) {
	t.Parallel()
	r := benchmark[bench.LatenessResult](t, latenessKeys, "lateness", "--rate", "150", "--duration", "1s", "--layout", "2x2", "--delay", "1s", "--burst", "100", "--to", "webhook")
	if r.Burst.Tasks != 100 || r.Burst.TasksPerSecond <= 0 {
		t.Errorf("burst %+v", r.Burst)
	}
	if r.Added == 0 || r.Delivered != r.Added+100 || r.Early != 0 {
		t.Errorf("%d added, %d delivered, %d early", r.Added, r.Delivered, r.Early)
	}
	if !slices.IsSorted([]float64{0, r.P50, r.P99, r.P999, r.Max}) || r.Max == 0 || r.BoundP50 <= 0 || r.BoundP50 > r.BoundP99 {
		t.Errorf("lateness %+v", r)
	}
}

func TestBenchInsert(t *testing.T) {
	t.Parallel()
	r := benchmark[bench.InsertResult](t, append(boundKeys, "single", "single_bell"), "insert", "--tasks", "2500", "--layout", "2x4")
	for name, f := range map[string]bench.Figures{"AddMany": r.Figures, "Add": r.Single, "Add with the bell": r.Bell} {
		plausible(t, name, f)
	}
	if far, near := r.Single.BoundPerTask.Inserts, r.Bell.BoundPerTask.Inserts; far != 1 || near != 2 {
		t.Errorf("raw: %g inserts without the bell, %g with it", far, near)
	}
}

func TestBenchIdle(t *testing.T) {
	t.Parallel()
	r := benchmark[bench.IdleResult](t, idleKeys, "idle", "--duration", "1s", "--layout", "2x4", "--nodes", "2")
	if r.Seconds < 1 || r.Statements <= 0 || r.ServerCPU == nil || r.NodeCPU < 0 || r.Nodes != 2 {
		t.Errorf("%+v", r)
	}
}

func TestBenchWithWorkersThatAsk(t *testing.T) {
	t.Parallel()
	r := benchmark[bench.DrainResult](t, boundKeys, "drain", "--tasks", "400", "--layout", "2x4", "--warm", "0s", "--to", "pull", "--workers", "3", "--max", "10", "--greedy", "50")
	if r.Delivered != 400 || r.Pulled == nil || r.Pulled.Workers != 3 || r.Pulled.Greedy == nil || r.Pulled.Tasks.Most+r.Pulled.Greedy.Tasks <= 0 {
		t.Errorf("%d delivered, workers %+v", r.Delivered, r.Pulled)
	}
	l := benchmark[bench.LatenessResult](t, latenessKeys, "lateness", "--rate", "150", "--duration", "1s", "--layout", "2x2", "--delay", "1s",
		"--backlog", "2000", "--nodes", "2", "--to", "pull", "--workers", "4", "--ask-last")
	if l.Early != 0 || l.P50 <= 0 || l.Elsewhere == nil || l.Elsewhere.Tasks <= 0 || l.Elsewhere.Tasks >= l.Added {
		t.Errorf("lateness %+v, elsewhere %+v", l, l.Elsewhere)
	}
	if b := l.Backlog; b == nil || b.UntilFirst <= 0 || b.TasksPerSecond <= 0 {
		t.Errorf("backlog %+v", b)
	}
	i := benchmark[bench.IdleResult](t, idleKeys, "idle", "--duration", "1s", "--layout", "2x4", "--workers", "20")
	if w := i.Waiting; w == nil || w.Workers != 20 || w.Statements <= 0 {
		t.Errorf("%+v", w)
	}
}

func TestBenchOnServersOfAConfigLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	text := s.run("--config", "tocsin.yaml", "bench", "drain", "--tasks", "50", "--layout", "1x3", "--warm", "0s", "--no-metrics", "--cpuprofile", "cpu.prof").ok(t)
	if !strings.Contains(text, "drained      50 of 50 tasks") || !strings.Contains(text, "unknown there") {
		t.Errorf("says:\n%s", text)
	}
	if profile, err := os.ReadFile(filepath.Join(s.dir, "cpu.prof")); err != nil || len(profile) == 0 {
		t.Errorf("profile of %d bytes, %v", len(profile), err)
	}
	var rows int
	if err := s.db.QueryRow("SELECT COUNT(*) FROM " + s.layout.Table(0)).Scan(&rows); err != nil || rows != 0 {
		t.Errorf("%d rows in the tables of the config: %v", rows, err)
	}
}

func TestBenchRefusesWhatCannotBeMeasured(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		code int
		says []string
	}{
		"a layout that is none":       {[]string{"drain", "--layout", "8by16"}, exitUsage, []string{`layout "8by16"`}},
		"no tasks to drain":           {[]string{"drain", "--tasks", "0"}, exitUsage, []string{"at least 1 task"}},
		"no rate":                     {[]string{"lateness", "--rate", "0"}, exitUsage, []string{"a rate"}},
		"no duration":                 {[]string{"idle", "--duration", "0s"}, exitUsage, []string{"a duration"}},
		"workers without metrics":     {[]string{"drain", "--to", "pull", "--no-metrics"}, exitUsage, []string{"no metrics"}},
		"a burst beyond all bounds":   {[]string{"lateness", "--burst", "20000001"}, exitUsage, []string{"20000001 in a burst"}},
		"a server that is none":       {[]string{"idle", "--server", "oracle"}, exitUsage, []string{`unknown server "oracle"`}},
		"an argument":                 {[]string{"insert", "much"}, exitUsage, []string{"much"}},
		"a benchmark that is none":    {[]string{"everything"}, exitUsage, []string{"everything"}},
		"a profile where none can be": {[]string{"idle", "--cpuprofile", "no/such/folder"}, exitFailed, []string{"CPU profile", "no/such/folder"}},
		"a config that is not there":  {[]string{"idle", "--config", "none.yaml"}, exitFailed, []string{"none.yaml"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			call(t, append([]string{"bench"}, c.args...)...).refused(t, c.code, c.says...)
		})
	}
}
