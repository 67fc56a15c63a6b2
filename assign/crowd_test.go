package assign

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/name"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// patience is how long a test waits for something that should happen.
const patience = 2 * time.Minute

// crowd is the nodes of one test's cluster. It fails the test if two of them have a table at once.
type crowd struct {
	t       *testing.T
	cluster string
	etcd    string           // endpoint
	client  *clientv3.Client // the test's own
	named   atomic.Int32     // nodes so far: each has a host of its own

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each change
	nodes   []*desk
	last    map[string]int64 // key of a table -> highest revision it was taken at
	mark    int64            // highest reserved revision
}

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	return newCrowdOn(t, devtest.Etcd(t))
}

func newCrowdOn(t *testing.T, etcd string) *crowd {
	t.Helper()
	return &crowd{
		t: t, cluster: "test-" + name.NewID("c"), etcd: etcd, client: dial(t, etcd),
		changed: make(chan struct{}), last: make(map[string]int64),
	}
}

// registry is the operator's look at 32 tables.
func (c *crowd) registry() *Registry {
	return &Registry{client: c.client, cluster: c.cluster, tables: 32}
}

func dial(t *testing.T, endpoint string) *clientv3.Client {
	t.Helper()
	client, err := Dial(t.Context(), EtcdConfig{Endpoints: []string{endpoint}, Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// desk is a node's holder, and the node.
type desk struct {
	*Assign
	crowd  *crowd
	cancel context.CancelFunc
	done   chan error

	// Guarded by crowd.mu.
	held     map[int]string // table -> the owner it was taken as
	loosened []string       // owners
	dead     bool           // killed: what it has does not count any more
	failTake func(revisions map[int]int64) error
	failDrop error
	onTake   func(ctx context.Context, tables []int) // called before, without the lock
	onDrop   func(ctx context.Context, tables []int) // the same
	onLoosen func()                                  // the same
	takes    int
	drops    int       // tables that it had and dropped
	firstAt  time.Time // of the last Take that began with nothing held
}

// join starts a node on the shared etcd.
func (c *crowd) join(change ...func(*Config)) *desk {
	c.t.Helper()
	return c.start(c.node(change...))
}

// joinWired joins two nodes, which share the tables; the way of b to etcd can be cut.
func (c *crowd) joinWired() (a, b *desk, w *devtest.Relay) {
	c.t.Helper()
	w = devtest.NewRelay(c.t, c.etcd)
	a = c.join(short)
	b = c.join(short, func(cfg *Config) { cfg.Client = dial(c.t, w.Addr) })
	c.awaitCounts(map[*desk]int{a: 16, b: 16})
	return a, b, w
}

// node makes a node that does not run yet.
func (c *crowd) node(change ...func(*Config)) *desk {
	c.t.Helper()
	cfg := Config{Cluster: c.cluster, Group: "g", Node: fmt.Sprintf("node%d", c.named.Add(1)), Tables: 32, ReplanDelay: 20 * time.Millisecond}
	for _, f := range change {
		f(&cfg)
	}
	if cfg.Client == nil {
		cfg.Client = dial(c.t, c.etcd)
	}
	d := &desk{crowd: c, held: make(map[int]string), done: make(chan error, 1)}
	a, err := New(cfg, d)
	if err != nil {
		c.t.Fatal(err)
	}
	d.Assign = a
	return d
}

func (c *crowd) start(d *desk) *desk {
	ctx, cancel := context.WithCancel(context.Background())
	d.cancel = cancel
	c.mu.Lock()
	c.nodes = append(c.nodes, d)
	c.mu.Unlock()
	go func() { d.done <- d.Run(ctx); close(d.done) }()
	c.t.Cleanup(func() {
		c.mu.Lock()
		for _, one := range c.nodes { // all at once: they may have no etcd any more to leave
			one.cancel()
		}
		c.mu.Unlock()
		<-d.done
	})
	return d
}

// leave ends a node in good order.
func (d *desk) leave() {
	d.crowd.t.Helper()
	d.cancel()
	if err := <-d.done; err != nil {
		d.crowd.t.Error(err)
	}
}

// kill cuts a node off for ever. What it still has does not count: its process would be gone.
func (d *desk) kill() {
	d.crowd.update(func() { d.dead = true })
	_ = d.cfg.Client.Close()
}

// update changes state under the lock and wakes who waits.
func (c *crowd) update(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	close(c.changed)
	c.changed = make(chan struct{})
}

// Take checks that nobody else has the tables, and that revisions grow.
func (d *desk) Take(ctx context.Context, revisions map[int]int64) (err error) {
	if d.onTake != nil {
		d.onTake(ctx, sortedKeys(revisions))
	}
	d.crowd.update(func() {
		d.takes++
		if len(d.held) == 0 {
			d.firstAt = time.Now()
		}
		var refused *Refused
		if d.failTake != nil {
			if err = d.failTake(revisions); err != nil {
				errors.As(err, &refused)
			}
		}
		for table, rev := range revisions {
			d.crowd.check(d, table, rev)
			if err == nil || refused != nil && !slices.Contains(refused.Tables, table) {
				d.held[table] = d.ID()
			}
		}
	})
	return err
}

// check is called under the lock.
func (c *crowd) check(d *desk, table int, rev int64) {
	for _, other := range c.nodes {
		owner, has := other.held[table]
		if other != d && other.cfg.Group == d.cfg.Group && has && !other.dead && other.MayAct(owner) {
			c.t.Errorf("table %d: %s takes what %s has", table, d.ID(), other.ID())
		}
	}
	key := spaceOf(c.cluster, d.cfg.Group).table(table)
	if rev <= c.last[key] {
		c.t.Errorf("%s: %s takes it at revision %d, not above %d", key, d.ID(), rev, c.last[key])
	}
	c.last[key] = rev
}

func (d *desk) Drop(ctx context.Context, tables []int) (err error) {
	if d.onDrop != nil {
		d.onDrop(ctx, tables)
	}
	d.crowd.update(func() {
		err = d.failDrop
		refused, some := err.(*Refused)
		for _, table := range tables {
			if err == nil || some && !slices.Contains(refused.Tables, table) {
				if _, had := d.held[table]; had {
					d.drops++
				}
				delete(d.held, table)
			}
		}
	})
	return err
}

// Loosen notes who is in claim mode.
func (d *desk) Loosen(_ context.Context, owner string) error {
	if d.onLoosen != nil {
		d.onLoosen()
	}
	d.crowd.update(func() { d.loosened = append(d.loosened, owner) })
	return nil
}

// acting is how many tables the node may act on without a claim. Called under the lock.
func (d *desk) acting() (n int) {
	for _, owner := range d.held {
		if d.MayAct(owner) {
			n++
		}
	}
	return n
}

// await waits until cond, which is called under the lock, holds.
func (c *crowd) await(what string, cond func() bool) {
	c.t.Helper()
	deadline := time.After(patience)
	for {
		c.mu.Lock()
		ok, changed := cond(), c.changed
		c.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-time.After(20 * time.Millisecond): // leases change without a call
		case <-deadline:
			c.t.Fatalf("waited in vain: %s: %s", what, c)
		}
	}
}

// poll waits for what no call of the holder tells.
func poll(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// awaitCounts waits until each node has so many tables.
func (c *crowd) awaitCounts(want map[*desk]int) {
	c.t.Helper()
	c.await(fmt.Sprint("counts ", slices.Sorted(maps.Values(want))), func() bool {
		for d, n := range want {
			if len(d.held) != n {
				return false
			}
		}
		return true
	})
}

// awaitTaken waits until the nodes have all tables, each taken at the revision of the key that it has now.
func (c *crowd) awaitTaken(tables int, nodes ...*desk) {
	c.t.Helper()
	keys := spaceOf(c.cluster, "g")
	v, err := readView(c.t.Context(), c.client, keys, tables)
	if err != nil {
		c.t.Fatal(err)
	}
	c.await("every key's revision taken", func() bool {
		for table, key := range v.tables {
			held := slices.ContainsFunc(nodes, func(d *desk) bool { return d.held[table] == d.ID() })
			if c.last[keys.table(table)] != key.created || !held {
				return false
			}
		}
		return true
	})
}

// String tells who has how much.
func (c *crowd) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := ""
	for _, d := range c.nodes {
		text += fmt.Sprintf("%s has %d, wants %d, lease %v; ", d.ID(), len(d.held), d.Wanted(), d.LeaseOK())
	}
	return text
}

// keys reads how many keys the group has.
func (c *crowd) keys() int64 {
	c.t.Helper()
	resp, err := c.client.Get(c.t.Context(), groupsOf(c.cluster), clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.Count
}

// awaitKey waits for a state of a key that cond accepts; nil is no key.
func (c *crowd) awaitKey(key string, cond func(value []byte, lease int64) bool) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	resp, err := c.client.Get(ctx, key)
	if err != nil {
		c.t.Fatal(err)
	}
	if len(resp.Kvs) == 0 && cond(nil, 0) || len(resp.Kvs) == 1 && cond(resp.Kvs[0].Value, resp.Kvs[0].Lease) {
		return
	}
	for w := range c.client.Watch(ctx, key, clientv3.WithRev(resp.Header.Revision+1)) {
		for _, e := range w.Events {
			if e.Type == clientv3.EventTypeDelete && cond(nil, 0) || e.Type == clientv3.EventTypePut && cond(e.Kv.Value, e.Kv.Lease) {
				return
			}
		}
	}
	c.t.Fatalf("waited in vain for %s", key)
}
