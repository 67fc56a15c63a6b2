package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/ddl"
)

// gracedDDL is the JSON of `ddl grace`.
type gracedDDL struct {
	Grace     string `json:"grace"`     // of all databases
	Databases int    `json:"databases"` // changed now
}

func newDDLGrace(a *app) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use: "grace DURATION", Short: "Change the grace of sweeps, with all nodes and sweeps stopped", Args: exactArgs("DURATION"),
		Long: "Write into every database how long a task must be overdue before a sweep takes it. Nodes\n" +
			"claim what is nearly as late, so that no sweep delivers beside them. Therefore nodes and\n" +
			"sweeps with another sweep.grace are refused. `ddl apply` writes it first. It fails while a\n" +
			"node lives. Stop all nodes and sweeps, run it, set sweep.grace in the config of each, and\n" +
			"start them again. Services may go on meanwhile.",
		RunE: func(cmd *cobra.Command, args []string) error { return a.graceDDL(cmd.Context(), args[0], force) },
	}
	cmd.Flags().BoolVar(&force, "force", false, "don't look for live nodes, neither in etcd nor in the node tables")
	return cmd
}

func (a *app) graceDDL(ctx context.Context, text string, force bool) error {
	grace, err := time.ParseDuration(text)
	if err != nil || grace < ddl.MinSweepGrace || grace > ddl.MaxSweepGrace {
		return usage("grace %q: want %s to %s", text, ddl.MinSweepGrace, ddl.MaxSweepGrace)
	}
	cfg, err := a.cluster()
	if err != nil {
		return err
	}
	if err := a.noOwner(ctx, force); err != nil {
		return err
	}
	changed, err := ddl.SetSweepGrace(ctx, cfg, grace, force)
	if err != nil {
		if changed > 0 {
			return fmt.Errorf("%w; %d databases were changed: run it again to go on", err, changed)
		}
		return err
	}
	if err := a.noOwner(ctx, force); err != nil {
		return fmt.Errorf("it started meanwhile, so tasks may be delivered twice: %w", err)
	}
	return a.print(gracedDDL{grace.String(), changed}, func(w io.Writer) {
		if changed == 0 {
			fmt.Fprintf(w, "grace of sweeps is %s already\n", grace)
			return
		}
		fmt.Fprintf(w, "grace of sweeps is %s: %d databases were changed; set sweep.grace: %s in the config of every node and sweep before it starts\n",
			grace, changed, grace)
	})
}
