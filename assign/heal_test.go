package assign

import (
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
	cut := time.Now()
	w.setCut(true)
	c.awaitCounts(map[*desk]int{a: 32})
	if b.MayAct(b.ID()) {
		t.Error("the node cut off acts on tables that another has")
	}
	c.compact()
	mended := time.Now()
	w.setCut(false)
	c.healed(mended, a, b)
	t.Logf("it was cut off for %.1f s", mended.Sub(cut).Seconds())
}

func TestHarmDoneToManyKeysHeals(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(c *crowd, keys space) error{
		"all tables deleted": func(c *crowd, keys space) error {
			_, err := c.client.Delete(c.t.Context(), keys.tables(), clientv3.WithPrefix())
			return err
		},
		"all keys deleted": func(c *crowd, keys space) error {
			_, err := c.client.Delete(c.t.Context(), string(keys), clientv3.WithPrefix())
			return err
		},
		"all tables overwritten without a lease": func(c *crowd, keys space) error { return c.overwrite(keys, 0) },
		"all tables overwritten under a lease of nobody": func(c *crowd, keys space) error {
			lease, err := c.client.Grant(c.t.Context(), 3600)
			if err != nil {
				return err
			}
			return c.overwrite(keys, lease.ID)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCrowd(t)
			a, b := c.join(short), c.join(short)
			c.awaitCounts(map[*desk]int{a: 16, b: 16})
			taken := a.takes + b.takes
			if err := harm(c, spaceOf(c.cluster, "g")); err != nil {
				t.Fatal(err)
			}
			since := time.Now()
			c.await("the tables are taken anew", func() bool { return a.takes+b.takes > taken })
			c.healed(since, a, b)
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
