package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/internal/ownership"
)

// drained is the JSON of `cluster drain`.
type drained struct {
	Node     string `json:"node"`
	Group    string `json:"group"`
	Draining bool   `json:"draining"`
	Tables   *int   `json:"tables,omitempty"` // it still has, with --wait
}

func newClusterDrain(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "drain ID", Short: "Have a node give up its tables in order and take none", Args: exactArgs("ID"),
		Long: "Have a live node give up all its tables, in order, and take none, while it stays\n" +
			"registered. `tocsin cluster nodes` shows how many it still has. It lasts until --undo, or\n" +
			"until the node is stopped: started again, it is a new one. If the other nodes of its group\n" +
			"die meanwhile, their tables wait for the sweeper, as nobody may take them.",
		Example:           "  tocsin cluster drain host-a-k3j2h4ax --wait --timeout 1m\n  tocsin cluster drain host-a-k3j2h4ax --undo",
		ValidArgsFunction: a.completeNode,
	}
	undo := cmd.Flags().Bool("undo", false, "let it take tables again")
	wait := cmd.Flags().Bool("wait", false, "return when it has no table left")
	timeout := cmd.Flags().Duration("timeout", 2*time.Minute, "with --wait: fail after this time, and say what is left")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case *wait && *undo:
			return usage("use --wait or --undo, not both")
		case *timeout <= 0 || cmd.Flags().Changed("timeout") && !*wait:
			return usage("--timeout %s: give a time above 0, with --wait", *timeout)
		}
		d, err := a.drain(cmd.Context(), args[0], *undo)
		if err == nil && *wait {
			err = a.awaitDrained(cmd.Context(), &d, *timeout)
		}
		if err != nil {
			return err
		}
		return a.print(d, func(w io.Writer) { writeDrained(w, d) })
	}
	return cmd
}

// drain begins the drain of a node, or ends it.
func (a *app) drain(ctx context.Context, id string, undo bool) (drained, error) {
	keys, err := a.registry(ctx)
	if err != nil {
		return drained{}, err
	}
	defer keys.Close()
	names, err := groupNames(ctx, keys, "")
	if err != nil {
		return drained{}, err
	}
	group, err := groupOf(ctx, keys, names, id)
	if err != nil {
		return drained{}, err
	}
	change := keys.Drain
	if undo {
		change = keys.Undrain
	}
	return drained{Node: id, Group: group, Draining: !undo}, change(ctx, group, id)
}

func writeDrained(w io.Writer, d drained) {
	switch {
	case d.Tables != nil:
		fmt.Fprintf(w, "node %s of group %s has no table left\n", d.Node, d.Group)
	case d.Draining:
		fmt.Fprintf(w, "node %s of group %s gives up its tables: see `tocsin cluster nodes`\n", d.Node, d.Group)
	default:
		fmt.Fprintf(w, "node %s of group %s takes tables again\n", d.Node, d.Group)
	}
}

// drainEvery is how often a drain that is waited for is looked at.
const drainEvery = 200 * time.Millisecond

// awaitDrained waits until the node owns nothing.
func (a *app) awaitDrained(ctx context.Context, d *drained, timeout time.Duration) error {
	keys, err := a.registry(ctx)
	if err != nil {
		return err
	}
	defer keys.Close()
	tick := time.NewTicker(drainEvery)
	defer tick.Stop()
	for end := time.Now().Add(timeout); ; {
		owners, err := keys.Owners(ctx, d.Group)
		if err != nil {
			return err
		}
		left := tablesOf(owners, d.Node)
		d.Tables = new(int)
		if *d.Tables = len(left); len(left) == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("node %s still has %s after %s, %s, and drains on: what it has in hand there is not stored yet, see its log",
				d.Node, plural(len(left), "table"), timeout, ranges(ownership.Ranges(left)))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// tablesOf gives the tables that a node owns.
func tablesOf(owners []string, id string) (tables []int) {
	for table, owner := range owners {
		if owner == id {
			tables = append(tables, table)
		}
	}
	return tables
}
