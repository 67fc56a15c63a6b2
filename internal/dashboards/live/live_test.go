package live

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"go.uber.org/goleak"

	"github.com/tocsinhq/tocsin/internal/dashboards"
)

const (
	dashboardFolder = "../../../deploy/grafana/dashboards"
	ruleFolder      = "../../../deploy/prometheus"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// question is a query that has to hold data in the demo, and where it stands.
type question struct{ at, expr string }

// panelQuestions returns the query of each panel with its variables filled.
func panelQuestions(t *testing.T) (all []question) {
	t.Helper()
	boards, err := dashboards.Read(dashboardFolder)
	if err != nil || len(boards) < 6 {
		t.Fatal(len(boards), err)
	}
	for _, d := range boards {
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				all = append(all, question{d.File + ": " + p.Title, d.Fill(q.Expr, "10s")})
			}
		}
	}
	return all
}

var (
	labels   = regexp.MustCompile(`\{[^}]*\}`)
	selected = regexp.MustCompile(`\b(?:up|node_filesystem_\w+|(?:[a-z0-9_]+:)?tocsin_[a-z0-9_]+(?::[a-z0-9_]+)?)\b`)
)

// ruleQuestions returns the expression of each recording rule and, as an alert's is empty unless it fires, the metrics in it,
// without the labels that a fault has. expressions are those of the alerts, which only have to be evaluated.
func ruleQuestions(t *testing.T) (all []question, expressions []question) {
	t.Helper()
	rules, err := dashboards.ReadRules(ruleFolder)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules {
		if r.Record != "" {
			all = append(all, question{r.File + ": " + r.Record, r.Expr})
			continue
		}
		expressions = append(expressions, question{r.File + ": " + r.Alert, r.Expr})
		for _, s := range selected.FindAllString(labels.ReplaceAllString(r.Expr, ""), -1) {
			if q := (question{r.File + ": " + r.Alert, s}); !slices.Contains(all, q) {
				all = append(all, q)
			}
		}
	}
	return all, expressions
}

// emptyHere are parts of queries that rightly find nothing in the demo, with the reason.
var emptyHere = []struct{ part, why string }{
	{"tocsin_presence_", "the demo's nodes own tables by etcd, not by the session tables"},
	{"tocsin_session_", "the demo's nodes own tables by etcd, and have no sessions"},
	{"tocsin_node_server_address_", "the demo's servers have one address each"},
	{"tocsin_node_server_failovers_total", "the demo's servers have one address each"},
	{"tocsin_store_slow_", "no statement needs to take 100 ms in the demo"},
	{"tocsin_scanner_refusals_total", "no queue is full in the demo"},
	{"tocsin_scanner_recovered_total", "no process dies in the demo, so no claim runs out"},
	{"tocsin_scanner_leases_expired_total", "the worker of the demo ends its leases in time"},
	{"tocsin_addresses_writable", "the demo's servers have one address each"},
	{"etcd_disk_wal_fsync_duration_seconds", "the demo's etcd does not wait for its disk"},
	{"certificate", "nothing uses TLS in the demo"},
	{"node_filesystem_", "no node_exporter runs in the demo"},
	{"tocsin_api_", "the demo does not serve the HTTP API"},
	{"tocsin_relay_", "the demo has no outbox"},
	{"tocsin_auditor_outbox_", "the demo has no outbox"},
	{"tocsin_dispatcher_lane_state == 4", "all endpoints of the demo can be reached"},
	{"tocsin_nodes_away", "all endpoints of the demo can be reached"},
	{"tocsin_dispatcher_not_reached_total", "all endpoints of the demo can be reached"},
	{"tocsin_dispatcher_breaks_total", "no endpoint of the demo says later"},
	{"tocsin_dispatcher_lane_throttle", "no endpoint of the demo says later"},
	{"tocsin_dispatcher_told_later_total", "no endpoint of the demo says later"},
	{"tocsin_sink_", "the demo has no message broker"},
	{"tocsin_fallback_", "no biz type of the demo has a fallback"},
	{"tocsin_backlog_drain_seconds", "not known before the second measurement of a backlog, a minute after the first"},
}

