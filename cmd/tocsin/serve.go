package main

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/node"
)

// serveFlags are those of `tocsin serve`; they win over the config file.
type serveFlags struct{ name, listen, group, pprof string }

func newServe(a *app) *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use: "serve", Short: "Run a node that delivers HTTP callbacks", Args: noArgs,
		Long: `Runs a node: it takes its share of the tables and delivers the HTTP callbacks of its
group. On SIGTERM or Ctrl-C it takes in no more and gives its tables up: other nodes have
them at once. It lets deliveries in hand end, for node.drain_timeout of the config (30s) at
most, settles them and exits with 0. The log says what was left.

The listen address serves /metrics for Prometheus, /status (200 while the node may
deliver, else 503), /readyz (the same without the report) and /healthz (200 while the
process lives). node.status of the config sets a token and TLS.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context(), f) },
	}
	c.Flags().StringVar(&f.name, "name", "", "name of the node (default: node.name of the config, then the host name)")
	c.Flags().StringVar(&f.listen, "listen", "", "address of the status page (default: node.listen of the config); off for none")
	c.Flags().StringVar(&f.group, "group", biztype.CallbackGroup, "group whose callbacks to deliver")
	c.Flags().StringVar(&f.pprof, "pprof", "", "loopback address for Go's profiles, 127.0.0.1:6060 say (default: none)")
	return c
}

func (a *app) serve(ctx context.Context, f serveFlags) error {
	registry := newRegistry()
	cfg, guard, err := a.serveConfig(f, registry)
	if err != nil {
		return err
	}
	n, err := node.New(cfg, nil)
	if err != nil {
		return err
	}
	page, err := listen(cfg.Listen, guard)
	if err != nil {
		return err
	}
	profiles, err := listenPprof(f.pprof)
	if err != nil {
		return errors.Join(err, page.close())
	}
	work, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var g errgroup.Group
	g.Go(func() error { return page.serve(work, statusMux(n.Status(), registry, page.token, n.ID)) })
	g.Go(func() error { return profiles.serve(work, pprofMux()) })
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
