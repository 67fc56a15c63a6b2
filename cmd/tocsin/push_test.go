package main

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
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
