package assign

import (
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// healed waits until both nodes act on their halves, each table taken at the revision of the key that it has, and logs how
// long that took.
func (c *crowd) healed(since time.Time, a, b *desk) {
	c.t.Helper()
	c.await("each has its half again", func() bool {
		return a.acting() == 16 && b.acting() == 16 && len(a.held) == 16 && len(b.held) == 16
	})
	c.t.Logf("healed %.1f s after the harm, with a TTL of 2 s", time.Since(since).Seconds())
}

// compact makes the revisions so far unreadable.
func (c *crowd) compact() {
	c.t.Helper()
	resp, err := c.client.Put(c.t.Context(), "/elsewhere/"+c.cluster, "")
	if err == nil {
		_, err = c.client.Compact(c.t.Context(), resp.Header.Revision, clientv3.WithCompactPhysical())
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// The node misses the end of its lease, the taking of its tables by another, and every event between, for good.
func TestANodeThatWasCutOffDuringACompactionHeals(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	a, b, w := c.joinWired()
	id, cut := b.ID(), time.Now()
	w.Cut()
	c.awaitCounts(map[*desk]int{a: 32, b: 16}) // check fails if a takes what b may act on
	c.await("claim mode", func() bool { return slices.Equal(b.loosened, []string{id}) && b.acting() == 0 })
	if n := b.Owned(); n != 16 {
		t.Errorf("it says that it has %d tables, want 16", n)
	}
	c.compact()
	mended := time.Now()
	w.Mend(t)
	c.healed(mended, a, b)
	if b.ID() == id {
		t.Error("the same incarnation")
	}
	t.Logf("it was cut off for %.1f s", mended.Sub(cut).Seconds())
}

func TestKeysChangedByHandHeal(t *testing.T) {
	t.Parallel()
	del := func(c *crowd, key string, options ...clientv3.OpOption) error {
		_, err := c.client.Delete(c.t.Context(), key, options...)
		return err
	}
	put := func(c *crowd, key, value string) error {
		_, err := c.client.Put(c.t.Context(), key, value)
		return err
	}
	for name, harm := range map[string]struct {
		anew bool // the tables are taken anew
		do   func(c *crowd, keys space, node string) error
	}{
		"all tables deleted":                     {true, func(c *crowd, keys space, _ string) error { return del(c, keys.tables(), clientv3.WithPrefix()) }},
		"all keys deleted":                       {true, func(c *crowd, keys space, _ string) error { return del(c, string(keys), clientv3.WithPrefix()) }},
		"all tables overwritten without a lease": {true, func(c *crowd, keys space, _ string) error { return c.overwrite(keys, 0) }},
		"all tables overwritten under a lease of nobody": {true, func(c *crowd, keys space, _ string) error {
			lease, err := c.client.Grant(c.t.Context(), 3600)
			if err != nil {
				return err
			}
			return c.overwrite(keys, lease.ID)
		}},
		"a node deleted":        {false, func(c *crowd, keys space, node string) error { return del(c, keys.node(node)) }},
		"a node overwritten":    {false, func(c *crowd, keys space, node string) error { return put(c, keys.node(node), "x") }},
		"a node that never was": {false, func(c *crowd, keys space, _ string) error { return put(c, keys.node("ghost"), `{"weight":5}`) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCrowd(t)
			keys := spaceOf(c.cluster, "g")
			a, b := c.join(short), c.join(short)
			c.awaitCounts(map[*desk]int{a: 16, b: 16})
			taken := a.takes + b.takes
			if err := harm.do(c, keys, a.ID()); err != nil {
				t.Fatal(err)
			}
			since := time.Now()
			c.await("the tables are taken anew", func() bool { return !harm.anew || a.takes+b.takes > taken })
			c.awaitKey(keys.node(a.ID()), func(_ []byte, lease int64) bool { return lease != 0 })
			c.awaitKey(keys.node("ghost"), func(value []byte, _ int64) bool { return value == nil })
			c.healed(since, a, b)
			c.awaitTaken(32, a, b)
		})
	}
}

// overwrite writes all keys of tables under a lease; 0: none.
func (c *crowd) overwrite(keys space, lease clientv3.LeaseID) error {
	for table := range 32 {
		if _, err := c.client.Put(c.t.Context(), keys.table(table), "x", clientv3.WithLease(lease)); err != nil {
			return err
		}
	}
	return nil
}

func TestARestartUnderTheSameNameWithinTheTTLHeals(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	named := func(c *Config) { c.Node = "host-b" }
	a, b := c.join(short), c.join(short, named)
	c.awaitCounts(map[*desk]int{a: 16, b: 16})
	b.kill()
	since := time.Now()
	again := c.join(short, named)
	c.healed(since, a, again)
}
