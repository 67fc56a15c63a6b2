package devcluster

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"

	"github.com/tocsinhq/tocsin/node"
)

// Exporters on the page beside the nodes.
const (
	pageServices = "services" // the client, as a service exports it
	pageUpkeep   = "cron"     // sweeper and purger, and the files of one-shot commands, as node_exporter exports them
)

// page exports metrics, each exporter's at a path of its own: /node-1/metrics.
type page struct {
	web

	mu         sync.Mutex
	registries map[string]*prometheus.Registry // guarded by mu
	files      string                          // guarded by mu; folder of the files that one-shot commands write; "": none yet
}

func startPage() (*page, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &page{registries: map[string]*prometheus.Registry{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{exporter}/metrics", func(w http.ResponseWriter, r *http.Request) { p.export(w, r.PathValue("exporter")) })
	p.web = startWeb(l, mux)
	return p, nil
}

// registry returns that of an exporter, which it makes if it is new.
func (p *page) registry(exporter string) *prometheus.Registry {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.registries[exporter] == nil {
		p.registries[exporter] = prometheus.NewRegistry()
	}
	return p.registries[exporter]
}

// process returns the registry of an exporter that tells of its process too, as tocsin serve does. All nodes are in one
// process here.
func (p *page) process(exporter string) *prometheus.Registry {
	r := p.registry(exporter)
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// textfiles returns the folder for the files of one-shot commands, which it makes at first.
func (p *page) textfiles() (dir string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.files == "" {
		p.files, err = os.MkdirTemp("", "demo-tocsin-textfile-")
	}
	return p.files, err
}

// export writes the metrics of one exporter.
func (p *page) export(w http.ResponseWriter, exporter string) {
	families, err := p.registry(exporter).Gather()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	format := expfmt.NewFormat(expfmt.TypeTextPlain)
	w.Header().Set("Content-Type", string(format))
	encoder := expfmt.NewEncoder(w, format)
	for _, family := range families {
		if encoder.Encode(family) != nil {
			return // the scraper has gone
		}
	}
	if exporter == pageUpkeep {
		p.exportFiles(w)
	}
}

// status is a node's status page, which has the paths of tocsin serve that commands ask.
func (p *page) status(name string, n *node.Node) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /status", n.Status())
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Tocsin-Node", n.ID())
		p.export(w, name)
	})
	return mux
}

// exportFiles appends the files that one-shot commands have written.
func (p *page) exportFiles(w io.Writer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.files == "" {
		return
	}
	paths, _ := filepath.Glob(filepath.Join(p.files, "*.prom")) // the pattern is right
	for _, path := range paths {
		if text, err := os.ReadFile(path); err == nil {
			_, _ = w.Write(text) // a scraper that has gone
		}
	}
}

// stop ends the page, waits for it, and removes the files.
func (p *page) stop() error {
	err := p.web.stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.files != "" {
		err = errors.Join(err, os.RemoveAll(p.files))
	}
	return err
}
