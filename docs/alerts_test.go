package docs_test

import (
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

const rulesFolder = "../deploy/prometheus/"

// rule is a recording rule or an alert.
type rule struct {
	Record, Alert, Expr string
	Labels, Annotations map[string]string
}

// ruleTest is a test of promtool.
type ruleTest struct {
	Name   string
	Series []struct{ Series string } `yaml:"input_series"`
	Checks []struct {
		Expr    string
		Samples []struct{ Labels string } `yaml:"exp_samples"`
	} `yaml:"promql_expr_test"`
}

func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	text := read(t, path)
	if err := yaml.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// rulesOf reads the rules of deploy/prometheus.
func rulesOf(t *testing.T) (records, alerts []rule) {
	t.Helper()
	for _, path := range glob(t, "*.rules.yaml") {
		var file struct{ Groups []struct{ Rules []rule } }
		readYAML(t, path, &file)
		for _, g := range file.Groups {
			for _, r := range g.Rules {
				if r.Alert != "" {
					alerts = append(alerts, r)
				} else {
					records = append(records, r)
				}
			}
		}
	}
	return records, alerts
}

func testsOfRules(t *testing.T) (all []ruleTest) {
	t.Helper()
	for _, path := range glob(t, "tests/*.yaml") {
		var file struct{ Tests []ruleTest }
		readYAML(t, path, &file)
		all = append(all, file.Tests...)
	}
	return all
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(rulesFolder + pattern)
	if err != nil || len(found) == 0 {
		t.Fatalf("no file %s: %v", pattern, err)
	}
	return found
}

func TestPromtoolAcceptsTheRulesAndTheirTestsPass(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Fatal("promtool is missing: run scripts/install-deps.sh test")
	}
	for _, args := range [][]string{
		append([]string{"check", "rules", "--lint=all", "--lint-fatal"}, glob(t, "*.rules.yaml")...),
		append([]string{"test", "rules"}, glob(t, "tests/*.yaml")...),
	} {
		if out, err := exec.CommandContext(t.Context(), "promtool", args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// query finds what the pages ask of Prometheus: code that names a metric, in a line of its own or in a span.
var query = regexp.MustCompile("(?m)`([^`\n]*tocsin_[^`\n]*)`|^([a-z][^`|\n]*tocsin_[^`|\n]*?)(?: +#.*)?$")

// queriesOf returns the queries of a page without what is no query: names of files, and prose.
func queriesOf(t *testing.T, page string) (all []string) {
	t.Helper()
	text := read(t, page)
	for _, m := range query.FindAllStringSubmatch(text, -1) {
		if expr := m[1] + m[2]; !strings.Contains(expr, "CLUSTER") && !strings.HasPrefix(expr, "tocsin ") {
			all = append(all, expr)
		}
	}
	return all
}

func TestPromtoolTakesTheQueriesOfTheDocs(t *testing.T) {
	t.Parallel()
	var rules strings.Builder
	rules.WriteString("groups:\n  - name: docs\n    rules:\n")
	count := 0
	for _, page := range []string{"runbook.md", "sizing.md", "metrics.md"} {
		queries := queriesOf(t, page)
		if len(queries) == 0 {
			t.Errorf("%s has no query", page)
		}
		for _, expr := range queries {
			count++
			fmt.Fprintf(&rules, "      - {record: \"docs:%d\", expr: %q}\n", count, expr)
		}
	}
	file := filepath.Join(t.TempDir(), "docs.rules.yaml")
	write(t, file, rules.String())
	t.Logf("%d queries", count)
	out, err := exec.CommandContext(t.Context(), "promtool", "check", "rules", file).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s\n%s", err, out, rules.String())
	}
}

var label = regexp.MustCompile(`(\w+)="([^"]*)"`)

var askedAlert = regexp.MustCompile(`\(ALERTS\{alertname="(\w+)", alertstate="firing"\}\)`)

// tested is what the tests of one alert show.
type tested struct {
	fires, quiet map[string]bool // by severity
	labels       map[string]bool // of what fires
	critical     map[string]bool // of what fires with that severity
}

func testedAlerts(t *testing.T) map[string]*tested {
	t.Helper()
	all := make(map[string]*tested)
	for _, test := range testsOfRules(t) {
		for _, check := range test.Checks {
			asked := askedAlert.FindStringSubmatch(check.Expr)
			if asked == nil {
				t.Errorf("the test of %s asks %s", test.Name, check.Expr)
				continue
			}
			seen := all[asked[1]]
			if seen == nil {
				seen = &tested{map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}}
				all[asked[1]] = seen
			}
			now := map[string]bool{}
			for _, sample := range check.Samples {
				for _, pair := range label.FindAllStringSubmatch(sample.Labels, -1) {
					seen.labels[pair[1]] = true
					if strings.Contains(sample.Labels, `severity="critical"`) {
						seen.critical[pair[1]] = true
					}
					now[pair[2]] = now[pair[2]] || pair[1] == "severity"
				}
			}
			for _, severity := range []string{"warning", "critical"} {
				seen.fires[severity] = seen.fires[severity] || now[severity]
				seen.quiet[severity] = seen.quiet[severity] || !now[severity]
			}
		}
	}
	return all
}

var usedLabel = regexp.MustCompile(`\$labels\.(\w+)`)

// Every alert has a test in which it fires, one in which it does not, a section in the runbook, and annotations whose labels
// it has.
func TestEveryAlertIsTestedAndExplained(t *testing.T) {
	t.Parallel()
	runbook := read(t, "runbook.md")
	_, alerts := rulesOf(t)
	results, names := testedAlerts(t), map[string]bool{}
	for _, a := range alerts {
		names[a.Alert] = true
		severity, seen := a.Labels["severity"], results[a.Alert]
		if seen == nil || !seen.fires[severity] || !seen.quiet[severity] {
			t.Errorf("%s, %s: a test must show it firing, and one not firing", a.Alert, severity)
			continue
		}
		if severity != "warning" && severity != "critical" {
			t.Errorf("%s has the severity %q", a.Alert, severity)
		}
		for _, key := range []string{"summary", "description", "runbook_url", "dashboard_url"} {
			text := a.Annotations[key]
			if text == "" {
				t.Errorf("%s, %s has no %s", a.Alert, severity, key)
			}
			for _, used := range usedLabel.FindAllStringSubmatch(text, -1) {
				if _, added := a.Labels[used[1]]; added || !seen.labels[used[1]] {
					t.Errorf("%s uses the label %s, which its expression does not have, or no test shows", a.Alert, used[1])
				}
			}
		}
		if want := "https://github.com/tocsinhq/tocsin/blob/main/docs/runbook.md#" + strings.ToLower(a.Alert); a.Annotations["runbook_url"] != want {
			t.Errorf("%s: its runbook is %s, want %s", a.Alert, a.Annotations["runbook_url"], want)
		}
	}
	for _, section := range regexp.MustCompile(`(?m)^### (Tocsin\w+)$`).FindAllStringSubmatch(runbook, -1) {
		if !names[section[1]] {
			t.Errorf("runbook.md has a section %s, and no alert is called so", section[1])
		}
		delete(names, section[1])
	}
	if len(names) > 0 {
		t.Errorf("runbook.md has no section for %v", slices.Sorted(maps.Keys(names)))
	}
}

// Alertmanager's example mutes alerts by their names, and takes any name.
func TestAlertmanagersExampleNamesAlertsThatThereAre(t *testing.T) {
	t.Parallel()
	text := read(t, rulesFolder+"alertmanager.example.yaml")
	_, alerts := rulesOf(t)
	for _, name := range regexp.MustCompile(`Tocsin[A-Z]\w+`).FindAllString(text, -1) {
		if !slices.ContainsFunc(alerts, func(a rule) bool { return a.Alert == name }) {
			t.Errorf("the example mutes by %s, and no alert is called so", name)
		}
	}
}

// Labels that need not be equal don't say what an alert is about: the class of refused statements, why a sweep leaves tasks, the
// windows of a burn rate.
func TestACriticalAlertMutesTheWarningForTheSameThingAlone(t *testing.T) {
	t.Parallel()
	var example struct {
		Rules []struct {
			Source []string `yaml:"source_matchers"`
			Equal  []string
		} `yaml:"inhibit_rules"`
	}
	readYAML(t, rulesFolder+"alertmanager.example.yaml", &example)
	equal := map[bool][]string{} // by whether the critical alert has an instance
	for _, r := range example.Rules {
		for matcher, has := range map[string]bool{`instance = ""`: false, `instance != ""`: true} {
			if slices.Contains(r.Source, matcher) {
				equal[has] = r.Equal
			}
		}
	}
	for name, seen := range testedAlerts(t) {
		for label := range seen.critical {
			if seen.fires["warning"] && !slices.Contains(equal[seen.critical["instance"]], label) && !slices.Contains([]string{"severity", "class", "reason", "long", "short"}, label) {
				t.Errorf("%s, critical, mutes the warning of any other %s", name, label)
			}
		}
	}
}

// foreignMetrics are those of Prometheus and node_exporter that rules may use.
var foreignMetrics = []string{"up", "node_filesystem_avail_bytes", "node_filesystem_size_bytes"}

// used returns the metrics and recorded series of an expression.
func used(expr string) (names []string) {
	for _, drop := range []string{`"[^"]*"`, `\{[^}]*\}`, `\[[^\]]*\]`, `\b(by|on|without|ignoring|group_left|group_right) ?\([^)]*\)`} {
		expr = regexp.MustCompile(drop).ReplaceAllString(expr, " ")
	}
	for _, name := range regexp.MustCompile(`\b[a-z][a-z_]*[a-z0-9_:]*\b\s*\(?`).FindAllString(expr, -1) {
		if name = strings.TrimSpace(name); !strings.HasSuffix(name, "(") && !slices.Contains([]string{"and", "or", "unless", "bool"}, name) {
			names = append(names, name)
		}
	}
	return names
}

func TestTheMetricsOfAnExpressionAreFound(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string]string{
		`sum by (cluster, le) (rate(a_b_total{class="x"}[5m])) > 2`:                "a_b_total",
		`(c:d:rate5m > 0.5) unless on (instance) group_left () e{f=~"g|h"} * 3600`: "c:d:rate5m e",
		`label_replace(absent(up), "work", "sweep", "", "")`:                       "up",
	} {
		if got := strings.Join(used(expr), " "); got != want {
			t.Errorf("%s uses %q, want %q", expr, got, want)
		}
	}
}

