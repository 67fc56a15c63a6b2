package assign

import (
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// watch begins to watch the keys of the crowd. The function that it returns gives what has happened to them since then, up
// to now. (A watch that begins later than the change may find it compacted by another test.)
func (c *crowd) watch() (changes func() []*clientv3.Event) {
	c.t.Helper()
	prefix := string(spaceOf(c.cluster, "g"))
	responses := c.client.Watch(c.t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	if r, open := <-responses; !open || !r.Created {
		c.t.Fatalf("no watch: %v", r.Err())
	}
	return func() (all []*clientv3.Event) {
		c.t.Helper()
		last := c.lastChange(prefix)
		for r := range responses {
			all = append(all, r.Events...)
			if len(all) > 0 && all[len(all)-1].Kv.ModRevision >= last {
				return all
			}
		}
		c.t.Fatal("the watch ended")
		return nil
	}
}

// lastChange is the last revision that changed a key which is still there.
func (c *crowd) lastChange(prefix string) int64 {
	c.t.Helper()
	resp, err := c.client.Get(c.t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortDescend), clientv3.WithLimit(1))
	if err != nil || len(resp.Kvs) == 0 {
		c.t.Fatal("no keys", err)
	}
	return resp.Kvs[0].ModRevision
}

func TestNothingIsGivenUpForANodeThatDoesNotTakeItYet(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	a := c.join(slow)
	c.awaitCounts(map[*desk]int{a: 32})
	changes := c.watch()
	b := c.join(slow, func(cfg *Config) { cfg.ReplanDelay = time.Second })
	c.awaitCounts(map[*desk]int{a: 16, b: 16})
	came, tables := false, spaceOf(c.cluster, "g").tables()
	for _, e := range changes() {
		switch key := string(e.Kv.Key); {
		case strings.HasPrefix(key, tables) && !came:
			t.Fatalf("%s of %s before the new node takes it", e.Type, key)
		case !strings.HasPrefix(key, tables):
			came = came || e.IsModify() // its second record
		}
	}
}

func TestANodeThatComesBackQuicklyGetsItsTablesOnly(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	quick := func(cfg *Config) { cfg.TTL = 15 * time.Second }
	a, b := c.join(quick), c.join(quick)
	old := c.join(quick, func(cfg *Config) { cfg.Node = "host" })
	c.await("thirds", func() bool { return min(len(a.held), len(b.held), len(old.held)) >= 10 })
	c.update(func() { a.drops, b.drops = 0, 0 }) // those for the first one
	old.kill()
	next := c.join(quick, func(cfg *Config) { cfg.Node = "host" })
	c.await("thirds again", func() bool { return min(len(a.held), len(b.held), len(next.held)) >= 10 })
	c.update(func() {
		if a.drops+b.drops > 0 {
			t.Errorf("%d and %d tables were given up by those that stayed", a.drops, b.drops)
		}
	})
}

// Two processes have one name: the first answers the second's registration, so the second does not wait for a former
// life to end.
func TestASecondProcessOfAHostGetsItsShareAtOnce(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	same := func(cfg *Config) { cfg.Node = "host" }
	a := c.join(slow, same)
	c.awaitCounts(map[*desk]int{a: 32})
	b := c.join(slow, same)
	c.awaitCounts(map[*desk]int{a: 16, b: 16})
	third := c.join(slow, same)
	c.await("each has a third", func() bool { return min(len(a.held), len(b.held), len(third.held)) >= 10 })
	time.Sleep(100 * time.Millisecond) // several rounds
	nodes, err := c.client.Get(t.Context(), spaceOf(c.cluster, "g").nodes(), clientv3.WithPrefix())
	if err != nil || len(nodes.Kvs) != 3 {
		t.Fatal(nodes, err)
	}
	for _, kv := range nodes.Kvs {
		if kv.Version > 8 { // it registers, comes forward and answers two others
			t.Errorf("%s was written %d times: they go on answering one another", kv.Key, kv.Version)
		}
	}
}
