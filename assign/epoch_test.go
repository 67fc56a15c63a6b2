package assign

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/store"
)

// crowdRows are the owner rows of a crowd. Its check fails the test if a row's revision does not grow, or if a node
// takes a table that another node may still act on.
type crowdRows struct{ *crowd }

func (c crowdRows) Read(context.Context) (store.OwnerRevisions, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return store.OwnerRevisions{Taken: slices.Max(append(slices.Collect(maps.Values(c.last)), 0)), Reserved: c.mark}, nil
}

func (c crowdRows) Reserve(_ context.Context, revision int64) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	higher := revision > c.mark
	c.mark = max(c.mark, revision)
	return higher, nil
}

// knowing gives a node the owner rows of the crowd.
func (c *crowd) knowing(cfg *Config) { cfg.OwnerRows = crowdRows{c} }

// mortal is one test's own etcd, which can be wiped.
type mortal struct {
	*devserver.Etcd
	t   *testing.T
	cfg devserver.EtcdConfig
}

func startMortal(t *testing.T) *mortal {
	t.Helper()
	m := &mortal{t: t, cfg: devserver.EtcdConfig{Dir: t.TempDir(), PeerPort: devserver.FreePort()}}
	m.Etcd = startEtcd(t, &m.cfg)
	return m
}

// wipe replaces the etcd by an empty one at the same addresses.
func (m *mortal) wipe() {
	m.t.Helper()
	if err := m.Stop(); err != nil {
		m.t.Fatal(err)
	}
	m.cfg.Dir = m.t.TempDir()
	m.Etcd = startEtcd(m.t, &m.cfg)
}

// epoch reads the group's epoch, and etcd's cluster id.
func (c *crowd) epoch() (epoch int64, etcd uint64) {
	c.t.Helper()
	resp, err := c.client.Get(c.t.Context(), spaceOf(c.cluster, "g").epoch())
	if err != nil {
		c.t.Fatal(err)
	}
	if len(resp.Kvs) > 0 {
		epoch = readEpoch(resp.Kvs[0]).epoch
	}
	return epoch, resp.Header.ClusterId
}

func TestAfterEtcdWasWipedOwnerRowsStillGrow(t *testing.T) {
	t.Parallel()
	etcd := startMortal(t)
	c := newCrowdOn(t, etcd.Endpoint())
	a, b := c.join(short, c.knowing), c.join(short, c.knowing)
	c.awaitCounts(map[*desk]int{a: 16, b: 16})
	before, id := c.epoch()
	if before != 1 {
		t.Errorf("epoch %d before etcd was wiped", before)
	}
	for range 2 {
		etcd.wipe()
		c.await("all tables again", func() bool {
			for _, revision := range c.last {
				if revision>>revisionBits <= before {
					return false
				}
			}
			return a.acting()+b.acting() == 32
		})
		now, sameID := c.epoch()
		if now <= before || sameID != id {
			t.Errorf("epoch %d, was %d; the cluster id was %x and is %x", now, before, id, sameID)
		}
		before = now
	}
}

// A node that a new etcd does not know trusts its lease for a while, which is longer than that of the others, and then goes on in
// claim mode.
func TestUnderANewEtcdNobodyTakesWhatANodeOfThePastMayActOn(t *testing.T) {
	t.Parallel()
	c := newCrowd(t) // on the new one, which runs already
	w := devtest.NewRelay(t, startMortal(t).Endpoint())
	past := c.join(c.knowing, func(cfg *Config) { cfg.TTL, cfg.Client = 30*time.Second, dial(t, w.Addr) })
	c.awaitCounts(map[*desk]int{past: 32})
	w.Cut()
	c.update(func() {
		if past.acting() == 0 {
			t.Error("the old lease is not trusted any more")
		}
	})
	first := c.join(short, c.knowing)
	poll(t, "the first has registered", func() bool { epoch, _ := c.epoch(); return epoch > 1 })
	second := c.join(short, c.knowing) // finds the epoch in etcd
	c.await("both have them", func() bool { return first.acting() == 16 && second.acting() == 16 })
	w.LeadTo(t, c.etcd)
	c.await("all share them", func() bool {
		return past.acting() >= 10 && past.acting()+first.acting()+second.acting() == 32 && len(past.held)+len(first.held)+len(second.held) == 32
	})
}

// blind are owner rows on servers that are away, or were when they were read.
type blind struct {
	crowdRows
	away  atomic.Bool
	tries atomic.Int32
}

func (b *blind) Read(context.Context) (store.OwnerRevisions, error) {
	b.tries.Add(1)
	if b.away.Load() {
		return store.OwnerRevisions{}, errRows
	}
	return store.OwnerRevisions{}, nil
}

