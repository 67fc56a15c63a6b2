package node_test

import (
	"context"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/node"
)

// A program that brings its policy needs no file.
func TestANodeStoresThePoliciesOfItsCode(t *testing.T) {
	t.Parallel()
	for _, p := range []place{newPlace(t), newOpenPlace(t)} {
		biz := tocsin.Define[order]("order.ship", tocsin.Policy{Attempts: 2})
		var h node.Handlers
		node.Handle(&h, biz, func(context.Context, *tocsin.Task[order]) error { return nil })
		cfg := p.config("orders")
		cfg.Strict = cfg.Ownership == "" // the other place has a biz type that nobody handles
		run(t, cfg, &h)
		until(t, "the policy to be stored", func() bool {
			policies, err := biztype.Load(t.Context(), p.cfg)
			for _, stored := range policies {
				if stored.Name == "order.ship" {
					return err == nil && stored.Group == "orders" && stored.Attempts == 2 && stored.Number > 1000 && stored.Edition == 1
				}
			}
			return false
		})
		await(t, p, add(t, p, biz.New(1, order{1}, tocsin.In(0))), "a delivery", withStatus(tocsin.Done))
	}
}

func TestANodeThatMayStoreNoPolicySaysWhatToDo(t *testing.T) {
	t.Parallel()
	p, db := newOpenPlace(t), openDB(t, devtest.DSN(t))
	user := "u" + strings.ToLower(devtest.Prefix(t))
	plans, err := ddl.Grants(p.cfg, ddl.GrantOptions{Roles: []string{"node"}, User: user, PerTable: true})
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines("CREATE USER " + user + "\n" + plans[0].Text) {
		if strings.HasPrefix(line, "GRANT") || strings.HasPrefix(line, "CREATE") {
			if _, err := db.Exec(strings.TrimSuffix(strings.TrimSpace(line), ";")); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
		}
	}
	t.Cleanup(func() { _, _ = db.Exec("DROP USER " + user) })
	var h node.Handlers
	node.Handle(&h, tocsin.Define[order]("order.ship", tocsin.Policy{}), func(context.Context, *tocsin.Task[order]) error { return nil })
	cfg, log := p.config("orders"), new(devtest.Log)
	cfg.Tables.Servers = []tocsin.Server{{Name: "db1", DSN: user + "@" + strings.SplitN(devtest.DSN(t), "@", 2)[1]}}
	cfg.Logger = log.Logger()
	run(t, cfg, &h)
	log.Await(t, "this program may not store the policies that its code brings: apply them with `tocsin biz apply`, or grant its user the role biz")
	if line := log.Await(t, "a handler gets no task"); line["biz_type"] != "order.ship" {
		t.Errorf("%v", line)
	}
}

func TestAPolicyInCodeThatIsWrongIsRefusedByNew(t *testing.T) {
	t.Parallel()
	var h node.Handlers
	node.Handle(&h, tocsin.Define[order]("order.ship", tocsin.Policy{Attempts: -1}), func(context.Context, *tocsin.Task[order]) error { return nil })
	cfg := node.Config{
		Tables:    tocsin.Config{Cluster: "c", Layout: tocsin.Layout{Databases: 1, Tables: 1}, Servers: []tocsin.Server{{DSN: "root@tcp(127.0.0.1:1)/"}}},
		Ownership: node.ByRows, Group: "orders",
	}
	if _, err := node.New(cfg, &h); err == nil || err.Error() != "biz type order.ship: -1 attempts: use 1 to 1000" {
		t.Error(err)
	}
}
