package node_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/node"
)

// drill is a fail-over under load: the primary is killed, its replica promoted. The config has
// both addresses, and nobody tells nodes and clients anything.
type drill struct {
	place
	pair *devtest.Pair
	rate int           // adds a second
	lead time.Duration // of adds before the kill and after the promotion
	log  devtest.Log

	nodes []*node.Node

	killed atomic.Int64 // when the primary died, in nanoseconds; 0: it lives

	mu        sync.Mutex
	added     []tocsin.JobID
	failed    int // adds
	last      time.Time
	gap       time.Duration // longest time between two adds that succeeded
	delivered map[tocsin.JobID]int
	early     []string
	promotion time.Duration // how long it took
}

// behind is how far the replica's clock is behind the primary's.
const behind = 3 * time.Second

func newDrill(t *testing.T, semi bool, ownership string) *drill {
	d := &drill{pair: devtest.NewPair(t, semi, "LD_PRELOAD="+devtest.FakeTime(t), "FAKETIME=-3s", "FAKETIME_DONT_FAKE_MONOTONIC=1", "FAKETIME_FORCE_MONOTONIC_FIX=0"),
		rate: 100, lead: 2 * time.Second, delivered: map[tocsin.JobID]int{}}
	if long() {
		d.rate, d.lead = 1000, 20*time.Second
	}
	d.place = newPlaceOf(t, 8, closePolicy())
	_ = d.client.Close()
	d.ownership = ownership
	d.cfg.Servers = []tocsin.Server{{Name: "db", DSN: d.pair.DSN(), MaxConns: 32}}
	d.place = d.made(t, closePolicy())
	return d
}

// handle delivers a task, and checks its time by the clock of the server that said that it was due. The primary said so only of what
// was due before it died; how long such a task then waits for its handler is the load's matter.
func (d *drill) handle(_ context.Context, task *tocsin.Task[order]) error {
	now, killed := time.Now(), d.killed.Load()
	if killed != 0 && task.ActionTime.UnixNano() > killed {
		now = now.Add(-behind)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.delivered[task.JobID]++
	if now.Before(task.ActionTime) {
		d.early = append(d.early, fmt.Sprintf("%s by %s, due %s after the primary died", task.JobID, task.ActionTime.Sub(now), task.ActionTime.Sub(time.Unix(0, killed))))
	}
	return nil
}

// adders add tasks at the same time.
const adders = 16

// add adds tasks until ctx ends.
func (d *drill) add(ctx context.Context, t *testing.T) {
	var wg sync.WaitGroup
	var n atomic.Uint64
	for range adders {
		wg.Go(func() {
			tick := time.NewTicker(adders * time.Second / time.Duration(d.rate))
			defer tick.Stop()
			for ctx.Err() == nil {
				id := n.Add(1)
				added, err := d.client.Add(t.Context(), orderClose.New(id, order{id}, tocsin.In(time.Duration(id%100)*20*time.Millisecond)))
				d.noteAdd(added.JobID, err)
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
		})
	}
	wg.Wait()
}

func (d *drill) noteAdd(id tocsin.JobID, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.failed++
		return
	}
	now := time.Now()
	if !d.last.IsZero() {
		d.gap = max(d.gap, now.Sub(d.last))
	}
	d.added, d.last = append(d.added, id), now
}

// rows reads the statuses of all tasks from a server.
func (d *drill) rows(t *testing.T, db *sql.DB) map[tocsin.JobID]tocsin.Status {
	t.Helper()
	all := map[tocsin.JobID]tocsin.Status{}
	for table := range d.cfg.Layout.Total() {
		rows, err := db.Query("SELECT job_id, status FROM " + d.cfg.Layout.Table(table))
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			var id uint64
			var status tocsin.Status
			if err := rows.Scan(&id, &status); err != nil {
				t.Fatal(err)
			}
			all[tocsin.JobID(id)] = status
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// settled waits until every row of a server is final, and returns them.
func (d *drill) settled(t *testing.T, db *sql.DB) map[tocsin.JobID]tocsin.Status {
	t.Helper()
	var all map[tocsin.JobID]tocsin.Status
	until(t, "all tasks are final", func() bool {
		all = d.rows(t, db)
		for _, status := range all {
			if !status.Final() {
				return false
			}
		}
		return true
	})
	return all
}

// awaitAdds waits until that many more tasks are added.
func (d *drill) awaitAdds(t *testing.T, more int) {
	t.Helper()
	added := func() int {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.added)
	}
	before := added()
	until(t, "more tasks are added", func() bool { return added() >= before+more })
}

// fails kills the primary and promotes the replica. An asynchronous one has missed some adds by then, and the tables that a node
// has taken from another.
func (d *drill) fails(ctx context.Context, t *testing.T, semi bool) {
	t.Helper()
	loop.Wait(ctx, d.lead)
	if !semi {
		d.pair.StopReceiving(1)
		d.runNode(t)
		d.awaitAdds(t, adders+5) // each adder's next may have been stored before
	}
	d.pair.Kill(0)
	d.killed.Store(time.Now().UnixNano())
	begin := time.Now()
	d.pair.Promote(1)
	d.promotion = time.Since(begin)
	loop.Wait(ctx, d.lead)
}

func TestNodesAndClientsGoOnWithThePromotedReplica(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		semi      bool
		ownership string
		back      bool // the old primary comes back
	}{"semi-synchronous": {true, node.ByEtcd, true}, "asynchronous": {false, node.ByEtcd, false}, "semi-synchronous, without etcd": {true, node.ByRows, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDrill(t, c.semi, c.ownership)
			db := d.pair.Open(1)
			defer db.Close()
			if d.runNode(t); c.semi {
				d.runNode(t)
			}
			ctx, end := context.WithCancel(t.Context())
			var adds sync.WaitGroup
			adds.Go(func() { d.add(ctx, t) })
			d.fails(ctx, t, c.semi)
			end()
			adds.Wait()
			d.judge(t, d.settled(t, db), c.semi)
			if !c.semi {
				d.fenced(t, db)
			}
			if d.report(t); c.back {
				d.oldPrimary(t)
			}
		})
	}
}

