package main

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/tocsinhq/tocsin"
)

// pushgateway stands in for a Pushgateway: PUT replaces what a job has pushed, and /metrics shows it all with the label job.
type pushgateway struct {
	*httptest.Server

	mu   sync.Mutex
	jobs map[string]string // as text, by job; guarded by mu
	puts int               // guarded by mu
}

func newPushgateway(t *testing.T) *pushgateway {
	t.Helper()
	g := &pushgateway{jobs: map[string]string{}}
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /metrics/job/{job}", g.put)
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, g.page()) })
	g.Server = httptest.NewServer(mux)
	t.Cleanup(g.Close)
	return g
}

func (g *pushgateway) put(w http.ResponseWriter, r *http.Request) {
	var text strings.Builder
	for decoder := expfmt.NewDecoder(r.Body, expfmt.ResponseFormat(r.Header)); ; {
		var f dto.MetricFamily
		if err := decoder.Decode(&f); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		for _, m := range f.GetMetric() {
			m.Label = append(m.Label, &dto.LabelPair{Name: new("job"), Value: new(r.PathValue("job"))})
		}
		_, _ = expfmt.MetricFamilyToText(&text, &f) // a builder takes everything
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.jobs[r.PathValue("job")] = text.String()
	g.puts++
}

// page returns all metrics.
func (g *pushgateway) page() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return strings.Join(slices.Collect(maps.Values(g.jobs)), "")
}

