package assign

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// Databases of two clusters that have the same id.
var (
	production = Identity{"prod", "toc_0 to toc_7 on db0, db1"}
	staging    = Identity{"stage", "stage_0 on local"}
	unknown    = Identity{"", "toc_0 on db9"} // databases that were made before there were identities
)

// on gives a node the databases to work on.
func on(i Identity) func(*Config) {
	return func(c *Config) { c.Identity = func() Identity { return i } }
}

// refused expects a node to end at once with an error of one line that contains each part.
func (c *crowd) refused(i Identity, parts ...string) {
	c.t.Helper()
	d := c.join(on(i))
	select {
	case err := <-d.done:
		if !errors.Is(err, ErrForeign) || strings.Contains(err.Error(), "\n") {
			c.t.Fatalf("ended with %v", err)
		}
		for _, part := range parts {
			if !strings.Contains(err.Error(), part) {
				c.t.Errorf("got  %v\nwant %s", err, part)
			}
		}
		c.update(func() {
			if d.takes > 0 {
				c.t.Errorf("it took tables: %s", c.cluster)
			}
		})
	case <-time.After(patience):
		c.t.Fatalf("a node with %s is not refused: %s", i, c)
	}
}

func TestANodeOfOtherDatabasesIsRefused(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	a, b := c.join(on(production)), c.join(on(production))
	c.awaitCounts(map[*desk]int{a: 16, b: 16})
	c.update(func() { a.drops, b.drops = 0, 0 })
	c.refused(staging, `"`+c.cluster+`" is that of toc_0 to toc_7 on db0, db1 (identity prod), as node`,
		"this config has stage_0 on local (identity stage): give one of the two clusters another id, or run `tocsin cluster adopt`")
	c.refused(unknown, "(identity prod)", "those of this config, toc_0 on db9, have no identity: run `tocsin ddl apply`")
	c.awaitCounts(map[*desk]int{a: 16, b: 16})
	c.update(func() {
		if a.drops+b.drops > 0 {
			t.Errorf("%d and %d tables were given up", a.drops, b.drops)
		}
	})
	if n := c.keys(); n != 34 {
		t.Errorf("%d keys", n)
	}
}

// A node that a supervisor starts again and again does not get in while those of the cluster are stopped.
func TestTheIdentityOutlivesTheNodes(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	a := c.join(on(production))
	c.awaitCounts(map[*desk]int{a: 32})
	_, err := c.registry().Adopt(t.Context(), staging, "test")
	if !errors.Is(err, ErrIdentityInUse) || !strings.Contains(err.Error(), a.ID()) || !strings.Contains(err.Error(), "toc_0 to toc_7") {
		t.Errorf("adopted beside a live node: %v", err)
	}
	a.leave()
	c.refused(staging, "identity prod")
	before, err := c.registry().Adopt(t.Context(), staging, "test")
	if err != nil || before.Identity != production || !strings.HasPrefix(before.Node, "node") {
		t.Errorf("adopted after %+v, %v", before, err)
	}
	d := c.join(on(staging))
	c.awaitCounts(map[*desk]int{d: 32})
	c.refused(production, "identity stage", "as test wrote on")
	if bound, err := c.registry().Binding(t.Context()); err != nil || bound.Identity != staging || bound.Node != "test" {
		t.Errorf("bound to %+v, %v", bound, err)
	}
}

