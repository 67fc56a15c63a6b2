package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/config"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
	"github.com/tocsinhq/tocsin/node"
)

// sweepFlags are those of `tocsin sweep`; they win over the config file.
type sweepFlags struct {
	grace, timeout       time.Duration
	graceSet, timeoutSet bool
	cron                 string
	dryRun               bool
	once, force          bool
	out                  outlet
}

func newSweep(a *app) *cobra.Command {
	var f sweepFlags
	c := &cobra.Command{
		Use: "sweep", Short: "Deliver callback tasks that are overdue and still pending", Args: noArgs,
		Long: `Walks every table of every database once: gives back claims that ran out, claims what is
overdue by more than the grace time and delivers it. It needs MySQL only, no etcd and no
node; several may run at once. With --cron, or sweep.cron in the config, it stays and
sweeps at those times.

Biz types do not wait for one another: one whose callback hangs is left behind alone. When
the time-out is over, or on SIGTERM, the sweep takes up no more, gives back what it has not
begun, cuts off what takes longer than a second more, without counting an attempt, and says
what it left. Give it a time-out above the longest time-out of your biz types.

For cron: one summary line. Exit code 0 if nothing overdue is left, or only tasks of paused
biz types; 1 if a server could not be swept, or tasks are left: no handler or secret here,
no time left, stopped. Standard error then names them by biz type.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.graceSet, f.timeoutSet = cmd.Flags().Changed("grace"), cmd.Flags().Changed("timeout")
			return a.sweep(cmd.Context(), f)
		},
	}
	c.Flags().DurationVar(&f.grace, "grace", 0, "how long overdue: that of the cluster, or 0s, which delivers whatever is due and fails while a node lives (default: sweep.grace of the config, then 60s)")
	c.Flags().DurationVar(&f.timeout, "timeout", 0, "how long it takes up tasks, 0s: to the end (default: sweep.timeout of the config, then 50s, or 5/6 of the time to the next sweep)")
	c.Flags().StringVar(&f.cron, "cron", "", `stay, and sweep at the times of a cron expression: "*/5 * * * *", "@every 1m" (default: sweep.cron of the config)`)
	c.Flags().BoolVar(&f.once, "once", false, "sweep once, though the config has sweep.cron")
	c.Flags().BoolVar(&f.force, "force", false, "with --grace 0s: don't look for live nodes; beside them, tasks may be delivered twice")
	c.Flags().BoolVar(&f.dryRun, "dry-run", false, "report what is overdue and change nothing")
	outletFlags(c, &f.out)
	return c
}

func (a *app) sweep(ctx context.Context, f sweepFlags) error {
	switch {
	case f.grace != 0 && layoutrow.CheckGrace(f.grace) != nil:
		return usage("--grace %s: want 0s, or %s to %s in whole milliseconds", f.grace, ddl.MinSweepGrace, ddl.MaxSweepGrace)
	}
	if err := checkTimes(f.cron, f.once); err != nil {
		return err
	}
	file, err := a.load()
	if err != nil {
		return err
	}
	cfg, cron, err := a.sweepConfig(file, f)
	if err != nil {
		return err
	}
	if err := f.out.check(f.dryRun); err != nil {
		return err
	}
	if err := a.aloneWithoutGrace(ctx, file, f, cron != "" && !f.once); err != nil {
		return err
	}
	sinks, err := a.sinks(file)
	if err != nil {
		return err
	}
	defer sinks.close(ctx)
	cfg.Sinks = sinks
	registry := prometheus.NewRegistry()
	cfg.Registerer = kept{prometheus.WrapRegistererWith(ofCluster(file), registry)}
	s, err := node.NewSweeper(cfg, nil)
	if err != nil {
		return err
	}
	if cron != "" && !f.once && !f.dryRun {
		return f.out.whileResident(ctx, outletOf("sweep", file), registry, func() error { return s.Run(ctx, cron) })
	}
	return a.sweepOnce(ctx, s, file, f)
}

// aloneWithoutGrace refuses to sweep what has just become due while nodes with etcd may deliver it: they claim only what is
// nearly as late as the grace. Nodes without etcd claim every task.
func (a *app) aloneWithoutGrace(ctx context.Context, file config.File, f sweepFlags, stays bool) error {
	switch {
	case !f.graceSet || f.grace != 0 || f.dryRun || f.force || file.Layout.Ownership == node.ByRows:
		return nil
	case stays:
		return usage("--grace 0s with a cron expression would deliver beside nodes that start later: add --once (--force sweeps all the same)")
	case len(file.Etcd.Endpoints) == 0:
		return errors.New("--grace 0s would deliver beside live nodes, and the config has no etcd to ask for them (--force sweeps all the same)")
	}
	if err := a.noOwner(ctx, false); err != nil {
		return fmt.Errorf("--grace 0s would deliver beside live nodes: %w", err)
	}
	return nil
}

func (a *app) sweepOnce(ctx context.Context, s *node.Sweeper, file config.File, f sweepFlags) error {
	once, label := s.Sweep, "sweep: "
	if f.dryRun {
		once, label = s.DryRun, "sweep (dry run): "
	}
	result, err := once(ctx)
	left := f.out.once(ctx, "sweep", file, result.Ended(err == nil))
	if err != nil && result.Took == 0 {
		return errors.Join(err, left) // nothing was swept at all: there is no result to print
	}
	if err := a.print(result, func(w io.Writer) { fmt.Fprintf(w, "%s%s\n", label, result) }); err != nil {
		return errors.Join(err, left)
	}
	return errors.Join(err, result.Err(), left)
}

// sweepConfig is that of a sweeper, with the flags over the file. It needs no etcd and moves no rows of outboxes.
func (a *app) sweepConfig(file config.File, f sweepFlags) (cfg node.Config, cron string, err error) {
	file.Etcd, file.Outboxes = config.Etcd{}, nil
	if cfg, err = file.NodeConfig(); err != nil {
		return cfg, "", err
	}
	cfg.Version, cfg.Logger = version, a.logger(file.Log.Level, file.Log.Format)
	if cron = file.Sweep.Cron; f.cron != "" {
		cron = f.cron
	}
	if f.graceSet {
		cfg.SweepGrace = max(f.grace, node.NoGrace)
	}
	switch {
	case f.timeoutSet && f.timeout == 0:
		cfg.SweepTimeout = node.NoTimeout
	case f.timeoutSet:
		cfg.SweepTimeout = f.timeout
	}
	return cfg, cron, nil
}
