package node_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/node"
)

func TestMistakesInHandlersPanicWhereTheyAreMade(t *testing.T) {
	t.Parallel()
	good := func(context.Context, *tocsin.Task[order]) error { return nil }
	for name, c := range map[string]struct {
		register func(h *node.Handlers)
		want     string
	}{
		"nil":                {func(h *node.Handlers) { node.Handle(h, orderClose, nil) }, `the handler of biz type "order.close" is nil`},
		"nil, of batches":    {func(h *node.Handlers) { node.HandleBatch(h, orderClose, 5, nil) }, `the handler of biz type "order.close" is nil`},
		"two":                {func(h *node.Handlers) { node.Handle(h, orderClose, good); node.Handle(h, orderClose, good) }, `biz type "order.close" has two handlers`},
		"an impossible name": {func(h *node.Handlers) { node.Handle(h, tocsin.Define[order]("Order.Close"), good) }, `no biz type is named "Order.Close": use lower-case letters`},
		"no name":            {func(h *node.Handlers) { node.Handle(h, tocsin.BizType[order]{}, good) }, `no biz type is named ""`},
		"nil Handlers":       {func(*node.Handlers) { node.Handle(nil, orderClose, good) }, `biz type "order.close" is handled by nil Handlers`},
	} {
		func() {
			defer func() {
				if said := fmt.Sprint(recover()); !strings.HasPrefix(said, "node: ") || !strings.Contains(said, c.want) {
					t.Errorf("%s: panicked with %s, want %s", name, said, c.want)
				}
			}()
			c.register(&node.Handlers{})
		}()
	}
}

func TestConfigsThatNoNodeCanRunWithAreRefused(t *testing.T) {
	t.Parallel()
	good := node.Config{
		Tables: tocsin.Config{
			Cluster: "c", Layout: tocsin.Layout{Databases: 1, Tables: 1}, Servers: []tocsin.Server{{DSN: "root@tcp(127.0.0.1:1)/"}},
		},
		Group: "orders", Name: "test", Etcd: node.EtcdConfig{Endpoints: []string{"127.0.0.1:1"}},
	}
	for want, change := range map[string]func(*node.Config){
		"": func(*node.Config) {},
		"5 bytes of payloads: use at least 1048576": func(c *node.Config) { c.PayloadBytes = 5 },
		"lease TTL 1s: use at least 2s":             func(c *node.Config) { c.LeaseTTL = time.Second },
		"lease TTL -1s: use at least 2s":            func(c *node.Config) { c.LeaseTTL = -time.Second },
		"weight -1, queue capacity 0":               func(c *node.Config) { c.Weight = -1 },
		"weight 0, queue capacity -1":               func(c *node.Config) { c.QueueCap = -1 },
		"drain time-out -1s":                        func(c *node.Config) { c.DrainTimeout = -time.Second },
		"scan interval -1s":                         func(c *node.Config) { c.ScanInterval = -time.Second },
		"sweep grace -1s: must not be negative":     func(c *node.Config) { c.SweepGrace = -time.Second },
	} {
		cfg := good
		change(&cfg)
		_, err := node.New(cfg, nil)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	noEtcd := good
	noEtcd.Etcd = node.EtcdConfig{}
	for _, ownership := range []string{"", node.ByEtcd} {
		noEtcd.Ownership = ownership
		if _, err := node.New(noEtcd, nil); err == nil || !strings.Contains(err.Error(), "set Etcd.Endpoints, or Ownership: node.ByRows") {
			t.Errorf("without etcd, ownership %q: %v", ownership, err)
		}
		if _, err := node.NewSweeper(noEtcd, nil); err != nil {
			t.Errorf("a sweeper without etcd: %v", err)
		}
	}
	noEtcd.Ownership = node.ByRows
	if _, err := node.New(noEtcd, nil); err != nil {
		t.Errorf("by rows: %v", err)
	}
	cfg := good
	cfg.LeaseTTL = 2 * time.Second
	n, err := node.New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	var none context.Context
	s, err := node.NewSweeper(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, swept := s.Sweep(none)
	_, dry := s.DryRun(none)
	for name, err := range map[string]error{"Run": n.Run(none), "Sweep": swept, "DryRun": dry, "the sweeper's Run": s.Run(none, "@every 1m")} {
		if err == nil || err.Error() != "node: the context is nil" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
