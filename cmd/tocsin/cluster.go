package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/operator"
)

func newCluster(a *app) *cobra.Command {
	return group("cluster", "Show the nodes and who owns which tables, and drain nodes", newClusterNodes(a), newClusterTables(a),
		newClusterPlan(a), newClusterDrain(a), newClusterAdopt(a))
}

// errNoOwners answers commands about the ownership of tables.
var errNoOwners = errors.New("nobody owns tables, as layout.ownership of the config is rows: there is nothing to plan, drain or adopt; " +
	"`tocsin cluster nodes` shows the nodes, and SIGTERM ends one")

// withRegistry runs one call with the cluster's keys, if nodes own tables.
func (a *app) withRegistry(ctx context.Context, work func(*assign.Registry) error) error {
	file, err := a.load()
	if err != nil {
		return err
	}
	if file.Layout.Ownership == ddl.ByRows {
		return errNoOwners
	}
	return viewOf(file).AskEtcd(ctx, work)
}

// groupOf finds the group of a node. Ids end in chance, so no two groups have the same.
func groupOf(ctx context.Context, keys *assign.Registry, groups []string, id string) (string, error) {
	for _, group := range groups {
		nodes, err := keys.Nodes(ctx, group)
		if err != nil {
			return "", err
		}
		if slices.ContainsFunc(nodes, func(n assign.NodeState) bool { return n.ID == id }) {
			return group, nil
		}
	}
	return "", fmt.Errorf("no live node %q: `tocsin cluster nodes` shows their ids", id)
}

func groupFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("group", "", "this group only")
}

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
	within(cmd, "add", 0, maxAdded)
	remove := cmd.Flags().StringArray("remove", nil, "the node with this id goes (may be repeated)")
	_ = cmd.RegisterFlagCompletionFunc("remove", completing(a.nodeNames)) // fails for unknown flags only
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		plans, err := a.plans(cmd.Context(), *only, assign.Change{Add: *add, Remove: *remove})
		return a.show(plans, err, func(w io.Writer) { writePlans(w, plans) })
	}
	return cmd
}

// maxAdded is how many nodes a group is made for.
const maxAdded = 200

// plans tries a change on the groups that it concerns.
func (a *app) plans(ctx context.Context, only string, c assign.Change) (plans []groupPlan, err error) {
	file, err := a.load()
	if err != nil {
		return nil, err
	}
	c.Weight = file.Node.Weight
	err = a.withRegistry(ctx, func(keys *assign.Registry) error {
		groups, err := changedBy(ctx, keys, only, c.Remove)
		if err != nil {
			return err
		}
		for _, group := range slices.Sorted(maps.Keys(groups)) {
			c.Remove = groups[group]
			d, err := keys.Try(ctx, group, c)
			if err != nil {
				return err
			}
			plans = append(plans, groupPlan{group, d})
		}
		return nil
	})
	return orEmpty(plans), err
}

// changedBy returns the nodes to remove by group: of one group, or else of all, or of those that have such nodes.
func changedBy(ctx context.Context, keys *assign.Registry, only string, remove []string) (map[string][]string, error) {
	names := []string{only}
	if only == "" {
		var err error
		if names, err = keys.Groups(ctx); err != nil {
			return nil, err
		}
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
		table(w, []string{"NODE", "WEIGHT", "OWNS", "WOULD OWN"}, p.Shares, func(s assign.PlannedShare) []any {
			return []any{oneCell(s.ID), s.Weight, s.Owns, s.Gets}
		})
		if len(p.Flows) > 0 {
			fmt.Fprintln(w)
			table(w, []string{"FROM", "TO", "TABLES"}, p.Flows, func(f assign.Flow) []any {
				return []any{nodeName(f.From), nodeName(f.To), f.Tables}
			})
		}
	}
}

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
		ValidArgsFunction: completing(a.nodeNames),
	}
	undo := cmd.Flags().Bool("undo", false, "let it take tables again")
	wait := cmd.Flags().Bool("wait", false, "return when it has no table left")
	timeout := cmd.Flags().Duration("timeout", 2*time.Minute, "with --wait: fail after this time, and say what is left")
	within(cmd, "timeout", time.Millisecond, maxDuration)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case *wait && *undo:
			return usage("use --wait or --undo, not both")
		case cmd.Flags().Changed("timeout") && !*wait:
			return usage("--timeout goes with --wait")
		}
		return a.withRegistry(cmd.Context(), func(keys *assign.Registry) error {
			d, err := drain(cmd.Context(), keys, args[0], *undo)
			if err == nil && *wait {
				err = awaitDrained(cmd.Context(), keys, &d, *timeout)
			}
			return a.show(d, err, func(w io.Writer) { writeDrained(w, d) })
		})
	}
	return cmd
}

// drain begins the drain of a node, or ends it.
func drain(ctx context.Context, keys *assign.Registry, id string, undo bool) (drained, error) {
	names, err := keys.Groups(ctx)
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
func awaitDrained(ctx context.Context, keys *assign.Registry, d *drained, timeout time.Duration) error {
	for end := time.Now().Add(timeout); ; {
		owners, err := keys.Owners(ctx, d.Group)
		if err != nil {
			return err
		}
		var left []int
		for table, owner := range owners {
			if owner == d.Node {
				left = append(left, table)
			}
		}
		d.Tables = new(len(left))
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("node %s still has %s after %s, %s, and drains on: what it has in hand there is not stored yet, see its log",
				d.Node, plural(len(left), "table"), timeout, ranges(operator.Ranges(left)))
		}
		if err := loop.Wait(ctx, drainEvery); err != nil {
			return err
		}
	}
}

// adopted is the JSON of `cluster adopt`.
type adopted struct {
	Before assign.Identity `json:"before"` // {}: there was none
	Now    assign.Identity `json:"now"`
}

func newClusterAdopt(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "adopt", Short: "Bind the cluster id in etcd to the databases of this config", Args: noArgs,
		Long: "Bind the cluster id in etcd to the databases of this config. Run it after the cluster's\n" +
			"databases were made anew, or restored from a dump that is older than their identity. From\n" +
			"then on nodes whose databases have another identity are refused. While such a node is\n" +
			"registered, adopt changes nothing and names the nodes of a group to stop first.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.cluster()
			if err != nil {
				return err
			}
			db, err := store.Connect(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			defer db.Close()
			own := assign.NewIdentity(db.Identity(), cfg)
			if own.ID == "" {
				return errors.New("no database that answers has an identity: run `tocsin ddl apply` first")
			}
			return a.withRegistry(cmd.Context(), func(keys *assign.Registry) error {
				before, err := keys.Adopt(cmd.Context(), own, "tocsin cluster adopt")
				return a.show(adopted{before.Identity, own}, err, func(w io.Writer) {
					if before.ID == own.ID {
						fmt.Fprintf(w, "etcd knows the cluster by %s already\n", own)
						return
					}
					fmt.Fprintf(w, "etcd knows the cluster by %s now; before: %s\n", own, cmp.Or(before.Identity, assign.Identity{Databases: "nothing"}))
				})
			})
		},
	}
}
