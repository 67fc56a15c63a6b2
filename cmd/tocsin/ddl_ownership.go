package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/config"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/operator/cluster"
)

// ownedDDL is the JSON of `ddl ownership`.
type ownedDDL struct {
	Ownership string `json:"ownership"` // of all databases
	Databases int    `json:"databases"` // changed now
}

func newDDLOwnership(a *app) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use: "ownership OWNERSHIP", Short: "Change who may start a row, with all nodes stopped", Args: exactArgs("OWNERSHIP"),
		Long: "Write into every database who may start a row. With etcd, each table has an owner, by a\n" +
			"key in etcd. With rows, nobody owns tables: every node claims each row before it starts,\n" +
			"and no etcd is needed. With nodes of both kinds, tasks would be delivered twice, so nodes\n" +
			"refuse databases of the other kind. It fails while a node lives. Stop all nodes, run it,\n" +
			"set layout.ownership in the config of every node, and start them again. Clients and\n" +
			"sweepers work with both, and may go on meanwhile.",
		RunE: func(cmd *cobra.Command, args []string) error { return a.ownershipDDL(cmd.Context(), args[0], force) },
	}
	cmd.Flags().BoolVar(&force, "force", false, "don't look for live nodes, neither in etcd nor in the node tables")
	return cmd
}

func (a *app) ownershipDDL(ctx context.Context, ownership string, force bool) error {
	if ownership != ddl.ByEtcd && ownership != ddl.ByRows {
		return usage("ownership %q: want %s or %s", ownership, ddl.ByEtcd, ddl.ByRows)
	}
	cfg, err := a.cluster()
	if err != nil {
		return err
	}
	if err := a.noOwner(ctx, force); err != nil {
		return err
	}
	done, err := ddl.SetOwnership(ctx, cfg, ownership, force)
	if err != nil {
		if done.Databases > 0 {
			return fmt.Errorf("%w; %d databases were changed: run it again to go on", err, done.Databases)
		}
		return err
	}
	if err := a.noOwner(ctx, force); err != nil {
		return fmt.Errorf("it started meanwhile, so tasks may be delivered twice: %w", err)
	}
	return a.print(ownedDDL(done), func(w io.Writer) {
		if done.Databases == 0 {
			fmt.Fprintf(w, "ownership is %s already\n", done.Ownership)
			return
		}
		fmt.Fprintf(w, "ownership is %s: %d databases were changed; set layout.ownership: %s in the config of every node before it starts\n",
			done.Ownership, done.Databases, done.Ownership)
	})
}

// noOwner refuses while etcd knows a node. Without etcd in the config there can be none.
func (a *app) noOwner(ctx context.Context, force bool) error {
	file, err := a.load()
	if err != nil || force || len(file.Etcd.Endpoints) == 0 {
		return err
	}
	groups, err := registered(ctx, file)
	if err != nil {
		return fmt.Errorf("%w: etcd must say that no node lives (--force goes on all the same)", err)
	}
	for _, g := range groups {
		for _, n := range g.Nodes {
			return fmt.Errorf("node %s of group %s lives: stop all nodes first (--force goes on all the same)", n.ID, g.Group)
		}
	}
	return nil
}

// registered reads the nodes of all groups from etcd, whoever owns tables.
func registered(ctx context.Context, file config.File) ([]groupNodes, error) {
	cfg, id, err := etcdOf(file)
	if err != nil {
		return nil, err
	}
	keys, err := assign.OpenRegistry(ctx, assign.EtcdConfig(cfg), id, file.Tocsin().Layout.Total())
	if err != nil {
		return nil, err
	}
	defer keys.Close()
	return cluster.NodesIn(ctx, keys, "")
}

// owned reads the servers from the config file, and adds to the options what else the databases are to say.
func (a *app) owned(opt ddl.Options) (tocsin.Config, ddl.Options, error) {
	file, err := a.load()
	if err != nil {
		return tocsin.Config{}, opt, err
	}
	opt.Ownership, opt.SweepGrace = file.Layout.Ownership, file.Sweep.Grace.D()
	return file.Tocsin(), opt, nil
}
