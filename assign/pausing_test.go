package assign

import (
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// ghost registers a node by hand that does nothing, like a frozen process.
func (c *crowd) ghost(id string, r nodeRecord) {
	c.t.Helper()
	lease, err := c.client.Grant(c.t.Context(), 3600)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _, _ = c.client.Revoke(c.t.Context(), lease.ID) })
	if _, err := c.client.Put(c.t.Context(), spaceOf(c.cluster, "g").node(id), encode(r), clientv3.WithLease(lease.ID)); err != nil {
		c.t.Fatal(err)
	}
}

// revoke ends a node's lease, as etcd does when a node is frozen for longer than a TTL.
func (c *crowd) revoke(d *desk) {
	c.t.Helper()
	key, err := c.client.Get(c.t.Context(), spaceOf(c.cluster, "g").node(d.ID()))
	if err != nil || len(key.Kvs) != 1 {
		c.t.Fatal(key, err)
	}
	if _, err := c.client.Revoke(c.t.Context(), clientv3.LeaseID(key.Kvs[0].Lease)); err != nil {
		c.t.Fatal(err)
	}
}

// One node is back after its lease ended, and pauses; another leaves, or drains. The free tables do not wait for the pausing node.
func TestFreeTablesDoNotWaitForANodeThatPauses(t *testing.T) {
	t.Parallel()
	for name, give := range map[string]func(*crowd, *desk){
		"of a node that leaves": func(_ *crowd, d *desk) { d.leave() },
		"of a node that drains": (*crowd).drain,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCrowd(t)
			a, b := c.join(), c.join()
			c.awaitCounts(map[*desk]int{a: 16, b: 16})
			c.ghost("back-aaaaaaaa", nodeRecord{Weight: 1, Newcomer: true, Pausing: true})
			give(c, b)
			c.awaitCounts(map[*desk]int{a: 32, b: 0})
			if n := a.Wanted(); n != 32 {
				t.Errorf("it wants %d of the 32 tables that it keeps for now", n)
			}
		})
	}
}

func slow(c *Config) { c.TTL = 2 * patience } // a wait for a whole TTL fails the test

// Others have gone on, so only this node was cut off: it pauses for a second.
func TestANodeThatWasAwayAloneIsBackSoon(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	a, b := c.join(slow), c.join(slow)
	c.awaitCounts(map[*desk]int{a: 16, b: 16})
	id := a.ID()
	c.revoke(a)
	c.await("it has half again", func() bool { return a.ID() != id && a.acting() == 16 && b.acting() == 16 })
	b.leave()
	c.await("it has all", func() bool { return a.acting() == 32 })
}

// The only other node leaves while this one pauses.
func TestANodeThatIsBackTakesTheTablesOfTheLastOther(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	a, b := c.join(slow), c.join(slow)
	c.awaitCounts(map[*desk]int{a: 16, b: 16})
	id := a.ID()
	c.revoke(a)
	poll(t, "it is back", func() bool {
		nodes, err := c.registry().Nodes(t.Context(), "g")
		return err == nil && len(nodes) == 2 && nodes[0].ID != id && nodes[1].ID != id
	})
	b.leave()
	c.await("it has all", func() bool { return a.acting() == 32 })
}

// All nodes lost their leases: each is a new incarnation that takes its own tables again at once and acts on them, although all
// pause for a TTL. So it does with tables whose keys an operator deletes meanwhile.
func TestANodeActsOnItsOwnTablesWhileItPauses(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	a := c.join(slow)
	c.awaitCounts(map[*desk]int{a: 32})
	id := a.ID()
	c.revoke(a)
	c.await("it acts on its tables again", func() bool { return a.ID() != id && a.acting() == 32 })
	v, err := readView(t.Context(), c.client, spaceOf(c.cluster, "g"), 32)
	if err != nil || !v.nodes[a.ID()].record.Pausing || !v.nodes[a.ID()].record.Newcomer {
		t.Errorf("it does not say that it pauses: %+v, %v", v.nodes, err)
	}
	if a.drops > 0 || !slices.Equal(a.loosened, []string{id}) {
		t.Errorf("dropped %d, loosened %v", a.drops, a.loosened)
	}
	c.deleteKeys(8)
	for table := range 8 {
		c.awaitKey(spaceOf(c.cluster, "g").table(table), func(_ []byte, lease int64) bool { return lease != 0 })
	}
	c.awaitTaken(32, a)
}

// deleteKeys deletes the keys of the first tables.
func (c *crowd) deleteKeys(tables int) {
	c.t.Helper()
	for table := range tables {
		if _, err := c.client.Delete(c.t.Context(), spaceOf(c.cluster, "g").table(table)); err != nil {
			c.t.Fatal(err)
		}
	}
}

// A key goes during the pause after a lease that outlived the outage, round by round.
func TestANodeWhoseLeaseWasRenewedLateTakesItsTableAgain(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	s, d := newIdleSession(t, c)
	round := func() {
		t.Helper()
		look(t, s)
		if _, err := s.hear(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.round(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.hands.work.Wait()
	}
	for range 4 {
		round()
	}
	c.awaitCounts(map[*desk]int{d: 32})
	s.outage.end(true)
	round()
	if v := look(t, s); !v.nodes[s.id].record.Pausing || !v.nodes[s.id].record.Newcomer {
		t.Errorf("it does not say that it pauses: %+v", v.nodes[s.id].record)
	}
	c.deleteKeys(8)
	for range 4 { // drops its tables, takes the keys, starts, and then has nothing left to do
		round()
	}
	c.awaitTaken(32, d)
	if v := look(t, s); !v.nodes[s.id].record.Pausing {
		t.Error("it does not pause any more")
	}
}

// If another node has gone on, the pause ends after a second. A node that has only just noticed the end of the
// outage does not count.
func TestALateRenewalAloneIsAShortPause(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	s, _ := newIdleSession(t, c)
	ttl := s.lease.lasts
	c.ghost("other-aaaaaaaa", nodeRecord{Weight: 1})
	v := look(t, s) // once: the second passes while keys are read
	wantPause := func(what string, want time.Duration) {
		t.Helper()
		if got := s.afterOutage(v).Sub(s.outage.over); got != want {
			t.Errorf("%s: pauses until %s after the outage, want %s", what, got, want)
		}
	}
	s.outage.end(true)
	wantPause("at once", ttl)
	s.outage.over = s.outage.over.Add(-returnPause)
	wantPause("after a second", returnPause)
	s.outage.end(true)
	wantPause("the next outage", ttl)
	s.outage.end(false)
	wantPause("the lease was lost", returnPause)
}
