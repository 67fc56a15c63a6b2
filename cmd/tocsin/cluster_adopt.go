package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/spf13/cobra"

	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/store"
)

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
		RunE: func(cmd *cobra.Command, _ []string) error { return a.adopt(cmd.Context()) },
	}
}

func (a *app) adopt(ctx context.Context) error {
	own, err := a.identity(ctx)
	if err != nil {
		return err
	}
	if own.ID == "" {
		return errors.New("no database that answers has an identity: run `tocsin ddl apply` first")
	}
	keys, err := a.registry(ctx)
	if err != nil {
		return err
	}
	defer keys.Close()
	before, err := keys.Adopt(ctx, own, "tocsin cluster adopt")
	if err != nil {
		return err
	}
	return a.print(adopted{before.Identity, own}, func(w io.Writer) {
		if before.ID == own.ID {
			fmt.Fprintf(w, "etcd knows the cluster by %s already\n", own)
			return
		}
		fmt.Fprintf(w, "etcd knows the cluster by %s now; before: %s\n", own, cmp.Or(before.Identity, assign.Identity{Databases: "nothing"}))
	})
}

// identity returns the identity of the config's databases, or an error if its servers
// can't be used.
func (a *app) identity(ctx context.Context) (assign.Identity, error) {
	cfg, err := a.cluster()
	if err != nil {
		return assign.Identity{}, err
	}
	db, err := a.connect(ctx)
	if err != nil {
		return assign.Identity{}, err
	}
	return assign.NewIdentity(db.Identity(), cfg), db.Close()
}

// identityOf returns the identity of the databases that answer.
func identityOf(ctx context.Context, db *store.Store) string {
	var readers sync.WaitGroup
	for server := range db.Servers() {
		readers.Go(func() { _, _ = db.MeasureSoon(ctx, server) }) // reads the layout rows too; the caller asks for other errors itself
	}
	readers.Wait()
	return db.Identity()
}

// identityInEtcd returns the identity of the databases that answer, and an error if
// etcd has bound the cluster to another.
func (a *app) identityInEtcd(ctx context.Context) (string, error) {
	cfg, err := a.cluster()
	if err != nil {
		return "", err
	}
	db, err := a.store()
	if err != nil {
		return "", err
	}
	defer db.Close()
	keys, err := a.registry(ctx)
	if err != nil {
		return "", err
	}
	defer keys.Close()
	own := identityOf(ctx, db)
	if own == "" {
		return "", nil
	}
	return own, keys.Refuse(ctx, assign.NewIdentity(own, cfg))
}
