package assign

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

func short(c *Config) { c.TTL = 2 * time.Second }

func TestOneNodeTakesAllAndLeavesNothing(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	d := c.join(func(c *Config) { c.Tables = 333 }) // several transactions
	c.awaitCounts(map[*desk]int{d: 333})
	if !d.LeaseOK() || d.Wanted() != 333 {
		t.Errorf("lease %v, wanted %d", d.LeaseOK(), d.Wanted())
	}
	if n := c.keys(); n != 334 {
		t.Errorf("%d keys", n)
	}
	d.leave()
	if n := c.keys(); n != 0 || len(d.held) != 0 || d.Owned() != 0 || d.LeaseOK() {
		t.Errorf("left with %d keys, %d held, %d owned, lease %v", n, len(d.held), d.Owned(), d.LeaseOK())
	}
}

func TestNodesComeAndGo(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	a := c.join()
	c.awaitCounts(map[*desk]int{a: 32})
	b := c.join()
	c.awaitCounts(map[*desk]int{a: 16, b: 16})
	before := c.keys()
	dry, err := c.registry().Try(t.Context(), "g", Change{Add: 1, Weight: 2, Remove: []string{a.ID()}})
	if err != nil || dry.Moves != 21 || dry.Least != 21 || len(dry.Shares) != 3 || c.keys() != before || a.Owned() != 16 {
		t.Errorf("a dry run: %+v, %v; %d keys, then %d; a owns %d", dry, err, before, c.keys(), a.Owned())
	}
	for _, s := range dry.Shares {
		if want := map[string]int{a.ID(): 0, b.ID(): 11, "new-1": 21}[s.ID]; s.Gets != want { // as it happens below
			t.Errorf("%s gets %d, want %d", s.ID, s.Gets, want)
		}
	}
	heavy := c.join(func(c *Config) { c.Weight = 2 })
	c.awaitCounts(map[*desk]int{a: 8, b: 8, heavy: 16})
	poll(t, "a counts three nodes", func() bool { return a.Peers() == 3 })
	a.leave()
	c.awaitCounts(map[*desk]int{a: 0, b: 11, heavy: 21})
	heavy.leave()
	c.awaitCounts(map[*desk]int{b: 32})
	poll(t, "b is alone", func() bool { return b.Peers() == 1 })
}

func TestAnOutageOfEtcdMovesNoTable(t *testing.T) {
	t.Parallel()
	cfg := devserver.EtcdConfig{Dir: t.TempDir()}
	etcd := startEtcd(t, &cfg)
	c := newCrowdOn(t, etcd.Endpoint())
	a, b, idle := c.join(short), c.join(short), c.join(short)
	c.await("balance", func() bool {
		return a.acting()+b.acting()+idle.acting() == 32 && min(a.acting(), b.acting(), idle.acting()) >= 10
	})
	was := []map[int]string{maps.Clone(a.held), maps.Clone(b.held), maps.Clone(idle.held)}
	c.update(func() { a.drops, b.drops, idle.drops = 0, 0, 0 }) // those of the balancing
	if err := etcd.Stop(); err != nil {
		t.Fatal(err)
	}
	c.await("claim mode", func() bool { return a.acting()+b.acting()+idle.acting() == 0 })
	startEtcd(t, &cfg)
	c.await("all back", func() bool { return a.acting()+b.acting()+idle.acting() == 32 })
	for i, d := range []*desk{a, b, idle} {
		if d.drops != 0 || !slices.Equal(sortedKeys(d.held), sortedKeys(was[i])) {
			t.Errorf("node %d had %v, has %v, dropped %d", i, sortedKeys(was[i]), sortedKeys(d.held), d.drops)
		}
	}
}

// startEtcd starts one that is stopped with the test, on the port of the time before if there was one.
func startEtcd(t *testing.T, cfg *devserver.EtcdConfig) *devserver.Etcd {
	t.Helper()
	e, err := devserver.StartEtcd(t.Context(), *cfg)
	if err != nil {
		t.Fatal(err)
	}
	port := e.Endpoint()[strings.LastIndex(e.Endpoint(), ":")+1:]
	if cfg.ClientPort, err = strconv.Atoi(port); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Stop() })
	return e
}

func TestANodeThatStopsWithoutEtcdDropsItsTables(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	w := devtest.NewRelay(t, devtest.Etcd(t))
	d := c.join(short, func(c2 *Config) { c2.Client = dial(t, w.Addr) })
	c.awaitCounts(map[*desk]int{d: 32})
	w.Cut()
	c.await("claim mode", func() bool { return d.acting() == 0 })
	d.leave()
	c.awaitCounts(map[*desk]int{d: 0})
}

