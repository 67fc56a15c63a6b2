package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/node"
)

// serveFlags are those of `tocsin serve`; they win over the config file.
type serveFlags struct{ name, listen, group string }

func newServe(a *app) *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use: "serve", Short: "Run a node that delivers HTTP callbacks", Args: noArgs,
		Long: `Runs a node: it takes its share of the tables and delivers the HTTP callbacks of its
group. On SIGTERM or Ctrl-C it takes in no more and gives its tables up: other nodes have
them at once. It lets deliveries in hand end, for node.drain_timeout of the config (30s) at
most, settles them and exits with 0. The log says what was left.

The listen address serves /metrics for Prometheus, /status (200 while the node may
deliver, else 503) and /healthz (200 while the process lives).`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context(), f) },
	}
	c.Flags().StringVar(&f.name, "name", "", "name of the node (default: node.name of the config, then the host name)")
	c.Flags().StringVar(&f.listen, "listen", "", "address of the status page (default: node.listen of the config); off for none")
	c.Flags().StringVar(&f.group, "group", biztype.CallbackGroup, "group whose callbacks to deliver")
	return c
}

func (a *app) serve(ctx context.Context, f serveFlags) error {
	registry := newRegistry()
	cfg, err := a.serveConfig(f, registry)
	if err != nil {
		return err
	}
	n, err := node.New(cfg, nil)
	if err != nil {
		return err
	}
	page, err := listen(cfg.Listen)
	if err != nil {
		return err
	}
	work, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var g errgroup.Group
	g.Go(func() error { return page.serve(work, statusMux(n.Status(), registry)) })
	g.Go(func() error {
		defer end() // the page lives as long as the node
		return n.Run(ctx)
	})
	return g.Wait()
}

// newRegistry holds the process's own metrics beside those of the engines.
func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

func statusMux(status http.Handler, registry *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.Handle("GET /status", status)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	return mux
}

// page is the status page's listener; nil listener: there is none.
type page struct{ listener net.Listener }

// listen takes the address at once, so that a port in use is known before
// anything starts. "off" means no page.
func listen(address string) (page, error) {
	if address == "off" {
		return page{}, nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return page{}, fmt.Errorf("status page: %w: free the port, or choose another with --listen or node.listen", err)
	}
	return page{l}, nil
}

// serve answers until ctx ends.
func (p page) serve(ctx context.Context, h http.Handler) error {
	if p.listener == nil {
		return nil
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		bounded, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = s.Shutdown(bounded) // what is cut off was a look at the status
	})
	err := s.Serve(p.listener)
	if !stop() {
		<-stopped
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
