package node_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/node"
)

// order is the payload of the tests' tasks.
type order struct {
	ID uint64 `json:"id"`
}

// place is a cluster of its own: tables, biz types and an etcd prefix.
type place struct {
	cfg       tocsin.Config
	etcd      node.EtcdConfig
	ownership string // "": etcd
	client    *tocsin.Client
}

// newPlace makes a cluster of two databases with four tables each, whose tables nodes own.
func newPlace(t *testing.T, policies ...biztype.Policy) place {
	t.Helper()
	return newPlaceOf(t, 4, policies...)
}

// newPlaceOf is newPlace with the given number of tables each.
func newPlaceOf(t *testing.T, tables int, policies ...biztype.Policy) place {
	t.Helper()
	p := unmade(t, tables)
	p.etcd = node.EtcdConfig{Endpoints: []string{devtest.Etcd(t)}}
	return p.made(t, policies...)
}

// newOpenPlace makes a cluster in which nobody owns tables, with closePolicy and more. It has no etcd.
func newOpenPlace(t *testing.T, more ...biztype.Policy) place {
	t.Helper()
	p := unmade(t, 8)
	p.ownership = node.ByRows
	return p.made(t, append(more, closePolicy())...)
}

// unmade is a place of two databases that are not made yet.
func unmade(t *testing.T, tables int) place {
	prefix := devtest.Prefix(t)
	return place{cfg: tocsin.Config{
		Layout: tocsin.Layout{Databases: 2, Tables: tables, Prefix: prefix}, Cluster: prefix,
		Servers: []tocsin.Server{{Name: "db1", DSN: devtest.DSN(t)}},
	}}
}

// inEach runs a test in a cluster in which nodes own tables, and in one in which they don't, with closePolicy and more.
func inEach(t *testing.T, test func(t *testing.T, p place), more ...biztype.Policy) {
	t.Helper()
	for _, ownership := range []string{node.ByEtcd, node.ByRows} {
		t.Run(ownership, func(t *testing.T) {
			t.Parallel()
			if ownership == node.ByRows {
				test(t, newOpenPlace(t, more...))
			} else {
				test(t, newPlace(t, append(more, closePolicy())...))
			}
		})
	}
}

// made makes the databases and biz types of a place, and its client.
func (p place) made(t *testing.T, policies ...biztype.Policy) place {
	t.Helper()
	ctx := t.Context()
	if _, err := ddl.Apply(ctx, p.cfg, ddl.Options{Cluster: p.cfg.Cluster, Ownership: p.ownership}); err != nil {
		t.Fatal(err)
	}
	if _, err := biztype.Apply(ctx, p.cfg, policies); err != nil {
		t.Fatal(err)
	}
	var err error
	if p.client, err = tocsin.Open(ctx, p.cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.client.Close() })
	return p
}

func (p place) config(group string) node.Config {
	return node.Config{Tables: p.cfg, Ownership: p.ownership, Etcd: p.etcd, Group: group, Name: "test", LeaseTTL: 10 * time.Second}
}

// sweepConfig has no etcd and no node that runs.
func (p place) sweepConfig() node.Config {
	return node.Config{Tables: p.cfg, Group: "orders", Name: "sweeper", SweepGrace: node.NoGrace}
}

// newSweeper makes a sweeper.
func newSweeper(t *testing.T, cfg node.Config, h *node.Handlers) *node.Sweeper {
	t.Helper()
	s, err := node.NewSweeper(cfg, h)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// closing are the handlers of a program that closes orders.
func closing(f func(context.Context, *tocsin.Task[order]) error) *node.Handlers {
	h := &node.Handlers{}
	node.Handle(h, orderClose, f)
	return h
}

// closes closes an order without ado.
func closes(context.Context, *tocsin.Task[order]) error { return nil }

// openDB opens a pool on a server, until the test ends.
func openDB(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// execute runs a statement.
func execute(t *testing.T, db *sql.DB, statement string, args ...any) {
	t.Helper()
	if _, err := db.Exec(statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// startServer starts a server for this test alone.
func startServer(t *testing.T) *devserver.MariaDB {
	t.Helper()
	m, err := devserver.StartMariaDB(t.Context(), devserver.MariaDBConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Stop() })
	return m
}

// start starts a node, which runs until stop is called, or the test ends.
func start(t *testing.T, cfg node.Config, h *node.Handlers) (n *node.Node, stop func(), ended <-chan error) {
	t.Helper()
	n, err := node.New(cfg, h)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	return n, stop, done
}

// run starts a node; it is stopped, and its end awaited, when the test ends or
// stop is called.
func run(t *testing.T, cfg node.Config, h *node.Handlers) (n *node.Node, stop func()) {
	t.Helper()
	n, cancel, ended := start(t, cfg, h)
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("node ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return n, stop
}

// add stores a task and returns its id.
func add(t *testing.T, p place, task tocsin.NewTask) tocsin.JobID {
	t.Helper()
	added, err := p.client.Add(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	return added.JobID
}

// oneInEach returns a biz_id of each table, from next on, which it moves.
func (p place) oneInEach(next *uint64) (bizIDs []uint64) {
	for seen := map[int]bool{}; len(seen) < p.cfg.Layout.Total(); *next++ {
		if table := p.cfg.Layout.TableOf(*next); !seen[table] {
			seen[table] = true
			bizIDs = append(bizIDs, *next)
		}
	}
	return bizIDs
}

// patience is for a machine that has other things to do as well.
const patience = 2 * time.Minute

// await reads a task until it is as wanted.
func await(t *testing.T, p place, id tocsin.JobID, what string, ok func(tocsin.Info) bool) tocsin.Info {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		info, err := p.client.Get(ctx, id)
		if err != nil && (ctx.Err() != nil || !errors.Is(err, tocsin.ErrLayout)) { // a client takes a second to see that a database is right again
			t.Fatalf("waiting for %s: %v (last: %+v)", what, err, info)
		}
		if err == nil && ok(info) {
			return info
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waited too long for %s: %+v", what, info)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited too long until %s", what)
		}
	}
}

func withStatus(s tocsin.Status) func(tocsin.Info) bool {
	return func(i tocsin.Info) bool { return i.Status == s }
}

// receive waits for a value.
func receive[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("waited too long for %s", what)
		panic("unreachable")
	}
}