var errRows = errors.New("overtaken")

// Rows that could not be read at first, say of a server that was away, show that etcd has forgotten when their tables
// are taken.
func TestOwnerRowsAheadOfEtcdAreSeenWhenTablesAreTaken(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	ahead := make(map[int]int64)
	for table := range 8 {
		ahead[table] = ownerRevision(int64(table%2), 1<<30+int64(table))
	}
	d := c.node(short, func(cfg *Config) { cfg.OwnerRows = &blind{crowdRows: crowdRows{c}} })
	d.failTake = func(revisions map[int]int64) error {
		late := slices.DeleteFunc(sortedKeys(revisions), func(table int) bool { return revisions[table] > ahead[table] })
		if len(late) == 0 {
			return nil
		}
		worst := slices.MaxFunc(late, func(a, b int) int { return cmp.Compare(ahead[a], ahead[b]) })
		return &Refused{Tables: late, Err: fmt.Errorf("write: %w", &Overtaken{Table: worst, Revision: ahead[worst], Err: errRows})}
	}
	c.start(d)
	c.awaitCounts(map[*desk]int{d: 32})
	for table := 1; table < 8; table += 2 {
		if epoch := c.last[spaceOf(c.cluster, "g").table(table)] >> revisionBits; epoch < 2 {
			t.Errorf("table %d: epoch %d", table, epoch)
		}
	}
}

// A holder finds that rows are ahead of tables that it has already when it takes these up again.
func TestTablesThatAreRefusedLaterAreTakenAnewUnderAHigherEpoch(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	d := c.join(short, c.knowing)
	c.awaitCounts(map[*desk]int{d: 32})
	last := func(table int) int64 { return c.last[spaceOf(c.cluster, "g").table(table)] }
	for _, dropped := range []int{2, 4} {
		var before int64
		c.update(func() { before = last(4) })
		late := &Overtaken{Table: 3, Revision: ownerRevision(1, 1<<30), Err: errRows}
		d.Refuse(&Refused{Tables: []int{3, 4, 40}, Err: fmt.Errorf("write: %w", late)})
		c.await("the tables have been taken again", func() bool { return last(3) > before && last(4) > before && d.acting() == 32 })
		epoch, _ := c.epoch()
		c.update(func() {
			if epoch != 2 || last(3)>>revisionBits != 2 || d.drops != dropped {
				t.Errorf("epoch %d, table 3 is taken under %d; %d tables were dropped, want %d", epoch, last(3)>>revisionBits, d.drops, dropped)
			}
		})
	}
}

// The row of a later owner does not prove that etcd has forgotten: the late node's own key is gone, or about to go.
func TestALateOwnerBeginsNoEpoch(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	d := c.join(short, c.knowing)
	c.awaitCounts(map[*desk]int{d: 32})
	s := newSession(d.Assign, &lease{id: 77}, false) // owns none of these keys
	late := &Refused{Tables: []int{3}, Err: &Overtaken{Table: 3, Revision: 1 << 50, Err: errRows}}
	if err := s.suspect(t.Context(), map[int]int64{3: 5}, late); err != nil {
		t.Error(err)
	}
	if epoch, _ := c.epoch(); epoch != 1 {
		t.Errorf("epoch %d", epoch)
	}
}

// tardy are owner rows on several servers. One of these hangs, so a reservation takes longer than the lease lasts.
type tardy struct {
	crowdRows
	until func() bool
}

func (r tardy) Reserve(ctx context.Context, revision int64) (bool, error) {
	for !r.until() && ctx.Err() == nil {
		_ = loop.Wait(ctx, 5*time.Millisecond)
	}
	return r.crowdRows.Reserve(ctx, revision)
}

func TestARegistrationMayTakeLongerThanALease(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	var d *desk
	renewed := func() bool { return valueOf(t, d.metrics.renewals) >= 4 }
	d = c.node(short, func(cfg *Config) { cfg.OwnerRows = tardy{crowdRows{c}, renewed} })
	id := d.ID()
	c.start(d)
	c.awaitCounts(map[*desk]int{d: 32})
	if d.ID() != id {
		t.Error("it registered with its second lease only")
	}
}

func TestANodeThatReadsNoOwnerRowDoesNotRegister(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	l := &blind{crowdRows: crowdRows{c}}
	l.away.Store(true)
	d := c.join(short, func(cfg *Config) { cfg.OwnerRows = l })
	poll(t, "it has tried", func() bool { return l.tries.Load() > 3 })
	if n := c.keys(); n != 0 {
		t.Errorf("%d keys", n)
	}
	l.away.Store(false)
	c.awaitCounts(map[*desk]int{d: 32})
}
