package chaos

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tocsinhq/tocsin/assign"
	"github.com/tocsinhq/tocsin/internal/loop"
)

// keysOf is where the keys of the harness's group are.
func (s *Site) keysOf() string { return "/" + s.opts.Layout.Prefix + "/groups/" + group + "/" }

// history is all that happened to the group's keys in etcd, from the first revision
// on, read past every proxy. Safe for concurrent use.
type history struct {
	client *clientv3.Client
	prefix string
	done   chan struct{} // closed when the watch has ended

	mu      sync.Mutex
	news    chan struct{} // closed and replaced at each change
	changes []change
	owners  []string        // of each table now: a node's id, "" nobody
	counts  map[string]int  // tables of each owner
	nodes   map[string]bool // those with a key -> whether they take tables
	doubles []string        // keys put over the key of another owner
	broken  error           // why the watch ended before its time
	byHand  []torn
	marks   []mark
}

// torn is when a hand had deleted or overwritten a key, which its owner could not know yet.
type torn struct {
	table int
	span
}

// mark is a write of this process. What etcd did at a lower revision was before to, and what it did at a higher one after
// from, however late the watch shows it: on a busy machine that may be seconds.
type mark struct {
	rev int64
	span
}

// markEvery is the time between two marks.
const markEvery = 50 * time.Millisecond

// change is one event of one table's key.
type change struct {
	At    time.Time // when it was seen here
	Rev   int64
	Table int
	Owner string // "": the key was deleted
}

// watch begins a history. It ends with the test.
func (s *scenario) watch() *history {
	s.t.Helper()
	return watchKeys(s.t, s.dialEtcd(), s.keysOf(), s.opts.Layout.Total())
}

// dialEtcd makes a client past every proxy.
func (s *scenario) dialEtcd() *clientv3.Client {
	s.t.Helper()
	return dialKeys(s.t, endpoints(s.etcd))
}

