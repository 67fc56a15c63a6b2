package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// drained is the JSON of `cluster drain`.
type drained struct {
	Node     string `json:"node"`
	Group    string `json:"group"`
	Draining bool   `json:"draining"`
}

func newClusterDrain(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "drain ID", Short: "Have a node give up its tables in order and take none", Args: exactArgs("ID"),
		Long: "Have a live node give up all its tables, in order, and take none, while it stays\n" +
			"registered. `tocsin cluster nodes` shows how many it still has. It lasts until --undo, or\n" +
			"until the node is stopped: started again, it is a new one. If the other nodes of its group\n" +
			"die meanwhile, their tables wait for the sweeper, as nobody may take them.",
		Example:           "  tocsin cluster drain host-a-k3j2h4ax\n  tocsin cluster drain host-a-k3j2h4ax --undo",
		ValidArgsFunction: a.completeNode,
	}
	undo := cmd.Flags().Bool("undo", false, "let it take tables again")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		d, err := a.drain(cmd.Context(), args[0], *undo)
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
	return drained{id, group, !undo}, change(ctx, group, id)
}

func writeDrained(w io.Writer, d drained) {
	if d.Draining {
		fmt.Fprintf(w, "node %s of group %s gives up its tables: see `tocsin cluster nodes`\n", d.Node, d.Group)
	} else {
		fmt.Fprintf(w, "node %s of group %s takes tables again\n", d.Node, d.Group)
	}
}
