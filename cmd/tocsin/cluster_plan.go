package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/assign"
)

// groupPlan is the JSON of `cluster plan` for one group.
type groupPlan struct {
	Group string `json:"group"`
	assign.DryRun
}

func newClusterPlan(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "plan", Short: "Show which tables would move if nodes came or went, and move none", Args: noArgs,
		Long: "Show how many tables would move, from which node to which, if nodes came to a group or\n" +
			"went from it; without --add and --remove, what is under way. Nothing is changed. A node\n" +
			"that comes has the weight that the config file gives its own. With --remove and without\n" +
			"--group the groups of these nodes are shown.",
		Example: "  tocsin cluster plan --group callback --add 2\n  tocsin cluster plan --remove host-a-k3j2h4ax",
	}
	only := groupFlag(cmd)
	add := cmd.Flags().Int("add", 0, "this many nodes come, to each group shown")
	remove := cmd.Flags().StringArray("remove", nil, "the node with this id goes (may be repeated)")
	_ = cmd.RegisterFlagCompletionFunc("remove", a.completeNodes) // fails for unknown flags only
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *add < 0 || *add > maxAdded {
			return usage("--add %d: give 0 to %d nodes", *add, maxAdded)
		}
		plans, err := a.plans(cmd.Context(), *only, assign.Change{Add: *add, Remove: *remove})
		if err != nil {
			return err
		}
		return a.print(plans, func(w io.Writer) { writePlans(w, plans) })
	}
	return cmd
}

// maxAdded is how many nodes a group is made for.
const maxAdded = 200

// plans tries a change on the groups that it concerns.
func (a *app) plans(ctx context.Context, only string, c assign.Change) ([]groupPlan, error) {
	file, err := a.load()
	if err != nil {
		return nil, err
	}
	c.Weight = file.Node.Weight
	keys, err := a.registry(ctx)
	if err != nil {
		return nil, err
	}
	defer keys.Close()
	groups, err := changedBy(ctx, keys, only, c.Remove)
	if err != nil {
		return nil, err
	}
	plans := []groupPlan{}
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		c.Remove = groups[group]
		d, err := keys.Try(ctx, group, c)
		if err != nil {
			return nil, err
		}
		plans = append(plans, groupPlan{group, d})
	}
	return plans, nil
}

// changedBy gives the nodes to remove by group: of one group, or else of all, or of those that have such nodes.
func changedBy(ctx context.Context, keys *assign.Registry, only string, remove []string) (map[string][]string, error) {
	names, err := groupNames(ctx, keys, only)
	if err != nil {
		return nil, err
	}
	found := map[string][]string{}
	for _, name := range names {
		if only != "" || len(remove) == 0 {
			found[name] = nil
		}
	}
	for _, id := range remove {
		group, err := groupOf(ctx, keys, names, id)
		if err != nil {
			return nil, err
		}
		found[group] = append(found[group], id)
	}
	return found, nil
}

func writePlans(w io.Writer, plans []groupPlan) {
	if len(plans) == 0 {
		fmt.Fprintln(w, noNodes)
	}
	for i, p := range plans {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "group %s: %d of %d tables would move, the least possible is %d\n", p.Group, p.Moves, p.Tables, p.Least)
		writePlan(w, p.DryRun)
	}
}

func writePlan(w io.Writer, d assign.DryRun) {
	rows := [][]string{{"NODE", "WEIGHT", "OWNS", "WOULD OWN"}}
	for _, s := range d.Shares {
		rows = append(rows, []string{oneCell(s.ID), strconv.Itoa(s.Weight), strconv.Itoa(s.Owns), strconv.Itoa(s.Gets)})
	}
	columns(w, rows...)
	if len(d.Flows) == 0 {
		return
	}
	fmt.Fprintln(w)
	rows = [][]string{{"FROM", "TO", "TABLES"}}
	for _, f := range d.Flows {
		rows = append(rows, []string{nodeName(f.From), nodeName(f.To), strconv.Itoa(f.Tables)})
	}
	columns(w, rows...)
}
