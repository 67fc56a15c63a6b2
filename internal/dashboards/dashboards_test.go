package dashboards

//lint:file-ignore SA1019 as in build.go

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// deployed is the folder of the dashboards.
const deployed = "../../deploy/grafana/dashboards"

var update = flag.Bool("update", false, "write the dashboards into deploy before they are compared")

func read(t *testing.T) []Dashboard {
	t.Helper()
	all, err := Read(deployed)
	if err != nil || len(all) != len(boards()) {
		t.Fatalf("%d dashboards in %s, want %d; %v", len(all), deployed, len(boards()), err)
	}
	return all
}

func TestTheDashboardsInDeployAreThoseOfTheCode(t *testing.T) {
	t.Parallel()
	made, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		write(t, made)
	}
	for name, want := range made {
		got, err := os.ReadFile(filepath.Join(deployed, name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the code makes: run make dashboards (%v)", name, err)
		}
	}
	for _, d := range read(t) {
		if made[d.File] == nil {
			t.Errorf("nothing makes %s", d.File)
		}
	}
}

// write makes the folder hold these dashboards alone.
func write(t *testing.T, made map[string][]byte) {
	t.Helper()
	old, _ := filepath.Glob(filepath.Join(deployed, "*.json")) // the pattern is valid
	for _, path := range old {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range made {
		if err := os.WriteFile(filepath.Join(deployed, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// strictly returns what Grafana's own types say against a dashboard; "" if nothing. UnmarshalJSONStrict returns an error
// that is not nil even if there is none.
func strictly(text []byte) string {
	runtime := cog.NewRuntime()
	runtime.RegisterDataqueryVariant(prometheus.VariantConfig())
	runtime.RegisterPanelcfgVariant(timeseries.VariantConfig())
	runtime.RegisterPanelcfgVariant(stat.VariantConfig())
	runtime.RegisterPanelcfgVariant(statetimeline.VariantConfig())
	var d dashboard.Dashboard
	if err := d.UnmarshalJSONStrict(text); err != nil {
		return err.Error()
	}
	return ""
}

func TestGrafanasStrictTypesTakeTheDashboards(t *testing.T) {
	made, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range made {
		if said := strictly(text); said != "" {
			t.Errorf("%s: %s", name, said)
		}
	}
	for name, breaks := range map[string]func(panel map[string]any){
		"a field that there is not":           func(panel map[string]any) { panel["colour"] = "red" },
		"an option that there is not":         func(panel map[string]any) { panel["options"].(map[string]any)["loud"] = true },
		"a text for a number":                 func(panel map[string]any) { panel["id"] = "one" },
		"a query with a field that is not":    func(panel map[string]any) { target(panel)["sql"] = "SELECT 1" },
		"a query whose expression is missing": func(panel map[string]any) { delete(target(panel), "expr") },
	} {
		var d map[string]any
		if err := json.Unmarshal(made["overview.json"], &d); err != nil {
			t.Fatal(err)
		}
		breaks(d["panels"].([]any)[1].(map[string]any))
		broken, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		if strictly(broken) == "" {
			t.Errorf("%s: accepted", name)
		}
	}
}

func target(panel map[string]any) map[string]any {
	return panel["targets"].([]any)[0].(map[string]any)
}

// Each panel says what it shows, in which unit, and asks few queries; -v prints how many.
func TestEveryPanelIsDescribed(t *testing.T) {
	t.Parallel()
	panels, queries := 0, 0
	for _, d := range read(t) {
		titles := map[string]bool{}
		counts := []int{}
		for _, p := range d.Panels {
			if p.Type == "row" {
				continue
			}
			n := len(p.Targets)
			counts = append(counts, n)
			at := d.File + ": " + p.Title
			if p.Title == "" || titles[p.Title] || len(p.Description) < 20 || !strings.HasSuffix(p.Description, ".") || p.FieldConfig.Defaults.Unit == "" {
				t.Errorf("%s: a panel needs a title of its own, a description and a unit", at)
			}
			if n == 0 || n > maxQueries {
				t.Errorf("%s: %d queries, want 1 to %d", at, n, maxQueries)
			}
			if p.GridPos.W == 0 || p.GridPos.X+p.GridPos.W > 24 {
				t.Errorf("%s: at %+v, outside the grid", at, p.GridPos)
			}
			titles[p.Title] = true
			for _, q := range p.Targets {
				if filled := d.Fill(q.Expr, "1m"); strings.Contains(filled, "$") {
					t.Errorf("%s: a variable that the dashboard does not have: %s", at, filled)
				}
				if n > 1 && q.Legend == "" {
					t.Errorf("%s: a query of several has no legend: %s", at, q.Expr)
				}
			}
		}
		t.Logf("%-14s %2d panels, %2d queries; queries of each panel: %v", d.File, len(counts), sum(counts), counts)
		panels, queries = panels+len(counts), queries+sum(counts)
	}
	t.Logf("%d panels, %d queries", panels, queries)
}

func sum(all []int) (n int) {
	for _, i := range all {
		n += i
	}
	return n
}

func TestPanelsDoNotOverlap(t *testing.T) {
	t.Parallel()
	for _, d := range read(t) {
		taken := map[string]string{}
		for _, p := range d.Panels {
			for x := range p.GridPos.W {
				for y := range p.GridPos.H {
					cell := fmt.Sprint(p.GridPos.X+x, " ", p.GridPos.Y+y)
					if other := taken[cell]; other != "" {
						t.Fatalf("%s: %q lies on %q", d.File, p.Title, other)
					}
					taken[cell] = p.Title
				}
			}
		}
	}
}

func TestEveryDashboardHasItsVariables(t *testing.T) {
	t.Parallel()
	for _, d := range read(t) {
		var names []string
		for _, v := range d.Templating.List {
			names = append(names, v.Name)
		}
		if !slices.Equal(names[:2], []string{"datasource", "cluster"}) {
			t.Errorf("%s: variables %v", d.File, names)
		}
	}
}

func TestQueriesAreOfTheChosenClusters(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string]string{
		`tocsin_build_info`: `tocsin_build_info{cluster=~"$cluster"}`,
		`sum(rate(tocsin_a_total{b="c"}[5m])) / max(tocsin_d > 0)`: `sum(rate(tocsin_a_total{cluster=~"$cluster", b="c"}[5m])) / max(tocsin_d{cluster=~"$cluster"} > 0)`,
		`biz_type:tocsin_x:ratio{a="b"}`:                           `biz_type:tocsin_x:ratio{cluster=~"$cluster", a="b"}`,
		`etcd_server_has_leader`:                                   `etcd_server_has_leader`,
	} {
		if got := ofCluster(expr); got != want {
			t.Errorf("%s: got %s, want %s", expr, got, want)
		}
	}
}

func TestVariablesAreFilledAsGrafanaDoes(t *testing.T) {
	t.Parallel()
	var d Dashboard
	d.Templating.List = []Variable{{Name: "cluster", AllValue: ".*"}, {Name: "op", AllValue: "a|b"}}
	if got, want := d.Fill(`rate(x{cluster=~"$cluster", op=~"${op}", y="$z"}[$__rate_interval])`, "4s"), `rate(x{cluster=~".*", op=~"a|b", y="$z"}[4s])`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
