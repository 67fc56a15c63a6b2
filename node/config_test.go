package node

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/name"
)

func named(group, name string) Config {
	return Config{
		Group: group, Name: name, Ownership: ByRows,
		Tables: tocsin.Config{
			Cluster: "c", Layout: tocsin.Layout{Databases: 1, Tables: 1}, Servers: []tocsin.Server{{DSN: "root@tcp(127.0.0.1:1)/"}},
		},
	}
}

// A service that forgot to set its group would take tables of `tocsin serve` and get
// no task.
func TestGoHandlersNeedAGroup(t *testing.T) {
	t.Parallel()
	var h Handlers
	for _, biz := range []string{"order.ship", "order.close"} {
		Handle(&h, tocsin.Define[string](biz), func(context.Context, *tocsin.Task[string]) error { return nil })
	}
	_, err := New(named("", "n"), &h)
	if want := "no group for the Go handlers of order.close, order.ship: set Group to that of the policies of these biz types"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	for name, h := range map[string]*Handlers{"nil": nil, "none": {}} {
		n, err := New(named("", "n"), h)
		if err != nil || n.cfg.Group != "callback" {
			t.Errorf("%s: %+v, %v", name, n, err)
		}
	}
	if _, err := New(named("orders", "n"), &h); err != nil {
		t.Error(err)
	}
}

func TestWhateverTheHostIsCalledANodeHasAName(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"", "host-1", strings.Repeat("h", 63), "ip-10-0-12-7.eu-central-1.compute.internal", "-", "büro 7"} {
		if err := named("g", name.OfHost(host)).Validate(); err != nil {
			t.Errorf("%q: %v", host, err)
		}
	}
	if got := named("g", "mine").withDefaults().Name; got != "mine" {
		t.Errorf("its name is %s", got)
	}
}

func TestMistakesInHandlersPanicWhereTheyAreMade(t *testing.T) {
	t.Parallel()
	biz := tocsin.Define[string]("order.close")
	good := func(context.Context, *tocsin.Task[string]) error { return nil }
	for name, c := range map[string]struct {
		register func(h *Handlers)
		want     string
	}{
		"nil":                {func(h *Handlers) { Handle(h, biz, nil) }, `the handler of biz type "order.close" is nil`},
		"nil, of batches":    {func(h *Handlers) { HandleBatch(h, biz, 5, nil) }, `the handler of biz type "order.close" is nil`},
		"two":                {func(h *Handlers) { Handle(h, biz, good); Handle(h, biz, good) }, `biz type "order.close" has two handlers`},
		"an impossible name": {func(h *Handlers) { Handle(h, tocsin.Define[string]("Order.Close"), good) }, `no biz type is named "Order.Close": use lower-case letters`},
		"no name":            {func(h *Handlers) { Handle(h, tocsin.BizType[string]{}, good) }, `no biz type is named ""`},
		"nil Handlers":       {func(*Handlers) { Handle(nil, biz, good) }, `biz type "order.close" is handled by nil Handlers`},
	} {
		func() {
			defer func() {
				if said := fmt.Sprint(recover()); !strings.HasPrefix(said, "node: ") || !strings.Contains(said, c.want) {
					t.Errorf("%s: panicked with %s, want %s", name, said, c.want)
				}
			}()
			c.register(&Handlers{})
		}()
	}
}

func TestConfigsThatNoNodeCanRunWithAreRefused(t *testing.T) {
	t.Parallel()
	g65, n41 := strings.Repeat("g", 65), strings.Repeat("n", 41)
	for want, change := range map[string]func(*Config){
		"": func(c *Config) { c.Group, c.Name, c.LeaseTTL, c.Weight = g65[:64], n41[:40], 2*time.Second, 1000 },
		"5 bytes of payloads: use at least 1048576":                        func(c *Config) { c.PayloadBytes = 5 },
		"lease TTL 1s: use at least 2s":                                    func(c *Config) { c.LeaseTTL = time.Second },
		"lease TTL -1s: use at least 2s":                                   func(c *Config) { c.LeaseTTL = -time.Second },
		"weight -1, queue capacity 0":                                      func(c *Config) { c.Weight = -1 },
		"weight 1001: use at most 1000":                                    func(c *Config) { c.Weight = 1001 },
		"weight 0, queue capacity -1":                                      func(c *Config) { c.QueueCap = -1 },
		"drain time-out -1s":                                               func(c *Config) { c.DrainTimeout = -time.Second },
		"scan interval -1s":                                                func(c *Config) { c.ScanInterval = -time.Second },
		"grace of sweeps -1s: use 1s to 24h0m0s, in whole milliseconds":    func(c *Config) { c.SweepGrace = -time.Second },
		"grace of sweeps 60ns: use 1s to 24h0m0s, in whole milliseconds":   func(c *Config) { c.SweepGrace = 60 },
		`secrets directory "secrets": want an absolute path`:               func(c *Config) { c.SecretsDir = "secrets" },
		`node name "a b": use letters`:                                     func(c *Config) { c.Name = "a b" },
		`node name "` + n41:                                                func(c *Config) { c.Name = n41 },
		`node name ".n": use letters`:                                      func(c *Config) { c.Name = ".n" },
		`group "a/b": use letters`:                                         func(c *Config) { c.Group = "a/b" },
		`group "` + g65 + `": use `:                                        func(c *Config) { c.Group = g65 },
		"no etcd endpoints: set Etcd.Endpoints, or Ownership: node.ByRows": func(c *Config) { c.Etcd = EtcdConfig{} },
		"set Etcd.Endpoints, or Ownership: node.ByRows":                    func(c *Config) { c.Ownership, c.Etcd = ByEtcd, EtcdConfig{} },
	} {
		cfg := named("orders", "test")
		cfg.Ownership, cfg.Etcd.Endpoints = "", []string{"127.0.0.1:1"}
		change(&cfg)
		_, err := New(cfg, nil)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	cfg := named("orders", "test") // it needs no etcd
	var h Handlers
	Handle(&h, tocsin.Define[string]("order.ship", tocsin.Policy{Attempts: -1}), func(context.Context, *tocsin.Task[string]) error { return nil })
	if _, err := New(cfg, &h); err == nil || err.Error() != "biz type order.ship: -1 attempts: use 1 to 1000" {
		t.Error(err)
	}
	n, err := New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Ownership = ByEtcd
	s, err := NewSweeper(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	var none context.Context
	_, swept := s.Sweep(none)
	_, dry := s.DryRun(none)
	for name, err := range map[string]error{"Run": n.Run(none), "Sweep": swept, "DryRun": dry, "the sweeper's Run": s.Run(none, "@every 1m")} {
		if err == nil || err.Error() != "node: the context is nil" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
