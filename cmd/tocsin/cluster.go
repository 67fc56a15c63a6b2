package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/assign"
)

func newCluster(a *app) *cobra.Command {
	return group("cluster", "Show the nodes and who owns which tables, and drain nodes", newClusterNodes(a), newClusterTables(a),
		newClusterPlan(a), newClusterDrain(a))
}

// etcd reads where etcd is and under which cluster id the keys stand.
func (a *app) etcd() (assign.EtcdConfig, string, error) {
	file, err := a.load()
	if err != nil {
		return assign.EtcdConfig{}, "", err
	}
	cfg, err := file.EtcdConfig()
	if err != nil {
		return cfg, "", err
	}
	cluster := file.Tocsin().Cluster
	switch {
	case len(cfg.Endpoints) == 0:
		return cfg, "", errors.New("the config names no etcd.endpoints, where the nodes are registered")
	case cluster == "":
		return cfg, "", errors.New("the config names no cluster, under which the nodes are registered in etcd")
	}
	return cfg, cluster, nil
}

// registry opens the cluster's keys. They are the caller's to close.
func (a *app) registry(ctx context.Context) (*assign.Registry, error) {
	cfg, cluster, err := a.etcd()
	if err != nil {
		return nil, err
	}
	tables, err := a.cluster()
	if err != nil {
		return nil, err
	}
	return assign.OpenRegistry(ctx, cfg, cluster, tables.Layout.Total())
}

// groupNames gives one group, or all that have keys if only is "".
func groupNames(ctx context.Context, keys *assign.Registry, only string) ([]string, error) {
	if only != "" {
		return []string{only}, nil
	}
	return keys.Groups(ctx)
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

// groupNodes is the JSON of `cluster nodes` for one group.
type groupNodes struct {
	Group string             `json:"group"`
	Nodes []assign.NodeState `json:"nodes"`
}

func newClusterNodes(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "nodes", Short: "Show the live nodes of every group", Args: noArgs}
	only := groupFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		groups, err := a.nodes(cmd.Context(), *only)
		if err != nil {
			return err
		}
		return a.print(groups, func(w io.Writer) { writeGroups(w, groups) })
	}
	return cmd
}

// nodes reads the nodes of one group, or of all if only is "".
func (a *app) nodes(ctx context.Context, only string) ([]groupNodes, error) {
	keys, err := a.registry(ctx)
	if err != nil {
		return nil, err
	}
	defer keys.Close()
	names, err := groupNames(ctx, keys, only)
	if err != nil {
		return nil, err
	}
	groups := []groupNodes{}
	for _, name := range names {
		nodes, err := keys.Nodes(ctx, name)
		if err != nil {
			return nil, err
		}
		groups = append(groups, groupNodes{name, nodes})
	}
	return groups, nil
}

const noNodes = "no nodes: start one with `tocsin serve`"

func writeGroups(w io.Writer, groups []groupNodes) {
	if len(groups) == 0 {
		fmt.Fprintln(w, noNodes)
	}
	for i, g := range groups {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "group %s: %s\n", g.Group, plural(len(g.Nodes), "node"))
		writeNodes(w, g.Nodes, time.Now())
	}
}

// plural writes "1 node", "2 nodes".
func plural(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

func writeNodes(w io.Writer, nodes []assign.NodeState, now time.Time) {
	if len(nodes) == 0 {
		return
	}
	rows := [][]string{{"NODE", "MODE", "VERSION", "WEIGHT", "TABLES", "WANTED", "LEASE LEFT", "STARTED", "LISTENS ON", "HANDLERS"}}
	for _, n := range nodes {
		rows = append(rows, []string{
			oneCell(n.ID), n.Mode, orDash(n.Info.Version), strconv.Itoa(n.Weight), strconv.Itoa(n.Tables), strconv.Itoa(n.Wanted),
			n.TTL.String(), away(n.Info.Started.Sub(now)), orDash(n.Info.Listen), handlers(n.Info.Types),
		})
	}
	columns(w, rows...)
	for _, n := range nodes {
		writeDifference(w, n)
	}
}

// writeDifference says which tasks wait because nodes of a group are not alike.
func writeDifference(w io.Writer, n assign.NodeState) {
	if len(n.Lacks) > 0 {
		fmt.Fprintf(w, "note: %s has no handler for %s, which others of its group have: such tasks in its tables wait\n",
			oneCell(n.ID), handlers(n.Lacks))
	}
}

// handlers lists biz types; a node that serves callbacks may not tell any.
func handlers(types []string) string { return orDash(strings.Join(types, ", ")) }

// orDash shows that a cell is empty.
func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return oneCell(text)
}
