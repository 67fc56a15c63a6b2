package assign

import (
	"bytes"
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/name"
)

func TestConfigIsRefused(t *testing.T) {
	t.Parallel()
	good := Config{Client: &clientv3.Client{}, Cluster: "c", Group: "g", Node: "n", Tables: 1}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Config){
		`assign: cluster "": use letters`:         func(c *Config) { c.Cluster = "" },
		`assign: group "a/b": use letters`:        func(c *Config) { c.Group = "a/b" },
		`assign: node "-": use letters`:           func(c *Config) { c.Node = "-" },
		"56 bytes, more than 55":                  func(c *Config) { c.Node = strings.Repeat("n", 56) },
		"assign: no etcd client":                  func(c *Config) { c.Client = nil },
		"assign: 0 tables, needs at least 1":      func(c *Config) { c.Tables = 0 },
		"assign: weight 1001 is not in 0 to 1000": func(c *Config) { c.Weight = 1001 },
		"assign: lease TTL 1.999s, less than 2s":  func(c *Config) { c.TTL = 1999 * time.Millisecond },
		"assign: replan delay -1ns is negative":   func(c *Config) { c.ReplanDelay = -1 },
	} {
		c := good
		change(&c)
		if _, err := New(c, &desk{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, err := New(good, nil); err == nil || err.Error() != "assign: no holder" {
		t.Errorf("got %v", err)
	}
}

func TestAnIDFitsItsColumnAndIsFresh(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", maxNode)
	if a, b := name.NewID(long), name.NewID(long); a == b || len(a) != 64 || !strings.HasPrefix(a, long+"-") {
		t.Errorf("%q, %q", a, b)
	}
}

func TestALeaseIsTrustedFromTheStartOfItsRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trust, start := newTrust(never), time.Now()
		if trust.left() > 0 {
			t.Error("trusted before the first renewal")
		}
		time.Sleep(3 * time.Second) // the renewal took so long
		trust.renew(start, 10*time.Second)
		time.Sleep(6*time.Second - time.Nanosecond)
		if trust.left() != 1 {
			t.Errorf("left %s", trust.left())
		}
		time.Sleep(time.Nanosecond)
		if trust.left() > 0 {
			t.Error("trusted within the margin")
		}
		trust.renew(time.Now(), 10*time.Second)
		if trust.end(); trust.left() > 0 {
			t.Error("trusted after its end")
		}
	})
}

// never is a process that did not stand still.
func never() time.Time { return time.Time{} }

// TestALeaseIsNotTrustedAfterAPause: the monotonic clock stands still while the machine is suspended, and both clocks may in
// a virtual machine.
func TestALeaseIsNotTrustedAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var jumped time.Time
		trust := newTrust(func() time.Time { return jumped })
		trust.renew(time.Now(), 10*time.Second)
		suspended := *trust.granted.Load()
		suspended.wall = suspended.wall.Add(-time.Minute)
		trust.granted.Store(&suspended)
		if trust.left() > 0 {
			t.Error("trusted though the wall clock is past its end")
		}
		started := time.Now()
		trust.renew(started, 10*time.Second)
		time.Sleep(time.Second)
		if jumped = time.Now(); trust.left() > 0 {
			t.Error("trusted though a server's clock tells that the process stood still")
		}
		if trust.renew(started, 10*time.Second); trust.left() > 0 {
			t.Error("trusted by the late answer to a renewal that began before")
		}
		time.Sleep(time.Millisecond)
		if trust.renew(time.Now(), 10*time.Second); trust.left() <= 0 {
			t.Error("not trusted by a renewal that began after")
		}
	})
}

func TestRefusalsGrowApart(t *testing.T) {
	t.Parallel()
	var r refusal
	now := time.Now()
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		if r = r.again(now); r.delay != want*time.Second || r.until != now.Add(r.delay) {
			t.Errorf("got %s, want %ds", r.delay, want)
		}
	}
}

