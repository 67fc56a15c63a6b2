package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/assign"
)

func newCluster(a *app) *cobra.Command {
	return group("cluster", "Show the nodes and who owns which tables", newClusterNodes(a), newClusterTables(a))
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
	cfg, cluster, err := a.etcd()
	if err != nil {
		return nil, err
	}
	client, err := assign.Dial(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	names := []string{only}
	if only == "" {
		if names, err = assign.Groups(ctx, client, cluster); err != nil {
			return nil, err
		}
	}
	groups := []groupNodes{}
	for _, name := range names {
		nodes, err := assign.Nodes(ctx, client, cluster, name)
		if err != nil {
			return nil, err
		}
		groups = append(groups, groupNodes{name, nodes})
	}
	return groups, nil
}

func writeGroups(w io.Writer, groups []groupNodes) {
	if len(groups) == 0 {
		fmt.Fprintln(w, "no nodes: start one with `tocsin serve`")
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
	rows := [][]string{{"NODE", "VERSION", "WEIGHT", "TABLES", "LEASE LEFT", "STARTED", "LISTENS ON", "HANDLERS"}}
	for _, n := range nodes {
		rows = append(rows, []string{
			oneCell(n.ID) + leaving(n), orDash(n.Info.Version), strconv.Itoa(n.Weight), strconv.Itoa(n.Tables), n.TTL.String(),
			away(n.Info.Started.Sub(now)), orDash(n.Info.Listen), handlers(n.Info.Types),
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

func leaving(n assign.NodeState) string {
	if n.Leaving {
		return " (leaving)"
	}
	return ""
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
