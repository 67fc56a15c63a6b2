package main

import (
	"cmp"
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
type serveFlags struct{ name, listen, group, pprof, api string }

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
process lives). node.status of the config sets a token and TLS.

With --api, or node.api.listen of the config, it also serves the HTTP API: tasks, biz types,
nodes and counts, as docs/api.md describes. Without tokens (node.api.tokens or tokens_file)
the address must be a loopback one: make a token with ` + "`tocsin token new`" + `.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context(), f) },
	}
	c.Flags().StringVar(&f.name, "name", "", "name of the node (default: node.name of the config, then the host name)")
	c.Flags().StringVar(&f.listen, "listen", "", "address of the status page (default: node.listen of the config); off for none")
	c.Flags().StringVar(&f.api, "api", "", "address of the HTTP API, such as 127.0.0.1:8481 (default: node.api.listen of the config); off for none")
	c.Flags().StringVar(&f.group, "group", biztype.CallbackGroup, "group whose callbacks to deliver")
	c.Flags().StringVar(&f.pprof, "pprof", "", "loopback address for Go's profiles, for example 127.0.0.1:6060 (default: none)")
	return c
}

func (a *app) serve(ctx context.Context, f serveFlags) error {
	registry := newRegistry()
	cfg, file, guard, err := a.serveConfig(f, registry)
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
	requests, err := a.listenAPI(file, cmp.Or(f.api, file.Node.API.Listen), a.logger(file.Log.Level, file.Log.Format), registry)
	if err != nil {
		return errors.Join(err, page.close(), profiles.close())
	}
	work, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	taking, stop := context.WithCancel(ctx)
	defer stop()
	var g errgroup.Group
	g.Go(func() error { return page.serve(work, statusMux(n.Status(), registry, page.token, n.ID)) })
	g.Go(func() error { return profiles.serve(work, pprofMux()) })
	g.Go(func() error { return requests.serve(taking) })
	g.Go(func() error {
		defer end()  // the page lives as long as the node
		defer stop() // a node that failed leaves no API behind
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
