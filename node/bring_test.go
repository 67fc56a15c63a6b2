package node_test

import (
	"slices"
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
	inEach(t, func(t *testing.T, p place) {
		biz := tocsin.Define[order]("order.ship", tocsin.Policy{Attempts: 2})
		h := closing(closes)
		node.Handle(h, biz, closes)
		cfg := p.config("orders")
		cfg.Strict = true
		run(t, cfg, h)
		until(t, "the policy to be stored", func() bool {
			policies, err := biztype.Load(t.Context(), p.cfg)
			return err == nil && slices.ContainsFunc(policies, func(stored biztype.Policy) bool {
				return stored.Name == "order.ship" && stored.Group == "orders" && stored.Attempts == 2 && stored.Number > 1000 && stored.Edition == 1
			})
		})
		await(t, p, add(t, p, biz.New(1, order{1}, tocsin.In(0))), "a delivery", withStatus(tocsin.Done))
	})
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
			execute(t, db, strings.TrimSuffix(strings.TrimSpace(line), ";"))
		}
	}
	t.Cleanup(func() { _, _ = db.Exec("DROP USER " + user) })
	var h node.Handlers
	node.Handle(&h, tocsin.Define[order]("order.ship", tocsin.Policy{}), closes)
	cfg, log := p.config("orders"), new(devtest.Log)
	cfg.Tables.Servers = []tocsin.Server{{Name: "db1", DSN: user + "@" + strings.SplitN(devtest.DSN(t), "@", 2)[1]}}
	cfg.Logger = log.Logger()
	run(t, cfg, &h)
	log.Await(t, "this program may not store the policies that its code brings: apply them with `tocsin biz apply`, or grant its user the role biz")
	if line := log.Await(t, "a handler gets no task"); line["biz_type"] != "order.ship" {
		t.Errorf("%v", line)
	}
}
