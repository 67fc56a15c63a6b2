package assign

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"pgregory.net/rapid"

	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// drawView draws keys of up to five nodes, with arbitrary delivered and lacked types, and of their tables.
func drawView(t *rapid.T) view {
	v := newView("/c/groups/g/", rapid.IntRange(1, 24).Draw(t, "tables"), 1)
	types := []string{"a", "b", "c"}
	for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
		id := fmt.Sprint("n", i)
		r := nodeRecord{Weight: rapid.IntRange(0, 2).Draw(t, "weight"), Leaving: rapid.IntRange(0, 4).Draw(t, "leaving") == 0, Block: 4}
		r.Types, r.Lacks = []string{}, map[string]string{}
		for _, name := range types {
			switch rapid.IntRange(0, 2).Draw(t, name) {
			case 0:
				r.Types = append(r.Types, name)
			case 1:
				r.Lacks[name] = "no handler"
			} // else the node does not know the type yet
		}
		if rapid.IntRange(0, 3).Draw(t, "misses") == 0 {
			r.Misses = []int{rapid.IntRange(0, 5).Draw(t, "block")}
		}
		v.nodes[id] = nodeKey{lease: clientv3.LeaseID(rapid.SampledFrom([]int{i + 1, i + 1, i + 1, 0}).Draw(t, "lease")), record: r}
	}
	for table := range v.tables {
		v.tables[table] = tableKey{lease: clientv3.LeaseID(rapid.IntRange(0, 6).Draw(t, "owner")), created: 1}
	}
	return v
}

// A type that an owner lacks has exactly one stand-in in each of its tables if a node can deliver it there; nothing
// else has one.
func TestWhatAnOwnerLacksHasOneStandIn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawView(t)
		owners, misses := v.owners(), v.misses()
		able := func(id, name string, table int) bool {
			n := v.nodes[id]
			return n.lease != 0 && n.record.Weight > 0 && !n.record.Leaving && slices.Contains(n.record.Types, name) && !misses.missed(id, table)
		}
		type work struct {
			table int
			name  string
		}
		done := make(map[work]string)
		for id, duties := range v.duties(owners) {
			for _, d := range duties {
				for _, table := range d.Tables {
					for _, name := range d.Types {
						w := work{table, name}
						if other, twice := done[w]; twice {
							t.Fatalf("%s and %s stand in for %v", other, id, w)
						}
						if done[w] = id; d.Owner != owners[table] || d.Owner == id || !able(id, name, table) {
							t.Fatalf("%s stands in for %s, with %v", id, d.Owner, w)
						}
					}
				}
			}
		}
		for table, owner := range owners {
			for name := range v.nodes[owner].record.Lacks {
				some := slices.ContainsFunc(slices.Collect(maps.Keys(v.nodes)), func(id string) bool { return able(id, name, table) })
				if _, has := done[work{table, name}]; has != (some && owner != "") {
					t.Fatalf("table %d of %q, type %s: a stand-in %t, and one is possible %t", table, owner, name, has, some)
				}
				delete(done, work{table, name})
			}
		}
		if len(done) > 0 {
			t.Fatalf("stand-ins where nobody lacks anything: %v", done)
		}
	})
}

// told collects a node's stand-in duties.
func (c *crowd) told(d *[]Duty) func(*Config) {
	return func(cfg *Config) { cfg.StandIn = func(duties []Duty) { c.update(func() { *d = duties }) } }
}

// tablesOf counts the tables of the duties for an owner with exactly this type.
func tablesOf(duties []Duty, owner, name string) (n int) {
	for _, d := range duties {
		if d.Owner == owner && slices.Equal(d.Types, []string{name}) {
			n += len(d.Tables)
		}
	}
	return n
}