// emptyReason says why a query may be empty in the demo; "" if it may not.
func emptyReason(expr string) string {
	for _, e := range emptyHere {
		if strings.Contains(expr, e.part) {
			return e.why
		}
	}
	return ""
}

// held asks each question over the whole demo and returns those that found nothing. An error fails the test.
func held(ctx context.Context, t *testing.T, d *demo, all []question) (empty []question) {
	t.Helper()
	for _, q := range all {
		found, err := d.ask(ctx, q.expr, d.began, time.Now())
		if err != nil {
			t.Fatalf("%s: %v\n%s", q.at, err, q.expr)
		}
		if len(found) == 0 {
			empty = append(empty, q)
		}
	}
	return empty
}

// Every query of a panel, a recording rule or an alert is evaluated by a real Prometheus over a demo in which much goes wrong:
// types that fail, hang, are paused, limited or without a handler, and a server that goes down and comes back. None is an
// error, and each holds data except those of emptyHere. -v prints the list.
func TestEveryQueryHoldsDataInADemo(t *testing.T) {
	panels := panelQuestions(t)
	recorded, alerts := ruleQuestions(t)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 15*time.Minute)
	t.Cleanup(cancel)
	d := startDemo(ctx, t)
	if err := d.breakServer(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: the server is back", time.Since(d.began).Round(time.Second))
	all := append(panels, recorded...)
	must := slices.DeleteFunc(slices.Clone(all), func(q question) bool { return emptyReason(q.expr) != "" })
	for empty := must; ; time.Sleep(2 * time.Second) {
		if empty = held(ctx, t, d, empty); len(empty) == 0 {
			break
		}
		t.Logf("%s: %d queries hold nothing yet; the first is %s", time.Since(d.began).Round(time.Second), len(empty), empty[0].at)
		if time.Since(d.began) > 10*time.Minute {
			for _, q := range empty {
				t.Errorf("nothing: %s\n%s", q.at, q.expr)
			}
			break
		}
	}
	t.Logf("%s: all others hold data", time.Since(d.began).Round(time.Second))
	held(ctx, t, d, alerts)
	report(ctx, t, d, all)
}

// report prints each query with what it found, and checks that no rule failed.
func report(ctx context.Context, t *testing.T, d *demo, all []question) {
	t.Helper()
	empty := held(ctx, t, d, all)
	for _, q := range all {
		if why := emptyReason(q.expr); slices.Contains(empty, q) {
			t.Logf("empty   %s: %s\n          %s", q.at, why, oneLine(q.expr))
		} else {
			t.Logf("data    %s\n          %s", q.at, oneLine(q.expr))
		}
	}
	t.Logf("%d queries, %d of them rightly empty", len(all), len(empty))
	for name, failed := range d.rules(ctx, t) {
		if failed != "" {
			t.Errorf("rule %s: %s", name, failed)
		}
	}
}

// rules returns the last error of each rule, "" if its last evaluation worked, and logs the alerts that are raised.
func (d *demo) rules(ctx context.Context, t *testing.T) map[string]string {
	t.Helper()
	found, err := d.prom.Rules(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	failed := map[string]string{}
	for _, group := range found.Groups {
		for _, rule := range group.Rules {
			switch r := rule.(type) {
			case promv1.RecordingRule:
				failed[r.Name] += r.LastError
			case promv1.AlertingRule:
				failed[r.Name] += r.LastError
				if r.State != string(promv1.AlertStateInactive) {
					t.Logf("%-8s %s", r.State, r.Name)
				}
			}
		}
	}
	return failed
}

func oneLine(expr string) string { return strings.Join(strings.Fields(expr), " ") }

// Promtool takes each query of a panel as the expression of a rule.
func TestPromtoolTakesEveryQuery(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	fmt.Fprintf(&text, "groups:\n  - name: panels\n    rules:\n")
	all := panelQuestions(t)
	for i, q := range all {
		fmt.Fprintf(&text, "      - {record: 'panel:%d', expr: %q}\n", i, oneLine(q.expr))
	}
	path := filepath.Join(t.TempDir(), "panels.rules.yaml")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "promtool", "check", "rules", path).CombinedOutput()
	if err != nil || !strings.Contains(string(out), fmt.Sprintf("SUCCESS: %d rules found", len(all))) {
		t.Errorf("%v: %s", err, out)
	}
}