func TestEachKeyIsDecidedOnItsOwn(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	one, other := newWriter(t, c, "one"), newWriter(t, c, "other")
	ctx := t.Context()
	if rev, err := other.take(ctx, []int{1, 3}); err != nil || rev == 0 {
		t.Fatal(rev, err)
	}
	if rev, err := one.take(ctx, []int{0, 1, 2, 3}); err != nil || rev == 0 {
		t.Fatal(rev, err)
	}
	if rev, err := one.take(ctx, []int{0, 1}); err != nil || rev != 0 {
		t.Errorf("wrote at %d though all are taken, %v", rev, err)
	}
	checkOwners(t, c, "one", "other", "one", "other")
	v, err := readView(ctx, c.client, one.space, 4)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := one.free(ctx, map[int]int64{0: v.tables[0].created, 1: v.tables[1].created, 2: v.tables[2].created - 1}); err != nil {
		t.Fatal(err)
	}
	checkOwners(t, c, "", "other", "one", "other")
	if err := one.sweep(ctx, map[string]int64{one.space.table(1): v.tables[1].mod, one.space.table(3): v.tables[3].mod - 1}); err != nil {
		t.Fatal(err)
	}
	checkOwners(t, c, "", "", "one", "other")
}

func TestWithoutItsOwnKeyANodeTakesNothing(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	w := newWriter(t, c, "one")
	if _, err := c.client.Delete(t.Context(), w.space.node(w.id)); err != nil {
		t.Fatal(err)
	}
	if rev, err := w.take(t.Context(), []int{0}); err != nil || rev != 0 {
		t.Errorf("wrote at %d, %v", rev, err)
	}
	if err := w.register(t.Context(), nodeRecord{}, false, nil); err != nil {
		t.Error(err)
	}
	if err := w.register(t.Context(), nodeRecord{}, false, nil); err == nil || !strings.Contains(err.Error(), errTaken.Error()) {
		t.Errorf("registered twice: %v", err)
	}
}

// newWriter registers a node that does nothing by itself.
func newWriter(t *testing.T, c *crowd, id string) writer {
	t.Helper()
	l, err := grantLease(t.Context(), c.client, 60*time.Second, newTrust(never))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.revoke(context.Background()) })
	w := writer{client: c.client, cluster: c.cluster, space: spaceOf(c.cluster, "g"), id: id, lease: l.id, timeout: patience}
	if err := w.register(t.Context(), nodeRecord{Weight: 1}, false, nil); err != nil {
		t.Fatal(err)
	}
	return w
}

func checkOwners(t *testing.T, c *crowd, want ...string) {
	t.Helper()
	got, err := c.registry().Owners(t.Context(), "g")
	if err != nil || !slices.Equal(got[:len(want)], want) {
		t.Errorf("owners %q, want %q, %v", got, want, err)
	}
}

func TestListing(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	w := newWriter(t, c, "one")
	if _, err := w.take(t.Context(), []int{0, 9}); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"/groups/g-2/tables/1", "/groups/a/nodes/x", "-2/groups/no/nodes/x", "/groups/gone/epoch", "/groups/g/epoch"} {
		if _, err := c.client.Put(t.Context(), "/"+c.cluster+key, "?"); err != nil {
			t.Fatal(err)
		}
	}
	groups, err := c.registry().Groups(t.Context())
	if err != nil || !slices.Equal(groups, []string{"a", "g", "g-2"}) {
		t.Errorf("groups %q, %v", groups, err)
	}
	nodes, err := c.registry().Nodes(t.Context(), "g")
	if err != nil || len(nodes) != 1 {
		t.Fatal(nodes, err)
	}
	if n := nodes[0]; n.ID != "one" || n.Tables != 2 || n.Weight != 1 || n.TTL < 30*time.Second || n.Differs {
		t.Errorf("%+v", n)
	}
	if nodes, err = c.registry().Nodes(t.Context(), "a"); err != nil || len(nodes) != 1 || nodes[0].TTL != 0 {
		t.Errorf("%+v, %v", nodes, err)
	}
}

