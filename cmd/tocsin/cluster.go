package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/config"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/operator/cluster"
)

func newCluster(a *app) *cobra.Command {
	return group("cluster", "Show the nodes and who owns which tables, and drain nodes", newClusterNodes(a), newClusterTables(a),
		newClusterPlan(a), newClusterDrain(a), newClusterAdopt(a))
}

// errNoOwners answers commands about the ownership of tables.
var errNoOwners = errors.New("nobody owns tables, as layout.ownership of the config is rows: there is nothing to plan, drain or adopt; " +
	"`tocsin cluster nodes` shows the nodes, and SIGTERM ends one")

// etcd reads where etcd is and under which cluster id the keys stand.
func (a *app) etcd() (node.EtcdConfig, string, error) {
	file, err := a.load()
	if err != nil {
		return node.EtcdConfig{}, "", err
	}
	if file.Layout.Ownership == ddl.ByRows {
		return node.EtcdConfig{}, "", errNoOwners
	}
	return etcdOf(file)
}

// etcdOf is etcd for a config file, whoever owns tables.
func etcdOf(file config.File) (node.EtcdConfig, string, error) {
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
	return assign.OpenRegistry(ctx, assign.EtcdConfig(cfg), cluster, tables.Layout.Total())
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

// nodes reads the nodes of one group, or of all if only is "".
func (a *app) nodes(ctx context.Context, only string) ([]groupNodes, error) {
	v, err := a.view()
	if err != nil {
		return nil, err
	}
	return v.Nodes(ctx, only)
}

// byRows reports whether nobody owns tables.
func (a *app) byRows() bool {
	file, err := a.load()
	return err == nil && file.Layout.Ownership == ddl.ByRows
}

// view asks the config's cluster.
func (a *app) view() (cluster.View, error) {
	file, err := a.load()
	if err != nil {
		return cluster.View{}, err
	}
	cfg := cluster.Config{
		Tables: file.Tocsin(), ByRows: file.Layout.Ownership == ddl.ByRows, Grace: file.Sweep.Grace.D(), Listen: file.Node.Listen,
		Registry: a.registry, Pages: a.asker(),
		Foreign: func(ctx context.Context) error { _, err := a.identityInEtcd(ctx); return err },
	}
	_, _, cfg.NoEtcd = a.etcd()
	return cluster.New(cfg), nil
}