func TestOfNodesOfTwoClustersAtOnceOneClusterGetsIn(t *testing.T) {
	t.Parallel()
	for range 8 {
		c := newCrowd(t)
		nodes := []*desk{c.node(on(production)), c.node(on(staging)), c.node(on(production)), c.node(on(staging))}
		for _, d := range nodes {
			c.start(d)
		}
		c.await("one cluster's nodes have all", func() bool {
			return len(nodes[0].held)+len(nodes[2].held) == 32 || len(nodes[1].held)+len(nodes[3].held) == 32
		})
		bound, err := c.registry().Binding(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i, d := range nodes {
			if of := []Identity{production, staging}[i%2]; of != bound.Identity {
				if err := <-d.done; !errors.Is(err, ErrForeign) || d.takes > 0 {
					t.Errorf("node %d of %s where %s got in: %v, it took tables %d times", i, of, bound, err, d.takes)
				}
			}
		}
	}
}

func TestWithoutItsKeyTheLiveNodesKeepAForeignerOut(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	a := c.join(on(production))
	c.awaitCounts(map[*desk]int{a: 32})
	for name, value := range map[string]string{"deleted": "", "overwritten": "x"} {
		if _, err := c.client.Delete(t.Context(), identityKey(c.cluster)); err != nil {
			t.Fatal(err)
		}
		if value != "" {
			if _, err := c.client.Put(t.Context(), identityKey(c.cluster), value); err != nil {
				t.Fatal(err)
			}
		}
		c.refused(staging, "is that of toc_0 to toc_7 on db0, db1 (identity prod), as "+a.ID())
		if bound, err := c.registry().Binding(t.Context()); err != nil || bound.ID != "" {
			t.Errorf("%s: bound to %+v, %v", name, bound, err)
		}
	}
	b := c.join(on(production))
	c.awaitCounts(map[*desk]int{a: 16, b: 16})
	if bound, err := c.registry().Binding(t.Context()); err != nil || bound.Identity != production || bound.Node != b.ID() {
		t.Errorf("bound to %+v, %v", bound, err)
	}
}

func TestNodesWithoutAnIdentityShareAsBefore(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	var given atomic.Bool
	later := func(c *Config) {
		c.Identity = func() Identity {
			if given.Load() {
				return production
			}
			return Identity{"", production.Databases}
		}
	}
	a, b := c.join(short, later), c.join(short, later)
	c.awaitCounts(map[*desk]int{a: 16, b: 16})
	if bound, err := c.registry().Binding(t.Context()); err != nil || bound != (Binding{}) {
		t.Errorf("bound to %+v, %v", bound, err)
	}
	given.Store(true) // `tocsin ddl apply`
	c.awaitKey(identityKey(c.cluster), func(value []byte, lease int64) bool {
		return strings.Contains(string(value), `"identity":"prod"`) && lease == 0
	})
	poll(t, "both tell it", func() bool {
		nodes, err := c.registry().Nodes(t.Context(), "g")
		return err == nil && len(nodes) == 2 && nodes[0].Identity == production && nodes[1].Identity == production
	})
	c.refused(staging, "identity prod")
	c.update(func() {
		if a.drops+b.drops > 16 || len(a.held)+len(b.held) != 32 {
			t.Errorf("tables have moved: %d and %d were given up", a.drops, b.drops)
		}
	})
}

// Older programs don't check the identity, and the key can be removed by hand: then both sides log it.
func TestARunningNodeSaysThatAForeignerIsThere(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	var log devtest.Log
	d := c.join(short, on(production), loggingTo(&log))
	c.awaitCounts(map[*desk]int{d: 32})
	lease, err := c.client.Grant(t.Context(), 3600)
	if err != nil {
		t.Fatal(err)
	}
	ghost := spaceOf(c.cluster, "g").node("ghost-aaaaaaaa")
	if _, err := c.client.Put(t.Context(), ghost, encode(nodeRecord{Identity: staging}), clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	line := log.Await(t, "a node of another cluster with the same id shares the tables: stop it, and give one of the two clusters another id")
	if line["level"] != "error" || line["foreign_node"] != "ghost-aaaaaaaa" || line["foreign_databases"] != staging.String() || line["own_databases"] != production.String() {
		t.Errorf("logged %v", line)
	}
	poll(t, "it is counted", func() bool { return d.foreign.Load() == 1 })
	if _, err := c.client.Revoke(t.Context(), lease.ID); err != nil {
		t.Fatal(err)
	}
	poll(t, "it is gone", func() bool { return d.foreign.Load() == 0 })
	if n := len(log.Lines(line["message"].(string))); n != 1 {
		t.Errorf("said %d times", n)
	}
}

// All keys are gone, and a foreign node registers first: the earlier nodes go on in claim mode and log why, until the
// cluster is adopted back.
func TestARunningNodeThatIsRefusedGoesOnInClaimMode(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	var log devtest.Log
	w := devtest.NewRelay(t, devtest.Etcd(t))
	d := c.join(short, on(production), loggingTo(&log), func(cfg *Config) { cfg.Client = dial(t, w.Addr) })
	c.awaitCounts(map[*desk]int{d: 32})
	w.Cut()
	c.await("the lease to run out", func() bool { return c.keys() == 0 && d.acting() == 0 })
	if _, err := c.registry().Adopt(t.Context(), staging, "test"); err != nil {
		t.Fatal(err)
	}
	w.Mend(t)
	line := log.Await(t, "the databases of this node are not those that etcd knows the cluster by: going on without etcd")
	if reason, _ := line["error"].(string); line["level"] != "error" || !strings.Contains(reason, "is that of stage_0 on local (identity stage)") {
		t.Errorf("logged %v", line)
	}
	c.update(func() {
		if len(d.held) != 32 || d.acting() != 0 || d.drops > 0 {
			t.Errorf("it has %d tables, acts on %d, has dropped %d", len(d.held), d.acting(), d.drops)
		}
	})
	if _, err := c.registry().Adopt(t.Context(), production, "test"); err != nil {
		t.Fatal(err)
	}
	c.await("as before", func() bool { return d.acting() == 32 && len(d.held) == 32 })
}

func TestAnIdentityNamesDatabasesAndServers(t *testing.T) {
	t.Parallel()
	one := tocsin.Config{Layout: tocsin.Layout{Databases: 1, Tables: 1}, Servers: []tocsin.Server{{Name: "db0", DSN: "a@tcp(h:1)/"}}}
	two := tocsin.Config{Layout: tocsin.Layout{Databases: 2, Tables: 1, Prefix: "x"}, Servers: []tocsin.Server{
		{Name: "db0", DSN: "a:secret@tcp(h:1)/", Databases: []int{0}}, {DSN: "a:secret@tcp(h:2)/", Databases: []int{1}},
	}}
	for want, i := range map[string]Identity{
		"toc_0 on db0 (identity none)":            NewIdentity("", one),
		"x_0 to x_1 on db0, a@h:2 (identity abc)": NewIdentity("abc", two),
		"unnamed databases (identity none)":       {},
	} {
		if got := i.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
