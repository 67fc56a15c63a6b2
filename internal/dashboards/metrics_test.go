package dashboards

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	metricsPage = "../../docs/metrics.md"
	rulesFolder = "../../deploy/prometheus"
)

// documented is what docs/metrics.md says of a metric. A test of package node compares that page with the code.
type documented struct {
	kind   string
	labels []string
}

var metricRow = regexp.MustCompile("(?m)^\\| `(tocsin_[a-z_]+)` \\| (\\w+) \\| ([a-z_, ]*) \\|")

func exported(t *testing.T) map[string]documented {
	t.Helper()
	page, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]documented{}
	for _, m := range metricRow.FindAllStringSubmatch(string(page), -1) {
		d := documented{kind: m[2]}
		for label := range strings.SplitSeq(m[3], ",") {
			d.labels = append(d.labels, strings.TrimSpace(label))
		}
		all[m[1]] = d
	}
	if len(all) < 100 {
		t.Fatalf("%d metrics in %s", len(all), metricsPage)
	}
	return all
}

// asked is a query, and where it stands.
type asked struct{ at, expr string }

// questions returns the queries of all dashboards and rules.
func questions(t *testing.T) (all []asked) {
	t.Helper()
	for _, d := range read(t) {
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				all = append(all, asked{d.File + ": " + p.Title, q.Expr})
			}
		}
		for _, v := range d.Templating.List {
			if v.Type == "query" {
				all = append(all, asked{d.File + ": $" + v.Name, v.Query})
			}
		}
	}
	for _, r := range rules(t) {
		all = append(all, asked{r.File + ": " + r.Alert + r.Record, r.Expr})
	}
	return all
}

func rules(t *testing.T) []Rule {
	t.Helper()
	all, err := ReadRules(rulesFolder)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var (
	selector = regexp.MustCompile(`([a-z0-9_]+:)?\btocsin_[a-z_]+\b(:[a-z0-9_]+)?(\{[^}]*\})?`)
	matcher  = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)`)
	grouped  = regexp.MustCompile(`\bby \(([^)]*)\)`)
)

// anywhere are labels that Prometheus adds, or that a histogram has.
var anywhere = []string{"cluster", "instance", "job", "le", ""}

// base returns the name of the metric that a series is of: a histogram has several series.
func base(name string, all map[string]documented) string {
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if of := strings.TrimSuffix(name, suffix); of != name && all[of].kind == "histogram" {
			return of
		}
	}
	return name
}

func TestEveryMetricIsInAQuery(t *testing.T) {
	t.Parallel()
	all := exported(t)
	used := map[string]bool{}
	for _, q := range questions(t) {
		labels := slices.Clone(anywhere)
		for _, m := range selector.FindAllStringSubmatch(q.expr, -1) {
			if m[1] != "" || m[2] != "" {
				continue // recorded by a rule
			}
			name := base(strings.TrimSuffix(m[0], m[3]), all)
			if _, ok := all[name]; !ok {
				t.Errorf("%s: %s is no metric of %s", q.at, name, metricsPage)
			}
			used[name] = true
			labels = append(labels, all[name].labels...)
			for _, has := range matcher.FindAllStringSubmatch(m[3], -1) {
				if !slices.Contains(all[name].labels, has[1]) && !slices.Contains(anywhere, has[1]) {
					t.Errorf("%s: %s has no label %s", q.at, name, has[1])
				}
			}
		}
		if strings.HasSuffix(strings.Split(q.at, ": ")[0], ".json") && !strings.Contains(q.expr, ":tocsin_") && !strings.Contains(q.expr, "etcd_") {
			wantLabels(t, q, labels)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !used[name] {
			t.Errorf("%s is in no query of a dashboard or rule", name)
		}
	}
	t.Logf("%d of %d metrics are used", len(used), len(all))
}

// wantLabels fails if a query sums by a label that none of its metrics has.
func wantLabels(t *testing.T, q asked, labels []string) {
	t.Helper()
	for _, m := range grouped.FindAllStringSubmatch(q.expr, -1) {
		for label := range strings.SplitSeq(m[1], ",") {
			if !slices.Contains(labels, strings.TrimSpace(label)) {
				t.Errorf("%s: sums by %s, which no metric of the query has: %s", q.at, label, q.expr)
			}
		}
	}
}

func TestWhatRulesRecordIsThere(t *testing.T) {
	t.Parallel()
	recorded := map[string]bool{}
	for _, r := range rules(t) {
		recorded[r.Record] = true
	}
	for _, q := range questions(t) {
		for _, m := range selector.FindAllStringSubmatch(q.expr, -1) {
			if name := strings.TrimSuffix(m[0], m[3]); (m[1] != "" || m[2] != "") && !recorded[name] {
				t.Errorf("%s: no rule records %s", q.at, name)
			}
		}
	}
}