func dialKeys(t *testing.T, at []string) *clientv3.Client {
	t.Helper()
	client, err := assign.Dial(t.Context(), assign.EtcdConfig{Endpoints: at, Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func watchKeys(t *testing.T, client *clientv3.Client, prefix string, tables int) *history {
	t.Helper()
	h := &history{
		client: client, prefix: prefix, done: make(chan struct{}), news: make(chan struct{}),
		owners: make([]string, tables), counts: map[string]int{}, nodes: map[string]bool{},
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var marking sync.WaitGroup
	marking.Go(func() { h.mark(ctx) })
	go h.run(ctx)
	t.Cleanup(func() { cancel(); <-h.done; marking.Wait() })
	h.catchUp(t)
	return h
}

// catchUp returns when all has been seen that happened before.
func (h *history) catchUp(t *testing.T) {
	t.Helper()
	var all int64
	for _, kind := range []string{"nodes/", "tables/"} { // not the epoch
		resp, err := h.client.Get(t.Context(), h.prefix+kind, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		all += resp.Count
	}
	h.await(t, "the history up to now", func() bool {
		keys := len(h.nodes)
		for _, n := range h.counts {
			keys += n
		}
		return int64(keys) >= all
	})
}

func (h *history) run(ctx context.Context) {
	defer close(h.done)
	opts := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithRev(1), clientv3.WithPrevKV()}
	for resp := range h.client.Watch(ctx, h.prefix, opts...) {
		if err := resp.Err(); err != nil && ctx.Err() == nil {
			h.mu.Lock()
			h.broken = err
			h.mu.Unlock()
		}
		h.apply(resp.Events)
	}
}

// mark makes marks until ctx ends. Those that fail are left out: they would only have made the others' spans shorter.
func (h *history) mark(ctx context.Context) {
	for loop.Wait(ctx, markEvery) == nil {
		from := time.Now()
		resp, err := h.client.Put(ctx, "/mark", "")
		if err != nil {
			continue
		}
		h.mu.Lock()
		h.marks = append(h.marks, mark{resp.Header.Revision, span{from, time.Now()}})
		h.mu.Unlock()
	}
}

// when returns between which times a change happened. Called under h.mu.
func (h *history) when(c change) span {
	i, _ := slices.BinarySearchFunc(h.marks, c.Rev, func(m mark, rev int64) int { return cmp.Compare(m.rev, rev) })
	in := span{time.Time{}, c.At}
	if i > 0 {
		in.from = h.marks[i-1].from
	}
	if i < len(h.marks) && h.marks[i].to.Before(in.to) {
		in.to = h.marks[i].to
	}
	return in
}

func (h *history) apply(events []*clientv3.Event) {
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range events {
		kind, name, _ := strings.Cut(strings.TrimPrefix(string(e.Kv.Key), h.prefix), "/")
		switch table, err := strconv.Atoi(name); {
		case kind == "nodes":
			h.node(name, e)
		case kind == "tables" && err == nil:
			h.table(change{At: now, Rev: e.Kv.ModRevision, Table: table, Owner: ownerIn(e)}, e)
		}
	}
	close(h.news)
	h.news = make(chan struct{})
}

// node is called under h.mu.
func (h *history) node(id string, e *clientv3.Event) {
	var record struct {
		Leaving bool `json:"leaving"`
	}
	if e.Type == clientv3.EventTypeDelete {
		delete(h.nodes, id)
		return
	}
	_ = json.Unmarshal(e.Kv.Value, &record)
	h.nodes[id] = !record.Leaving
}

// table is called under h.mu.
func (h *history) table(c change, e *clientv3.Event) {
	if c.Owner != byHand && e.Type == clientv3.EventTypePut && e.PrevKv != nil && e.PrevKv.Lease != e.Kv.Lease {
		h.doubles = append(h.doubles, fmt.Sprintf("table %d: %q over %q at revision %d", c.Table, e.Kv.Value, e.PrevKv.Value, c.Rev))
	}
	if before := h.owners[c.Table]; before != "" {
		h.counts[before]--
		if h.counts[before] == 0 {
			delete(h.counts, before)
		}
	}
	if c.Owner != "" {
		h.counts[c.Owner]++
	}
	h.owners[c.Table] = c.Owner
	h.changes = append(h.changes, c)
}

// byHand is the owner of a key that no node wrote.
const byHand = "by hand"

// ownerIn is who owns the table after an event.
func ownerIn(e *clientv3.Event) string {
	var record struct {
		Node string `json:"node"`
	}
	switch {
	case e.Type == clientv3.EventTypeDelete:
		return ""
	case e.Kv.Lease == 0 || json.Unmarshal(e.Kv.Value, &record) != nil:
		return byHand
	}
	return record.Node
}

// patience bounds every wait for something that should happen.
const patience = 5 * time.Minute

// await returns when cond, which is called under h.mu, holds.
func (h *history) await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	end := time.After(patience)
	for {
		h.mu.Lock()
		ok, news, state := cond(), h.news, fmt.Sprint(h.counts, h.broken)
		h.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-news:
		case <-end:
			t.Fatalf("waited in vain for %s: %s", what, state)
		}
	}
}

// balance waits until n nodes take tables and share all of them evenly.
func (h *history) balance(t *testing.T, n int) {
	t.Helper()
	h.await(t, fmt.Sprintf("an even share of %d nodes", n), func() bool { return h.even(n) })
}

// even is called under h.mu.
func (h *history) even(n int) bool {
	takers, sum, total := 0, 0, len(h.owners)
	for id, takes := range h.nodes {
		if !takes {
			continue
		}
		takers++
		sum += h.counts[id]
		if h.counts[id] < total/n || h.counts[id] > (total+n-1)/n {
			return false
		}
	}
	return takers == n && sum == total
}

// snapshot gives the owners now, and how many changes led to them.
func (h *history) snapshot() ([]string, int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.owners), len(h.changes)
}

// ownedBy gives the tables of a seat's present node.
func (h *history) ownedBy(at *seat) map[int]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	mine := map[int]bool{}
	for table, owner := range h.owners {
		if seatOf(owner) == at.name {
			mine[table] = true
		}
	}
	return mine
}

// twoOwners fails the test if ever a key was put over one of another owner.
func (h *history) twoOwners(t *testing.T) int {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.broken != nil {
		t.Errorf("the history has a gap: %v", h.broken)
	}
	for _, d := range h.doubles[:min(3, len(h.doubles))] {
		t.Errorf("two owners: %s", d)
	}
	return len(h.doubles)
}