// A node that is told to stop just after it has lost its lease gives its tables up, which is no failure.
func TestANodeThatStopsAsItsLeaseIsLostDropsItsTables(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	d := c.node(short)
	d.onLoosen = func() { d.cancel() }
	c.start(d)
	c.awaitCounts(map[*desk]int{d: 32})
	c.revoke(d)
	c.awaitCounts(map[*desk]int{d: 0})
	d.leave()
}

func TestWhatTheHolderRefusesIsGivenBackAndTriedAgain(t *testing.T) {
	t.Parallel()
	sick := errors.New("database 1 is down")
	for name, c := range map[string]struct {
		err  func(map[int]int64) error
		have int
	}{
		"some": {func(map[int]int64) error { return &Refused{Tables: []int{3, 4}, Err: sick} }, 30},
		"all":  {func(map[int]int64) error { return sick }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			crowd := newCrowd(t)
			keys := spaceOf(crowd.cluster, "g")
			d := crowd.node()
			d.failTake = c.err
			crowd.start(d)
			crowd.await("a second try", func() bool { return d.takes >= 2 && len(d.held) == c.have })
			crowd.awaitKey(keys.table(3), func(value []byte, _ int64) bool { return value == nil })
			crowd.update(func() { d.failTake = nil })
			crowd.awaitCounts(map[*desk]int{d: 32})
			if d.Owned() > 32 {
				t.Errorf("owned %d", d.Owned())
			}
		})
	}
}

func TestNoKeyIsFreedBeforeTheHolderHasDropped(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	a := c.node()
	a.failDrop = errors.New("still delivering")
	c.start(a)
	c.awaitCounts(map[*desk]int{a: 32})
	b := c.join()
	c.awaitKey(spaceOf(c.cluster, "g").node(b.ID()), func(value []byte, _ int64) bool { return value != nil })
	poll(t, "the newcomer has planned", func() bool { return b.Wanted() == 16 })
	if n := c.keys(); n != 34 || len(b.held) != 0 {
		t.Errorf("%d keys, the newcomer has %d", n, len(b.held))
	}
	c.update(func() { a.failDrop = nil })
	c.awaitCounts(map[*desk]int{a: 16, b: 16})
}

func TestWhileANodeLeavesOthersPlanWithoutIt(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	a := c.node()
	var b *desk
	var nodes []NodeState
	leaving := false
	a.onDrop = func(context.Context, []int) {
		if !leaving {
			return
		}
		poll(t, "the other wants all", func() bool { return b.Wanted() == 32 })
		if nodes, _ = c.registry().Nodes(t.Context(), "g"); !a.LeaseOK() {
			t.Error("the lease is not renewed while it drains")
		}
	}
	c.start(a)
	c.awaitCounts(map[*desk]int{a: 32})
	b = c.join()
	c.awaitCounts(map[*desk]int{a: 16, b: 16})
	c.update(func() { leaving = true })
	id := a.ID()
	a.leave()
	c.awaitCounts(map[*desk]int{b: 32})
	for _, n := range nodes {
		if n.Leaving != (n.ID == id) || n.Tables != 16 {
			t.Errorf("%+v", n)
		}
	}
	if len(nodes) != 2 {
		t.Errorf("%d nodes", len(nodes))
	}
}

func TestLeavingWithoutADropLeavesTheKeysToTheLease(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	d := c.join(func(c *Config) { c.TTL, c.LeaveTimeout = 8*time.Second, time.Second })
	c.awaitCounts(map[*desk]int{d: 32})
	stuck := errors.New("stuck")
	c.update(func() { d.failDrop = stuck })
	d.cancel()
	if err := <-d.done; !errors.Is(err, stuck) {
		t.Errorf("got %v", err)
	}
	if n := c.keys(); n != 33 || d.LeaseOK() {
		t.Errorf("%d keys, lease %v", n, d.LeaseOK())
	}
	next := c.start(c.node(short))
	c.update(func() { d.dead = true })
	c.awaitCounts(map[*desk]int{next: 32})
}

func TestAWatchThatFellBehindACompactionStartsAnew(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	w := devtest.NewRelay(t, devtest.Etcd(t))
	d := c.join(func(c *Config) { c.TTL = 20 * time.Second; c.Client = dial(t, w.Addr) })
	c.awaitCounts(map[*desk]int{d: 32})
	w.Cut()
	resp, err := c.client.Delete(t.Context(), spaceOf(c.cluster, "g").table(7))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.client.Put(t.Context(), "/elsewhere", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := c.client.Compact(t.Context(), resp.Header.Revision+1); err != nil {
		t.Fatal(err)
	}
	w.Mend(t)
	c.await("the key is taken again", func() bool {
		return c.last[spaceOf(c.cluster, "g").table(7)] > resp.Header.Revision && len(d.held) == 32
	})
}
