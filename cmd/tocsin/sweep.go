package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/sweeper"
)

// sweepFlags are those of `tocsin sweep`; they win over the config file.
type sweepFlags struct {
	grace  time.Duration
	cron   string
	dryRun bool
	once   bool
}

func newSweep(a *app) *cobra.Command {
	var f sweepFlags
	c := &cobra.Command{
		Use: "sweep", Short: "Deliver callback tasks that are overdue and still pending", Args: noArgs,
		Long: `Walks every table of every database once: gives back claims that ran out, claims what is
overdue by more than the grace time and delivers it. It needs MySQL only, no etcd and no
node; several may run at once. For cron: one summary line, exit code 1 if a server could
not be swept. With --cron, or sweep.cron in the config, it stays and sweeps at those times.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.sweep(cmd.Context(), f, cmd.Flags().Changed("grace"))
		},
	}
	c.Flags().DurationVar(&f.grace, "grace", 0, "how long overdue (default: sweep.grace of the config, then 60s); less than 60s is for tests")
	c.Flags().StringVar(&f.cron, "cron", "", `stay, and sweep at the times of a cron expression: "*/5 * * * *", "@every 1m" (default: sweep.cron of the config)`)
	c.Flags().BoolVar(&f.once, "once", false, "sweep once, though the config has sweep.cron")
	c.Flags().BoolVar(&f.dryRun, "dry-run", false, "report what is overdue and change nothing")
	return c
}

func (a *app) sweep(ctx context.Context, f sweepFlags, graceSet bool) error {
	switch {
	case f.once && f.cron != "":
		return usage("--once and --cron exclude each other")
	case f.grace < 0:
		return usage("--grace %s: want 0s or more", f.grace)
	}
	if _, err := sweeper.ParseSchedule(f.cron); f.cron != "" && err != nil {
		return usageError{err}
	}
	cfg, cron, err := a.sweepConfig(f, graceSet)
	if err != nil {
		return err
	}
	n, err := node.New(cfg, nil)
	if err != nil {
		return err
	}
	if cron != "" && !f.once && !f.dryRun {
		return n.SweepOn(ctx, cron)
	}
	return a.sweepOnce(ctx, n, f.dryRun)
}

func (a *app) sweepOnce(ctx context.Context, n *node.Node, dry bool) error {
	once, label := n.Sweep, "sweep: "
	if dry {
		once, label = n.SweepDry, "sweep (dry run): "
	}
	result, err := once(ctx)
	if err != nil && result.Tables == 0 && len(result.Failed) == 0 {
		return err // nothing was swept at all: there is no result to print
	}
	if printed := a.print(result, func(w io.Writer) { fmt.Fprintf(w, "%s%s\n", label, result) }); printed != nil {
		return printed
	}
	return err
}