// tenure is how long one owner had a table, at most.
type tenure struct {
	owner    string
	from, to time.Time // to is zero while it lasts
}

// tenures gives those of every table, in order.
func (h *history) tenures() [][]tenure {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([][]tenure, len(h.owners))
	for _, c := range h.changes {
		in := h.when(c)
		if of := all[c.Table]; len(of) > 0 && of[len(of)-1].to.IsZero() {
			of[len(of)-1].to = in.to
		}
		if c.Owner != "" {
			all[c.Table] = append(all[c.Table], tenure{owner: c.Owner, from: in.from})
		}
	}
	return all
}

// rebalance is what it took to get from one spread of the tables to the next.
type rebalance struct {
	What    string  `json:"what"`
	Seconds float64 `json:"seconds"` // from the cause to the last change of a key
	Moved   int     `json:"moved"`   // tables with another owner
	Takes   int     `json:"takes"`   // keys created: more than moved where one moved twice
	Least   int     `json:"least"`   // no plan could have moved fewer
	Gap     float64 `json:"gap_s"`   // a table without a key at most
	span    span
}

// String is its line.
func (r rebalance) String() string {
	return fmt.Sprintf("%s: %.2f s, %d tables moved by %d takes, %d at least, none without a key for more than %.2f s",
		r.What, r.Seconds, r.Moved, r.Takes, r.Least, r.Gap)
}

// measure makes a cause happen, waits for n nodes to share evenly, and then a
// while, for what should not happen any more.
func (h *history) measure(t *testing.T, what string, n int, cause func(), rest time.Duration) rebalance {
	t.Helper()
	before, seen := h.snapshot()
	begin := time.Now()
	cause()
	h.balance(t, n)
	_ = loop.Wait(t.Context(), rest)
	r := h.since(begin, before, seen)
	r.What = what
	return r
}

// since sums up the changes after the first seen ones.
func (h *history) since(begin time.Time, before []string, seen int) rebalance {
	h.mu.Lock()
	defer h.mu.Unlock()
	r, freed := rebalance{span: span{begin, begin}}, map[int]time.Time{}
	for _, c := range h.changes[seen:] {
		r.span.to = c.At
		if c.Owner == "" {
			freed[c.Table] = c.At
			continue
		}
		r.Takes++
		if at, ok := freed[c.Table]; ok {
			r.Gap = max(r.Gap, c.At.Sub(at).Seconds())
		}
	}
	for table, owner := range h.owners {
		if owner != before[table] {
			r.Moved++
		}
	}
	r.Seconds, r.Least = r.span.to.Sub(begin).Seconds(), leastMoves(before, h.nodes)
	return r
}

// during lists the changes of keys in a span, a line each.
func (h *history) during(sp span) string {
	return h.list(func(c change) bool { return !c.At.Before(sp.from) && !c.At.After(sp.to) })
}

// of lists the changes of a table's key, a line each.
func (h *history) of(table int) string {
	return h.list(func(c change) bool { return c.Table == table })
}

func (h *history) list(wanted func(change) bool) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var text strings.Builder
	for _, c := range h.changes {
		if wanted(c) {
			in := h.when(c)
			fmt.Fprintf(&text, "\n%s to %s, seen %s: table %d: %s", in.from.UTC().Format(clockForm), in.to.UTC().Format(clockForm),
				c.At.UTC().Format(clockForm), c.Table, cmp.Or(c.Owner, "no owner"))
		}
	}
	return text.String()
}

// leastMoves is how many tables must move at least for the nodes to share evenly.
func leastMoves(before []string, nodes map[string]bool) int {
	had := map[string]int{}
	for id, takes := range nodes {
		if takes {
			had[id] = 0
		}
	}
	for _, owner := range before {
		if _, stays := had[owner]; stays {
			had[owner]++
		}
	}
	if len(had) == 0 {
		return 0
	}
	counts := slices.Sorted(maps.Values(had))
	slices.Reverse(counts) // who has most keeps the odd tables
	least := len(before)
	for i, n := range counts {
		quota := len(before) / len(counts)
		if i < len(before)%len(counts) {
			quota++
		}
		least -= min(n, quota)
	}
	return least
}
