package node_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/node"
)

// awaitOwned waits until a node owns the given number of tables.
func awaitOwned(t *testing.T, n *node.Node, tables int) {
	t.Helper()
	until(t, fmt.Sprintf("it owns %d tables", tables), func() bool { return owned(n) == tables })
}

// The databases have no identity yet. Their node logs that, and publishes the identity once they have
// one.
func TestANodeTellsTheIdentityThatItsDatabasesAreGiven(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for db := range 2 {
		if _, err := openDB(t, devtest.DSN(t)).Exec(fmt.Sprintf("UPDATE %s.layout SET identity = ''", p.cfg.Layout.Database(db))); err != nil {
			t.Fatal(err)
		}
	}
	var log devtest.Log
	cfg := p.config("g")
	cfg.Logger = log.Logger()
	n, _ := run(t, cfg, nil)
	log.Await(t, "the databases have no identity, so nodes of another cluster with the same id are not kept out: run `tocsin ddl apply`")
	awaitOwned(t, n, 8)
	res, err := ddl.Apply(t.Context(), p.cfg, ddl.Options{})
	if err != nil || res.Identity == "" {
		t.Fatalf("%+v, %v", res, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	keys, err := assign.OpenRegistry(ctx, p.etcd, p.cfg.Cluster, 8)
	if err != nil {
		t.Fatal(err)
	}
	defer keys.Close()
	for {
		bound, err := keys.Binding(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if bound.ID == res.Identity {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	awaitOwned(t, n, 8)
}
