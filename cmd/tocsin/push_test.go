package main

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/tocsinhq/tocsin"
)

// pushgateway stands in for a Pushgateway: PUT replaces what a job has pushed, and /metrics shows it all with the label job.
type pushgateway struct {
	*httptest.Server

	mu   sync.Mutex
	jobs map[string][]*dto.MetricFamily // guarded by mu
	puts int                            // guarded by mu
}

func newPushgateway(t *testing.T) *pushgateway {
	t.Helper()
	g := &pushgateway{jobs: map[string][]*dto.MetricFamily{}}
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /metrics/job/{job}", g.put)
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, g.page()) })
	g.Server = httptest.NewServer(mux)
	t.Cleanup(g.Close)
	return g
}

func (g *pushgateway) put(w http.ResponseWriter, r *http.Request) {
	var all []*dto.MetricFamily
	for decoder := expfmt.NewDecoder(r.Body, expfmt.ResponseFormat(r.Header)); ; {
		f := &dto.MetricFamily{}
		err := decoder.Decode(f)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		job, value := "job", r.PathValue("job")
		for _, m := range f.GetMetric() {
			m.Label = append(m.Label, &dto.LabelPair{Name: &job, Value: &value})
		}
		all = append(all, f)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.jobs[r.PathValue("job")] = all
	g.puts++
}

// page returns all metrics.
func (g *pushgateway) page() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var text strings.Builder
	for _, families := range g.jobs {
		for _, f := range families {
			_, _ = expfmt.MetricFamilyToText(&text, f) // a builder takes everything
		}
	}
	return text.String()
}

func (g *pushgateway) pushed() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.puts
}

// Where no directory outlasts the command, a Pushgateway has the same metrics; a failed run keeps the time of the last success.
func TestCommandsPushTheirMetrics(t *testing.T) {
	t.Parallel()
	s, _ := callbackSite(t)
	s.write("biz.yaml", s.text("biz.yaml")+"  - {name: order.close, number: 1, group: orders}\n")
	s.run("biz", "apply", "biz.yaml").ok(t)
	g := newPushgateway(t)
	s.overdue("coupon.remind", 2)
	s.run("sweep", "--once", "--push", g.URL).ok(t)
	good := g.page()
	if !strings.Contains(good, `tocsin_sweeper_last_claimed{cluster="`+s.prefix+`",job="tocsin_sweep_`+s.prefix+`"} 2`) {
		t.Errorf("two tasks were claimed: %s", good)
	}
	s.overdue("order.close", 3)
	s.run("sweep", "--once", "--push", g.URL+"/").refused(t, exitFailed, "order.close (no handler here): 3")
	bad := g.page()
	if !strings.Contains(bad, "tocsin_sweeper_last_ok{cluster=\""+s.prefix+"\",job=\"tocsin_sweep_"+s.prefix+"\"} 0") || !strings.Contains(bad, `reason="no handler here"`) {
		t.Errorf("three tasks were left: %s", bad)
	}
	if successOf(bad) == "" || successOf(bad) != successOf(good) {
		t.Errorf("the last success was\n%s\nand is\n%s", successOf(good), successOf(bad))
	}
	s.settled(1, tocsin.Done, "31 DAY")
	s.run("purge", "--push", g.URL).ok(t)
	dir := t.TempDir()
	if r := s.run("audit", "--push", g.URL, "--textfile", dir); r.code != exitFailed { // it finds the three overdue tasks
		t.Errorf("exit code %d of the audit", r.code)
	}
	for _, part := range []string{`status="done"`, `fault="overdue"`, "tocsin_auditor_last_ok{", "tocsin_purger_last_ok{", "tocsin_sweeper_last_ok{"} {
		if !strings.Contains(g.page(), part) {
			t.Errorf("no %s in\n%s", part, g.page())
		}
	}
	has(t, textfile(t, dir), "tocsin_auditor_last_ok{")
}

func TestAPushgatewayThatIsAwayKeepsNoSweepFromItsTasks(t *testing.T) {
	t.Parallel()
	s, _ := callbackSite(t)
	s.overdue("coupon.remind", 2)
	r := s.run("sweep", "--once", "--push", "http://127.0.0.1:1")
	r.refused(t, exitFailed, "push metrics", "connection refused")
	if !strings.Contains(r.stdout, "2 overdue, 2 delivered") {
		t.Errorf("the sweep said %q", r.stdout)
	}
	s.run("sweep", "--once", "--push", "pushgateway:9091").refused(t, exitUsage, "--push", "http://pushgateway:9091")
	s.run("sweep", "--dry-run", "--push", "http://127.0.0.1:1").refused(t, exitUsage, "--push")
}

func TestAResidentSweepPushesAgainAndAgain(t *testing.T) {
	t.Parallel()
	s, _ := callbackSite(t)
	g := newPushgateway(t)
	stays, log := s.start("sweep", "--cron", "@every 1s", "--push", g.URL)
	s.waitFor("it has pushed twice", func() bool { return g.pushed() >= 2 })
	if err := stays.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for log.Scan() {
	}
	if err := stays.Wait(); err != nil {
		t.Errorf("exit after SIGTERM: %v", err)
	}
	if !strings.Contains(g.page(), `tocsin_sweeper_sweeps_total{`) {
		t.Errorf("it pushed\n%s", g.page())
	}
}