// textfile returns the only file in the directory, as node_exporter would find it.
func textfile(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 1 || filepath.Ext(files[0]) != ".prom" {
		t.Fatalf("the directory holds %q: %v", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// has wants lines that begin so among metrics.
func has(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains("\n"+text, "\n"+line) {
			t.Errorf("no line %q:\n%s", line, text)
		}
	}
}

// successOf returns the line with the time of the last success.
func successOf(text string) string {
	_, rest, _ := strings.Cut(text, "\ntocsin_sweeper_last_success_timestamp_seconds{")
	line, _, _ := strings.Cut(rest, "\n")
	return line
}

// Where no directory outlasts the command, a Pushgateway has the same metrics as the file. A failed run keeps the time of the last
// success.
func TestCommandsWriteTheirMetricsIntoAFileAndPushThem(t *testing.T) {
	t.Parallel()
	s, _ := callbackSite(t)
	s.applyBiz(s.text("biz.yaml") + "  - {name: order.close, number: 1, group: orders}\n")
	g := newPushgateway(t)
	run := func(command, dir string) result {
		return s.run(append(strings.Fields(command), "--textfile", dir, "--push", g.URL)...)
	}
	audits, purges, sweeps := t.TempDir(), t.TempDir(), t.TempDir()
	run("audit", audits).ok(t)
	has(t, textfile(t, audits), "tocsin_auditor_last_ok{", "tocsin_auditor_last_tables{", "tocsin_auditor_last_success_timestamp_seconds{")
	s.settled(1, tocsin.Done, "31 DAY")
	run("purge", purges).ok(t)
	s.overdue("coupon.remind", 2)
	run("sweep --once", sweeps).ok(t)
	good, pushed := textfile(t, sweeps), g.page()
	has(t, good, "tocsin_sweeper_last_overdue{", "tocsin_sweeper_last_run_timestamp_seconds{", "tocsin_sweeper_last_ok{")
	if !strings.Contains(good, `outcome="delivered"} 2`) || !strings.Contains(good, `tocsin_sweeper_last_claimed{cluster="`+s.prefix+`"} 2`) {
		t.Errorf("two tasks were claimed and delivered: %s", good)
	}
	has(t, pushed, `tocsin_sweeper_last_claimed{cluster="`+s.prefix+`",job="tocsin_sweep_`+s.prefix+`"} 2`)
	s.overdue("order.close", 3)
	run("sweep --once", sweeps).refused(t, exitFailed, "order.close (no handler here): 3")
	bad, pushedBad := textfile(t, sweeps), g.page()
	if !strings.Contains(bad, `reason="no handler here"} 3`) || !strings.Contains(bad, `tocsin_sweeper_last_claimed{cluster="`+s.prefix+`"} 0`) {
		t.Errorf("three tasks were left, and none was claimed: %s", bad)
	}
	has(t, pushedBad, `tocsin_sweeper_last_ok{cluster="`+s.prefix+`",job="tocsin_sweep_`+s.prefix+`"} 0`)
	for is, was := range map[string]string{successOf(bad): successOf(good), successOf(pushedBad): successOf(pushed)} {
		if is == "" || is != was {
			t.Errorf("the last success was\n%s\nand is\n%s", was, is)
		}
	}
	if r := run("audit", audits); r.code != exitFailed { // it finds the three overdue tasks
		t.Errorf("exit code %d of the audit", r.code)
	}
	for part, text := range map[string]string{`status="done"} 1`: textfile(t, purges), `fault="overdue"} 3`: textfile(t, audits)} {
		if !strings.Contains(text, part) {
			t.Errorf("no %s in\n%s", part, text)
		}
	}
	has(t, g.page(), "tocsin_auditor_last_ok{", "tocsin_purger_last_ok{", "tocsin_sweeper_last_ok{")
	for want, flag := range map[string]string{"push metrics": "--push=http://127.0.0.1:1", "no such file or directory": "--textfile=" + filepath.Join(sweeps, "none")} {
		s.emptied()
		s.overdue("coupon.remind", 2)
		r := s.run("sweep", "--once", flag) // does its work all the same
		if r.refused(t, exitFailed, want); !strings.Contains(r.stdout, "2 overdue, 2 delivered") {
			t.Errorf("with %s the sweep said %q", flag, r.stdout)
		}
	}
	for line, want := range map[string]string{
		"sweep --dry-run --textfile d": "--textfile", "purge --dry-run --textfile d": "--textfile", "audit --type coupon.remind --against - --textfile d": "--textfile",
		"sweep --once --push pushgateway:9091": "http://pushgateway:9091", "sweep --dry-run --push http://127.0.0.1:1": "--push",
	} {
		s.run(strings.Fields(line)...).refused(t, exitUsage, want)
	}
}

func TestAResidentSweepWritesAndPushesAgainAndAgain(t *testing.T) {
	t.Parallel()
	s, _ := callbackSite(t)
	g, dir := newPushgateway(t), t.TempDir()
	stays := s.stays("sweep", "--cron", "@every 1s", "--textfile", dir, "--push", g.URL)
	sweeps := func() (counted string) {
		files, _ := filepath.Glob(filepath.Join(dir, "*.prom"))
		if len(files) == 0 {
			return ""
		}
		text, _ := os.ReadFile(files[0])
		_, counted, _ = strings.Cut(string(text), `result="ok"} `)
		counted, _, _ = strings.Cut(counted, "\n")
		return counted
	}
	puts := func() int { g.mu.Lock(); defer g.mu.Unlock(); return g.puts }
	first := ""
	s.waitFor("the file is there", func() bool { first = sweeps(); return first != "" })
	s.waitFor("it is written again, and pushed twice", func() bool { return sweeps() != first && puts() >= 2 })
	stays.end(t)
	has(t, g.page(), "tocsin_sweeper_sweeps_total{")
}

// Its first run fails, and it is stopped at once.
func TestAResidentSweepKeepsTheLastSuccessOfTheProcessBefore(t *testing.T) {
	t.Parallel()
	s, _ := callbackSite(t)
	s.applyBiz(s.text("biz.yaml") + "  - {name: order.close, number: 1, group: orders}\n")
	g, dir := newPushgateway(t), t.TempDir()
	flags := []string{"--textfile", dir, "--push", g.URL}
	s.run(append([]string{"sweep", "--once"}, flags...)...).ok(t)
	file, pushed := successOf(textfile(t, dir)), successOf(g.page())
	s.overdue("order.close", 3)
	stays := s.stays(append([]string{"sweep", "--cron", "@every 1s"}, flags...)...)
	s.waitFor("a sweep has failed", func() bool { return strings.Contains(stays.log.String(), "overdue tasks are left") })
	stays.end(t)
	for is, was := range map[string]string{textfile(t, dir): file, g.page(): pushed} {
		has(t, is, "tocsin_sweeper_left{cluster=\""+s.prefix+"\"")
		if was == "" || successOf(is) != was {
			t.Errorf("the last success was\n%s\nand is\n%s", was, is)
		}
	}
}
