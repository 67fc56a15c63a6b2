package chaos

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/internal/loop"
)

// idle is a holder that does nothing: only the keys cost.
type idle struct{}

func (idle) Take(context.Context, map[int]int64) error { return nil }
func (idle) Drop(context.Context, []int) error         { return nil }
func (idle) Loosen(context.Context, string) error      { return nil }

// member is one node that only registers and owns.
type member struct {
	client *clientv3.Client
	end    context.CancelFunc
	done   chan error
}

// TestClusterLoadOnEtcd: what a start with many tables and a node's death ask of
// etcd, which is a process of its own. The nodes are in this one, without databases.
func TestClusterLoadOnEtcd(t *testing.T) {
	if !long() {
		t.Parallel()
	}
	for _, n := range []int{1, pick(5, 50)} {
		t.Run(fmt.Sprintf("%d nodes", n), func(t *testing.T) { loadOnEtcd(t, n, pick(256, 8192)) })
	}
}

func loadOnEtcd(t *testing.T, n, tables int) {
	etcd, err := startEtcd(t.Context(), t.TempDir(), 1)
	t.Cleanup(func() {
		for _, e := range etcd {
			if err := errors.Join(e.Kill(), e.Stop()); err != nil {
				t.Error(err)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	prefix := "/chaos/groups/" + group + "/"
	h := watchKeys(t, dialKeys(t, endpoints(etcd)), prefix, tables)
	f := &figures{run: fmt.Sprintf("load on etcd, %d tables, %d nodes", tables, n)}
	base := scrape(t, endpoints(etcd)[0])

	begin := time.Now()
	nodes := enroll(t, endpoints(etcd), n, tables)
	h.balance(t, n)
	f.seconds("start", time.Since(begin))
	base = f.spent(t, "start", base, endpoints(etcd)[0])

	_ = loop.Wait(t.Context(), leaseOnEtcd())
	base = f.spent(t, "idle_ttl", base, endpoints(etcd)[0])

	before, seen := h.snapshot()
	dead := before[slices.IndexFunc(before, func(id string) bool { return isNode(id, "m0") })]
	begin = time.Now()
	_ = nodes[0].client.Close() // it dies without a word
	if n == 1 {
		enroll(t, endpoints(etcd), 1, tables)
	}
	h.await(t, "the end of the dead node's lease", func() bool {
		_, still := h.nodes[dead]
		return !still && h.even(max(n-1, 1))
	})
	r := h.since(begin, before, seen)
	f.seconds("death", time.Since(begin))
	f.spent(t, "death", base, endpoints(etcd)[0])
	f.add("death_moved", r.Moved)
	f.add("death_least", r.Least)
	f.add("two_owners", h.twoOwners(t))
	f.print(t)
	if long() && r.Takes > r.Least {
		t.Errorf("%d takes after a death, %d would do", r.Takes, r.Least)
	}
}

// leaseOnEtcd is that of the nodes: make cluster LEASE=10s.
func leaseOnEtcd() time.Duration {
	if ttl, err := time.ParseDuration(os.Getenv("TOCSIN_LEASE")); err == nil {
		return ttl
	}
	return pick(assign.MinTTL, assign.DefaultTTL)
}

// enroll starts nodes, all at once.
func enroll(t *testing.T, at []string, n, tables int) []*member {
	t.Helper()
	all := make([]*member, n)
	var g errgroup.Group
	for i := range all {
		client := dialKeys(t, at)
		a, err := assign.New(assign.Config{
			Client: client, Cluster: "chaos", Group: group, Node: fmt.Sprintf("m%d", i), Tables: tables, TTL: leaseOnEtcd(),
		}, idle{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		all[i] = &member{client: client, end: cancel, done: make(chan error, 1)}
		g.Go(func() error { all[i].done <- a.Run(ctx); return nil })
	}
	t.Cleanup(func() {
		for _, m := range all {
			m.end()
		}
		_ = g.Wait()
	})
	return all
}

// counters are etcd's own, by name.
type counters map[string]float64

// spentOn are those that are shown, and as what.
var spentOn = []struct{ name, short string }{
	{`grpc_server_handled_total{grpc_code="OK",grpc_method="Txn"`, "txns"},
	{`grpc_server_handled_total{grpc_code="OK",grpc_method="Range"`, "reads"},
	{`grpc_server_msg_received_total{grpc_method="LeaseKeepAlive"`, "renewals"},
	{`grpc_server_msg_sent_total{grpc_method="Watch"`, "watch_messages"},
	{`etcd_server_proposals_committed_total`, "raft_entries"},
	{`etcd_network_client_grpc_sent_bytes_total`, "sent_bytes"},
	{`etcd_network_client_grpc_received_bytes_total`, "received_bytes"},
	{`process_cpu_seconds_total`, "etcd_cpu_s"},
}

// scrape reads etcd's metrics.
func scrape(t *testing.T, at string) counters {
	t.Helper()
	resp, err := http.Get("http://" + at + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	defer http.DefaultClient.CloseIdleConnections()
	return parseCounters(resp.Body)
}

func parseCounters(text io.Reader) counters {
	found := counters{}
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		for _, c := range spentOn {
			labels, counts := strings.CutPrefix(lines.Text(), c.name)
			_, value, _ := strings.Cut(labels, " ")
			if v, err := strconv.ParseFloat(value, 64); counts && err == nil {
				found[c.short] += v
			}
		}
	}
	return found
}

// spent adds what etcd did since base, and gives the counters of now.
func (f *figures) spent(t *testing.T, name string, base counters, at string) counters {
	t.Helper()
	now := scrape(t, at)
	for _, c := range spentOn {
		f.add(name+"_"+c.short, float64(int((now[c.short]-base[c.short])*100))/100)
	}
	return now
}