func TestNodesWithOtherHandlersAreNamed(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	var log bytes.Buffer
	handlers := func(types ...string) func(*Config) {
		return func(c *Config) { c.Tables, c.Info.Types = 36, types }
	}
	d := c.join(handlers("a", "b"), func(c *Config) { c.Logger = devtest.NewLogger(&log) })
	c.awaitCounts(map[*desk]int{d: 36})
	next, silent := c.join(handlers("b", "c", "d")), c.join(handlers())
	c.awaitCounts(map[*desk]int{d: 12, next: 12, silent: 12})
	nodes, err := c.registry().Nodes(t.Context(), "g")
	if err != nil || len(nodes) != 3 {
		t.Fatal(nodes, err)
	}
	for _, n := range nodes {
		if n.ID == d.ID() && (!n.Differs || !slices.Equal(n.Lacks, []string{"c", "d"}) || !slices.Equal(n.Extra, []string{"a"})) ||
			n.ID == silent.ID() && n.Differs {
			t.Errorf("%+v", n)
		}
	}
	next.leave()
	c.awaitCounts(map[*desk]int{d: 18, silent: 18})
	d.leave()
	if n := strings.Count(log.String(), `"missing_here":["c","d"],"missing_elsewhere":["a"]`); n != 1 {
		t.Errorf("warned %d times:\n%s", n, log.String())
	}
}

func TestMetricsArePublished(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	reg := prometheus.NewPedanticRegistry()
	d := c.join(func(c *Config) { c.Registerer = reg })
	c.awaitCounts(map[*desk]int{d: 32})
	poll(t, "the count", func() bool { return d.Owned() == 32 && valueOf(t, d.metrics.taken) == 32 })
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := make(map[string]float64)
	for _, f := range families {
		m := f.GetMetric()[0]
		values[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
	}
	if values["tocsin_assign_tables_owned"] != 32 || values["tocsin_assign_tables_wanted"] != 32 ||
		values["tocsin_assign_tables_taken_total"] != 32 || values["tocsin_assign_plans_total"] == 0 {
		t.Error(values)
	}
	if _, err := New(d.cfg, d); err == nil {
		t.Error("registered the same metrics twice")
	}
}

func TestDialNamesWhatItCannotReach(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	silent := l.Addr().String() // accepts and says nothing
	for name, c := range map[string]struct {
		endpoints []string
		want      string
	}{
		"none":       {nil, "etcd: no endpoints"},
		"refused":    {[]string{"127.0.0.1:1", "http://127.0.0.1:2"}, "etcd 127.0.0.1:1, http://127.0.0.1:2: not reachable: dial tcp 127.0.0.1:1: connect: connection refused"},
		"no answer":  {[]string{silent}, "etcd " + silent + ": no answer in time: context deadline exceeded"},
		"unreadable": {[]string{"http://%zz"}, `etcd endpoint "http://%zz": want host:port, or a URL with http or https`},
	} {
		_, err := Dial(t.Context(), EtcdConfig{Endpoints: c.endpoints, Timeout: 300 * time.Millisecond})
		if err == nil || !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
	cfg := EtcdConfig{Endpoints: []string{"127.0.0.1:1"}, Username: "u", Password: "secret", Timeout: 300 * time.Millisecond}
	if _, err := Dial(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "refused") || strings.Contains(err.Error(), "secret") {
		t.Errorf("with a user: %v", err)
	}
}

func FuzzTableOf(f *testing.F) {
	s := spaceOf("c", "g")
	f.Add("5")
	f.Add("05")
	f.Add("-1")
	f.Add("8192")
	f.Fuzz(func(t *testing.T, name string) {
		n, ok := s.tableOf(s.tables() + name)
		if ok && (n < 0 || s.table(n) != s.tables()+name) {
			t.Errorf("%q is read as table %d", name, n)
		}
		if _, ok := s.tableOf(s.nodes() + name); ok {
			t.Errorf("node %q is read as a table", name)
		}
	})
}
