package node_test

import (
	"context"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/node"
)

// Policies are brought and checked when a server has come.
func TestANodeWaitsForItsServersAndStoresItsPoliciesThen(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	address := strings.SplitN(strings.SplitN(devtest.DSN(t), "(", 2)[1], ")", 2)[0]
	way := devtest.NewRelay(t, address)
	way.Cut()
	biz, log := tocsin.Define[order]("order.ship", tocsin.Policy{Attempts: 2}), new(devtest.Log)
	cfg := p.config("orders")
	cfg.Strict, cfg.Logger = true, log.Logger()
	cfg.Tables.Servers = []tocsin.Server{{Name: "db1", DSN: strings.Replace(devtest.DSN(t), address, way.Addr, 1)}}
	var h node.Handlers
	node.Handle(&h, biz, func(context.Context, *tocsin.Task[order]) error { return nil })
	n, _ := run(t, cfg, &h)
	log.Await(t, "no server answers: waiting until one does, and delivering nothing")
	if report, running := n.Report(); running || report.Mode != node.Waiting || n.ID() != "" {
		t.Errorf("reports %+v", report)
	}
	way.Mend(t)
	log.Await(t, "node runs")
	await(t, p, add(t, p, biz.New(1, order{1}, tocsin.In(0))), "a delivery", withStatus(tocsin.Done))
}