// runNode starts a node and waits until it has its share of the tables.
func (d *drill) runNode(t *testing.T) {
	t.Helper()
	cfg := d.config("orders")
	cfg.Name, cfg.Logger, cfg.ScanInterval = fmt.Sprint("node", len(d.nodes)), d.log.Logger(), time.Second
	n, _ := run(t, cfg, closing(d.handle))
	d.nodes = append(d.nodes, n)
	awaitOwned(t, n, d.cfg.Layout.Total()/len(d.nodes))
}

// fenced waits until the owner rows name the present owners: those of the replica named the first node alone.
func (d *drill) fenced(t *testing.T, db *sql.DB) {
	t.Helper()
	until(t, "the tables are fenced anew", func() bool {
		rows := 0
		for database := range d.cfg.Layout.Databases {
			var some int
			if err := db.QueryRow("SELECT COUNT(*) FROM "+d.cfg.Layout.Database(database)+".owner WHERE group_name = 'orders' AND node = ?", d.nodes[1].ID()).Scan(&some); err != nil {
				t.Fatal(err)
			}
			rows += some
		}
		return rows > 0 && rows == owned(d.nodes[1])
	})
}

// judge compares what was acknowledged, delivered and stored.
func (d *drill) judge(t *testing.T, rows map[tocsin.JobID]tocsin.Status, semi bool) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	lost, undelivered, again := 0, 0, 0
	for _, id := range d.added {
		if _, there := rows[id]; !there {
			lost++
		}
	}
	for id, status := range rows {
		if status != tocsin.Done {
			t.Errorf("task %s is %s", id, status)
		}
		if d.delivered[id] == 0 {
			undelivered++
		}
	}
	for _, n := range d.delivered {
		again += n - 1
	}
	t.Logf("%d added at %d/s, %d adds failed, longest time without an add %s, promotion took %s; lost %d, not delivered %d, second deliveries %d, early %v",
		len(d.added), d.rate, d.failed, d.gap.Round(time.Millisecond), d.promotion.Round(time.Millisecond), lost, undelivered, again, d.early)
	if semi && lost > 0 || !semi && lost == 0 || undelivered > 0 || len(d.early) > 0 || len(rows) == 0 {
		t.Errorf("lost %d, not delivered %d, early %d of %d", lost, undelivered, len(d.early), len(rows))
	}
}

// report checks what a node says of the fail-over.
func (d *drill) report(t *testing.T) {
	t.Helper()
	line := d.log.Await(t, "fail-over: another address of the server takes writes and is used now")
	if line["from"] != d.pair.Address(0) || line["to"] != d.pair.Address(1) {
		t.Errorf("logged %v", line)
	}
	r, _ := d.nodes[0].Report()
	if len(r.Servers) != 1 || r.Servers[0].Address != d.pair.Address(1) || r.Servers[0].Failovers != 1 {
		t.Errorf("status says %+v", r.Servers)
	}
}

// oldPrimary starts the old primary twice: read-only, which is right, and writable, which is a mistake.
func (d *drill) oldPrimary(t *testing.T) {
	t.Helper()
	for _, readOnly := range []bool{true, false} {
		d.pair.Start(0, readOnly)
		if !readOnly {
			line := d.log.Await(t, "two addresses of one server take writes: make the other read-only")
			if line["used"] != d.pair.Address(1) || line["other"] != d.pair.Address(0) {
				t.Errorf("logged %v", line)
			}
		}
		db := d.pair.Open(0)
		before := d.rows(t, db)
		id := add(t, d.place, orderClose.New(7, order{7}, tocsin.In(0)))
		await(t, d.place, id, "delivery beside the old primary", withStatus(tocsin.Done))
		after := d.rows(t, db)
		if _, there := after[id]; there || len(before) != len(after) {
			t.Errorf("the old primary was written: %d rows, then %d", len(before), len(after))
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		d.pair.Kill(0)
	}
	if r, _ := d.nodes[0].Report(); r.Servers[0].Address != d.pair.Address(1) {
		t.Errorf("status says %+v", r.Servers)
	}
}
