package node

import (
	"context"
	"strings"
	"testing"

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

func TestNamesThatDoNotFitAreRefused(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]Config{
		`node name "a b": use letters`:                  named("g", "a b"),
		`node name "` + strings.Repeat("n", 41):         named("g", strings.Repeat("n", 41)),
		`node name ".n": use letters`:                   named("g", ".n"),
		`group "a/b": use letters`:                      named("a/b", "n"),
		`group "` + strings.Repeat("g", 65) + `": use `: named(strings.Repeat("g", 65), "n"),
	} {
		if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if err := named(strings.Repeat("g", 64), strings.Repeat("n", 40)).Validate(); err != nil {
		t.Error(err)
	}
}