// Rules use no metric that is not documented; TestThePageOfMetricsIsThatOfTheCode (package node) compares the page with the
// code. Tests of rules feed no other metric either.
func TestRulesUseMetricsThatThereAre(t *testing.T) {
	t.Parallel()
	page := read(t, "metrics.md")
	known := map[string]bool{}
	for _, name := range foreignMetrics {
		known[name] = true
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `(tocsin_[a-z_]+)` \\| (\\w+) \\|").FindAllStringSubmatch(page, -1) {
		known[m[1]] = true
		if m[2] == "histogram" {
			known[m[1]+"_bucket"], known[m[1]+"_count"], known[m[1]+"_sum"] = true, true, true
		}
	}
	for _, test := range testsOfRules(t) {
		for _, series := range test.Series {
			if name, _, _ := strings.Cut(series.Series, "{"); !known[name] {
				t.Errorf("the test of %s has a series %s, which nothing exports", test.Name, name)
			}
		}
	}
	records, alerts := rulesOf(t)
	for _, r := range records {
		known[r.Record] = true
	}
	for _, page := range []string{"runbook.md", "sizing.md"} {
		text := read(t, page)
		for _, name := range regexp.MustCompile(`([a-z_]+:)?\btocsin_[a-z_]*[a-z](:[a-z0-9_]+)?`).FindAllString(text, -1) {
			if !known[name] {
				t.Errorf("%s names %s, which nothing exports or records", page, name)
			}
		}
	}
	for _, r := range slices.Concat(records, alerts) {
		names := used(r.Expr)
		if len(names) == 0 {
			t.Errorf("%s%s uses no metric", r.Record, r.Alert)
		}
		for _, name := range names {
			if !known[name] {
				t.Errorf("%s%s uses %s, which nothing exports or records", r.Record, r.Alert, name)
			}
		}
	}
}
