package node_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/node"
)

// newBarredPlace has a server of its own, whose user can't write while the server is read-only. exec runs statements as root.
func newBarredPlace(t *testing.T, policies ...biztype.Policy) (p place, exec func(statement string)) {
	t.Helper()
	server := startServer(t)
	root := openDB(t, server.DSN())
	exec = func(statement string) {
		t.Helper()
		if _, err := root.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	prefix := devtest.Prefix(t)
	exec("CREATE USER tocsin@'%'")
	exec("GRANT ALL ON `" + prefix + "\\_%`.* TO tocsin@'%'")
	return place{
		cfg: tocsin.Config{
			Layout: tocsin.Layout{Databases: 2, Tables: 4, Prefix: prefix}, Cluster: prefix,
			Servers: []tocsin.Server{{Name: "db1", DSN: strings.Replace(server.DSN(), "root@", "tocsin@", 1)}},
		},
		etcd: node.EtcdConfig{Endpoints: []string{devtest.Etcd(t)}},
	}.made(t, policies...), exec
}

// While a server is read-only, nodes deliver what is due there, and their outcomes wait. When it takes writes again, a
// sweep under way must not claim these tasks before the nodes have settled them: it would deliver them a second time.
func TestASweepAfterAReadOnlySpellWaitsForTheNodes(t *testing.T) {
	t.Parallel()
	p, exec := newBarredPlace(t, closePolicy(), biztype.Policy{Name: "refund.check", Number: 2, Group: "refunds"})
	delivered := &tallied{seen: map[tocsin.JobID]int{}}
	refund := tocsin.Define[order]("refund.check")
	var h, swept node.Handlers
	node.Handle(&h, orderClose, delivered.handle)
	node.Handle(&swept, orderClose, delivered.handle)
	node.Handle(&swept, refund, delivered.handle)
	l := runLogged(t, p, "one", &h)
	for id := range uint64(20) { // until the node owns every table
		await(t, p, add(t, p, orderClose.New(id+1, order{id + 1}, tocsin.In(0))), "its delivery", withStatus(tocsin.Done))
	}
	ids := []tocsin.JobID{add(t, p, refund.New(1, order{1}, tocsin.In(0)))} // has no node
	for id := range uint64(200) {
		ids = append(ids, add(t, p, orderClose.New(id+1, order{id + 1}, tocsin.In(2*time.Second))))
	}
	exec("SET GLOBAL read_only = 1")
	until(t, "the node delivers", func() bool { n, _ := delivered.of(ids); return n == len(ids)-1 })

	const sweeps = 8 // one after the other, so that one of them tries to claim soon after writes come back
	ended := make(chan error, sweeps)
	for range sweeps {
		var log devtest.Log
		cfg := p.sweepConfig()
		cfg.Logger, cfg.SweepTimeout = log.Logger(), node.NoTimeout
		s, err := node.NewSweeper(cfg, &swept)
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, err := s.Sweep(t.Context()); ended <- err }()
		log.Await(t, "rows could not be loaded; trying again in a second")
		time.Sleep(100 * time.Millisecond)
	}
	const waitsLong = 40 // failures, after which the pauses of the node's settlers are at their longest
	failed := l.count(t, "tocsin_dispatcher_errors_total")
	until(t, "the node waits long", func() bool { return l.count(t, "tocsin_dispatcher_errors_total") > failed+waitsLong })
	exec("SET GLOBAL read_only = 0")
	for _, id := range ids {
		await(t, p, id, "its settlement", withStatus(tocsin.Done))
	}
	for range sweeps {
		if err := receive(t, ended, "a sweep"); err != nil {
			t.Error(err)
		}
	}
	if n, twice := delivered.of(ids); n != len(ids) || twice > 0 {
		t.Errorf("%d deliveries of %d tasks, %d of them twice", n, len(ids), twice)
	}
}
