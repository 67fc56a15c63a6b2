package main

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin/config"
	"github.com/tocsinhq/tocsin/outbox"
	"github.com/tocsinhq/tocsin/relay"
	"github.com/tocsinhq/tocsin/tocsinpg"
)

func newRelay(a *app) *cobra.Command {
	var f outboxFlags
	var listenOn string
	cmd := &cobra.Command{
		Use: "relay", Short: "Move the rows of outboxes to the tables of their tasks", Args: noArgs,
		Long: `Moves the rows of outboxes: those of the config, or one that --dsn and --table name. It needs
no etcd. For each outbox one process is active; others stand by and take over when it ends or
hangs. "tocsin serve" relays the outboxes of its config too, so this is for hosts beside a
business database that nodes do not reach.

--listen serves /metrics for Prometheus and /healthz; node.status of the config sets a token
and TLS.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.relay(cmd.Context(), f, listenOn) },
	}
	f.flags(cmd)
	cmd.Flags().StringVar(&listenOn, "listen", config.Off, "address of /metrics; off for none")
	return cmd
}

func (a *app) relay(ctx context.Context, f outboxFlags, listenOn string) error {
	file, err := a.load()
	if err != nil {
		return err
	}
	outboxes := tocsinpg.Drive(file.Relayed())
	if f != (outboxFlags{}) {
		one, err := f.one(a)
		if err != nil {
			return err
		}
		outboxes = []outbox.Config{one}
	}
	if len(outboxes) == 0 {
		return usage("the config has no outboxes: use --dsn and --table")
	}
	registry := newRegistry()
	r, err := relay.New(relay.Config{
		Tables: file.Tocsin(), Outboxes: outboxes, Logger: a.logger(file.Log.Level, file.Log.Format), Registerer: registry,
	})
	if err != nil {
		return err
	}
	guarded, err := newGuard(file.Node.Status)
	if err != nil {
		return err
	}
	page, err := listen(listenOn, guarded)
	if err != nil {
		return err
	}
	alive := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	return beside(ctx, r.Run, func(work context.Context) error {
		return page.serve(work, statusMux(alive, registry, page.token, func() string { return "relay" }))
	})
}

// beside runs a page for as long as the work; a page that fails ends the work, so that its error is told at once.
func beside(ctx context.Context, work, page func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	shown, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var g errgroup.Group
	g.Go(func() error {
		err := page(shown)
		if err != nil {
			stop()
		}
		return err
	})
	g.Go(func() error {
		defer end()
		return work(ctx)
	})
	return g.Wait()
}
