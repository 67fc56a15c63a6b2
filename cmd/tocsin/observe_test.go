package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/internal/devserver"
)

// devUntil starts tocsin dev and returns the first line of its output that holds a text. stop sends it a Ctrl-C and waits.
func devUntil(t *testing.T, text string, env []string, args ...string) (line string, stop func()) {
	t.Helper()
	cmd := command(t.Context(), t.TempDir(), append([]string{"dev", "--tasks", "10", "--over", "0s", "--layout", "2x2"}, args...)...)
	cmd.Env = append(cmd.Env, env...)
	out := &lines{found: make(chan string, 1), find: text}
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	select {
	case line = <-out.found:
	case <-time.After(upWithin):
		t.Fatalf("no line with %q", text)
	}
	return line, func() {
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("exit after Ctrl-C: %v", err)
		}
	}
}

// asked reports whether Prometheus answers a query with a value that is not 0.
func asked(ctx context.Context, t *testing.T, prometheus, query string) bool {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, prometheus+"/api/v1/query?query="+url.QueryEscape(query), nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var answer struct {
		Data struct{ Result []struct{ Value [2]any } }
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	return len(answer.Data.Result) > 0 && answer.Data.Result[0].Value[1] != "0"
}

// What make observe runs: Prometheus sees the nodes, types that fail and hang, a sweep, and the rules, until Ctrl-C.
func TestDevUnderLoadIsWatchedByPrometheus(t *testing.T) {
	t.Parallel()
	const says = "Prometheus collects the metrics: "
	rules, err := filepath.Abs("../../deploy/prometheus")
	if err != nil {
		t.Fatal(err)
	}
	line, stop := devUntil(t, says, nil, "--load", "50", "--servers", "2", "--nodes", "3", "--rules", rules)
	prometheus := line[strings.Index(line, says)+len(says):]
	ctx, cancel := context.WithTimeout(t.Context(), upWithin)
	defer cancel()
	for _, query := range []string{
		`count(tocsin_build_info{job="tocsin", cluster="dev"}) == bool 3`,
		`min(tocsin_node_server_up)`,
		`sum(tocsin_dispatcher_failures_total{biz_type="refund.send", cause="error"})`,
		`sum(tocsin_dispatcher_failures_total{biz_type="stock.sync", cause="timeout"})`,
		`sum(tocsin_sweeper_sweeps_total{job="node"})`,
		`sum(tocsin_client_tasks_total{job="services", result="new"})`,
		`count({__name__=~".+:tocsin_.+"})`, // what rules record
	} {
		for !asked(ctx, t, prometheus, query) {
			time.Sleep(200 * time.Millisecond)
		}
	}
	stop()
	if response, err := http.Get(prometheus); err == nil {
		_ = response.Body.Close()
		t.Errorf("Prometheus still answers after the end: %s", response.Status)
	}
}

func TestDevWithoutPrometheusRunsAndSaysHowToInstallIt(t *testing.T) {
	t.Parallel()
	etcd := os.Getenv(devserver.EnvEtcd)
	if etcd == "" {
		var err error
		if etcd, err = exec.LookPath("etcd"); err != nil {
			t.Fatal(err)
		}
	}
	empty := []string{"PATH=" + t.TempDir(), devserver.EnvEtcd + "=" + etcd}
	line, stop := devUntil(t, "metrics", empty, "--nodes", "1")
	if !strings.Contains(line, "not collected") || !strings.Contains(line, "apt-get install prometheus") {
		t.Errorf("it says %q", line)
	}
	stop()
}