func TestNodesStandInForOneThatLacksATypeUntilItHasIt(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	var ofB, ofC []Duty
	a := c.node(short)
	b, other := c.node(short, c.told(&ofB)), c.node(short, c.told(&ofC))
	a.Tell(Told{Types: []string{"x"}, Lacks: map[string]string{"y": "no secret"}})
	b.Tell(Told{Types: []string{"x", "y"}})
	other.Tell(Told{Types: []string{"x", "y"}})
	for _, d := range []*desk{a, b, other} {
		c.start(d)
	}
	share := func(n int) bool { return n == 10 || n == 11 }
	c.await("both stand in for a, in all of its tables", func() bool {
		return share(len(a.held)) && share(len(b.held)) && share(len(other.held)) &&
			tablesOf(ofB, a.ID(), "y") > 0 && tablesOf(ofC, a.ID(), "y") > 0 &&
			tablesOf(ofB, a.ID(), "y")+tablesOf(ofC, a.ID(), "y") == len(a.held)
	})
	elsewhere := func(d *desk, name string) bool { delivered, known := d.Elsewhere(name); return delivered && known }
	if !elsewhere(a, "y") || elsewhere(a, "z") {
		t.Error("a does not know what the others deliver")
	}
	other.leave()
	c.await("b alone stands in for a", func() bool {
		return len(ofC) == 0 && len(a.held) == 16 && tablesOf(ofB, a.ID(), "y") == 16
	})
	a.Tell(Told{Types: []string{"x", "y"}})
	c.await("nobody stands in for a", func() bool { return len(ofB) == 0 })
	b.Tell(Told{Types: []string{"x"}, Lacks: map[string]string{"y": "no secret"}})
	c.await("b lacks it, and has no duty", func() bool { return !elsewhere(a, "y") && len(ofB) == 0 })
	a.leave()
	c.await("b has all tables", func() bool { return len(b.held) == 32 })
	if len(ofB) > 0 {
		t.Errorf("b stands in for %v", ofB)
	}
}

func TestANodeThatLosesItsLeaseStandsInForNobody(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	w := devtest.NewRelay(t, c.etcd)
	var duties []Duty
	a := c.node(short)
	b := c.node(short, c.told(&duties), func(cfg *Config) { cfg.Client = dial(t, w.Addr) })
	a.Tell(Told{Types: []string{}, Lacks: map[string]string{"y": "no secret"}})
	b.Tell(Told{Types: []string{"y"}})
	c.start(a)
	c.start(b)
	c.await("b stands in for a", func() bool { return len(a.held) == 16 && tablesOf(duties, a.ID(), "y") == 16 })
	w.Cut()
	c.await("a has all tables", func() bool { return len(a.held) == 32 })
	w.Mend(t)
	c.await("b, as a new incarnation, stands in for a again", func() bool {
		return len(b.held) == 16 && len(a.held) == 16 && tablesOf(duties, a.ID(), "y") == 16
	})
}

func TestNewestPayloadsAreThoseOfNodesThatTakeOnWorkAndReachAllTables(t *testing.T) {
	t.Parallel()
	is := func(weight, version int, change func(*nodeRecord)) nodeKey {
		r := nodeRecord{Weight: weight}
		r.Types, r.Versions = []string{"x"}, map[string]int{"x": version, "y": 9} // y is one that it lacks
		if change != nil {
			change(&r)
		}
		return nodeKey{lease: 1, record: r}
	}
	v := view{drains: map[string]int64{"drained": 1}, nodes: map[string]nodeKey{
		"own":     is(1, 9, nil),
		"one":     is(1, 2, nil),
		"two":     is(1, 3, nil),
		"none":    is(1, 0, nil),
		"idle":    is(0, 8, nil),
		"drained": is(1, 8, nil),
		"leaving": is(1, 8, func(r *nodeRecord) { r.Leaving = true }),
		"cut off": is(1, 8, func(r *nodeRecord) { r.Misses = []int{1} }),
	}}
	if got := v.newest("own"); got["x"] != 3 || got["y"] != 0 {
		t.Errorf("newest %v, want 3 of x and none of y", got)
	}
}

// Workers may ask any node: the others are not told to lack a handler.
func TestTypesOfWorkersThatAskOneNodeAreNoDifference(t *testing.T) {
	t.Parallel()
	asked := NodeInfo{Types: []string{"label.print", "order.close"}}
	unasked := NodeInfo{Types: []string{}, Lacks: map[string]string{"label.print": Unasked, "order.close": "no handler"}}
	for own, other := range map[*NodeInfo]NodeInfo{&asked: unasked, &unasked: asked} {
		lacks, extra := differing(*own, []NodeInfo{other})
		if all := slices.Concat(lacks, extra); !slices.Equal(all, []string{"order.close"}) {
			t.Errorf("lacks %q, has %q more", lacks, extra)
		}
	}
}
