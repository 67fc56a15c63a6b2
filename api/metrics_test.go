package api_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/tocsinhq/tocsin/api"
)

// measuredAPI is an API with metrics, which takes short bodies.
func measuredAPI(t *testing.T) (*served, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	return serve(t, func(c *api.Config) { c.Registerer, c.Body = registry, 1<<10 }), registry
}

// values returns what a registry holds, by name and labels; of a histogram the count.
func values(t *testing.T, registry prometheus.Gatherer) (all map[string]float64, families []*dto.MetricFamily) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all = map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			value := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			all[strings.TrimPrefix(f.GetName(), "tocsin_api_")+"{"+strings.Join(labels, ",")+"}"] = value
		}
	}
	return all, families
}

func TestRequestsAreCountedByOperationAndRefusalsByReason(t *testing.T) {
	t.Parallel()
	s, registry := measuredAPI(t)
	task := `{"biz_type": "order.close", "biz_id": "1", "delay_ms": 3600000}`
	for _, c := range []struct {
		status int
		request
	}{
		{201, post("/tasks", task)},
		{201, post("/tasks", task)},
		{404, get("/tasks/1")},
		{401, get("/tasks/1").by("-")},
		{403, post("/tasks", task).by("read")},
		{403, get("/cluster/nodes").by("read")},
		{413, post("/tasks", `"`+strings.Repeat("x", 2000)+`"`)},
		{404, get("/tasks/1/nothing/of/a/path")},
		{405, request{method: "PATCH", path: "/v1/tasks"}},
		{400, post("/tasks", `{`)},
	} {
		if got := s.do(c.request); got.status != c.status {
			t.Fatalf("%s %s: %d %s", c.method, c.path, got.status, got.text)
		}
	}
	got, _ := values(t, registry)
	for name, want := range map[string]float64{
		"requests_total{class=2xx,operation=add_task}": 2, "requests_total{class=4xx,operation=add_task}": 3,
		"requests_total{class=4xx,operation=get_task}": 1, "requests_total{class=4xx,operation=list_nodes}": 1,
		"requests_total{class=4xx,operation=none}": 3, "request_seconds{operation=add_task}": 5, "requests_in_flight{}": 0,
		"refusals_total{reason=token}": 1, "refusals_total{reason=scope}": 2, "refusals_total{reason=rate}": 0, "refusals_total{reason=size}": 1,
		"refusals_total{reason=path}": 2, "refusals_total{reason=malformed}": 1, "refusals_total{reason=page}": 0,
	} {
		if value, there := got[name]; !there || value != want {
			t.Errorf("%s is %v, want %v", name, value, want)
		}
	}
}

// readFunc is a body.
type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

func TestARequestIsInFlightUntilItsAnswerHasEnded(t *testing.T) {
	t.Parallel()
	s, registry := measuredAPI(t)
	var during float64
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/tasks", readFunc(func([]byte) (int, error) {
		got, _ := values(t, registry)
		during = got["requests_in_flight{}"]
		return 0, io.EOF
	}))
	r.Header.Set("Authorization", "Bearer "+s.tokens["write"])
	s.api.ServeHTTP(httptest.NewRecorder(), r)
	if after, _ := values(t, registry); during != 1 || after["requests_in_flight{}"] != 0 {
		t.Errorf("%v requests in flight while the body comes, %v afterwards", during, after["requests_in_flight{}"])
	}
}

// What callers send is in no label: the series are those of the operations, whatever is asked for.
func TestTheSeriesOfTheAPIAreBounded(t *testing.T) {
	t.Parallel()
	s, registry := measuredAPI(t)
	for i := range 15 {
		s.do(request{method: "GET", path: fmt.Sprintf("/v1/tasks/%d", i+1)})
		s.do(request{as: "read", method: fmt.Sprintf("M%d", i), path: fmt.Sprintf("/v1/nothing%d", i)})
		s.do(request{as: "-", method: "GET", path: "/v1/stats", header: map[string]string{"Authorization": fmt.Sprintf("Bearer toc_%d", i)}})
	}
	got, _ := values(t, registry)
	if len(got) != 1+7+2*2 { // in flight, the reasons, get_task and none
		t.Errorf("%d series: %v", len(got), got)
	}
}

// The page has a row for every metric of the API, with its type, its labels and its help text, and no other row.
func TestThePageOfMetricsHasThoseOfTheAPI(t *testing.T) {
	t.Parallel()
	s, registry := measuredAPI(t)
	s.do(get("/tasks/1"))
	page, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, families := values(t, registry)
	var rows []string
	for _, f := range families {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		slices.SortFunc(labels, func(a, b string) int { return strings.Compare(b, a) }) // operation before class, as they are declared
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s | %s |", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labels, ", "), f.GetHelp()))
	}
	documented := regexp.MustCompile("(?m)^\\| `tocsin_api_[a-z_]+` \\|.*$").FindAllString(string(page), -1)
	if !slices.Equal(documented, rows) {
		t.Errorf("docs/metrics.md has\n%s\nwant\n%s", strings.Join(documented, "\n"), strings.Join(rows, "\n"))
	}
}
