package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/store"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// cluster is a cluster of two databases, and the keepers of a test in it.
type cluster struct {
	t   *testing.T
	cfg tocsin.Config
	db  *sqlx.DB
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	cfg := tocsin.Config{
		Layout:  tocsin.Layout{Databases: 2, Tables: 1, Prefix: devtest.Prefix(t)},
		Servers: []tocsin.Server{{Name: "db1", DSN: devtest.DSN(t)}},
	}
	if _, err := ddl.Apply(t.Context(), cfg, ddl.Options{Cluster: "test"}); err != nil {
		t.Fatal(err)
	}
	pool, err := mysql.Open(mysql.Spec{DSN: devtest.DSN(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.DB.Close() })
	return &cluster{t, cfg, pool.DB}
}

func (c *cluster) exec(query string) {
	c.t.Helper()
	if _, err := c.db.ExecContext(c.t.Context(), c.sql(query)); err != nil {
		c.t.Fatal(err)
	}
}

// sql puts the names of the databases for $0 and $1.
func (c *cluster) sql(query string) string {
	return strings.NewReplacer("$0", c.cfg.Layout.Database(0), "$1", c.cfg.Layout.Database(1)).Replace(query)
}

func (c *cluster) rows(table string) (n int) {
	c.t.Helper()
	if err := c.db.GetContext(c.t.Context(), &n, c.sql("SELECT COUNT(*) FROM "+table)); err != nil {
		c.t.Fatal(err)
	}
	return n
}

// process is a keeper that runs, and what it has told.
type process struct {
	*Keeper
	t    *testing.T
	stop func() // ends Run, and waits for it

	mu    sync.Mutex
	ended []string       // sessions of its own
	gone  map[string]int // how often each was told
	news  chan struct{}  // closed and made anew with each callback
}

// start runs a keeper until the test ends.
func (c *cluster) start(name string) *process {
	c.t.Helper()
	s, err := store.Connect(c.t.Context(), c.cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	p := &process{t: c.t, gone: map[string]int{}, news: make(chan struct{})}
	p.Keeper, err = New(Config{
		Store: s, Group: "orders", Node: name, Seat: true, About: `{"name": "` + name + `"}`, Schema: 3,
		Ended: func(_ int, id string) { p.told(func() { p.ended = append(p.ended, id) }) },
		Gone: func(_ int, ids []string) {
			p.told(func() {
				for _, id := range ids {
					p.gone[id]++
				}
			})
		},
		Changed: func([]int) { p.told(func() {}) },
	})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); p.Run(ctx) }()
	p.stop = sync.OnceFunc(func() {
		cancel()
		<-done
		if err := s.Close(); err != nil {
			c.t.Error(err)
		}
	})
	c.t.Cleanup(p.stop)
	if err := p.Opened(c.t.Context(), true); err != nil {
		c.t.Fatal(err)
	}
	return p
}

func (p *process) told(note func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	note()
	close(p.news)
	p.news = make(chan struct{})
}

// await waits until something that callbacks announce has happened.
func (p *process) await(what string, happened func() bool) {
	p.t.Helper()
	limit := time.After(time.Minute)
	for {
		p.mu.Lock()
		news, ok := p.news, happened()
		p.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-news:
		case <-limit:
			p.t.Fatal("in vain: " + what)
		}
	}
}

// id returns the session in a database, which it must have.
func (p *process) id(database int) string {
	p.t.Helper()
	id, ok := p.Session(database)
	if !ok {
		p.t.Fatal("no session is trusted")
	}
	return id
}

// sees describes the members of a database: their names, and what they say.
func (p *process) sees(database int) string {
	var all []string
	members, _ := p.Sessions(database)
	for _, m := range members {
		one := m.Node
		for _, flag := range []struct {
			is   bool
			name string
		}{{m.Self, "self"}, {m.Silent, "silent"}, {m.Draining, "draining"}, {m.Unable, "unable"}, {m.About == "", "mute"}} {
			if flag.is {
				one += " " + flag.name
			}
		}
		all = append(all, one)
	}
	return strings.Join(all, ", ")
}

func (p *process) awaitSees(database int, want string) {
	p.t.Helper()
	p.await("it sees "+want, func() bool { return p.sees(database) == want })
}

func TestProcessesSeeEachOther(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	for database := range 2 {
		a.awaitSees(database, "a self, b")
		b.awaitSees(database, "a, b self")
	}
	if a.id(0) == a.id(1) || len(a.id(0)) != 12 || !a.Trusts(0, a.id(0)) || a.Trusts(0, a.id(1)) || a.Trusts(0, b.id(0)) {
		t.Errorf("sessions %s and %s", a.id(0), a.id(1))
	}
	b.Tell(`{"name": "another"}`)
	b.SetUnable(1, true)
	a.awaitSees(1, "a self, b unable")
	b.SetUnable(1, false)
	b.Drain(t.Context())
	a.await("what b says", func() bool {
		members, _ := a.Sessions(0)
		return a.sees(1) == "a self, b draining" && len(members) == 2 && members[1].About == `{"name": "another"}` && members[1].Draining && members[1].Schema == 3
	})
	members, _ := a.Sessions(1)
	if members[1].Incarnation != b.Incarnation() || !members[1].Seat {
		t.Errorf("%+v", members[1])
	}
	gone := []string{b.id(0), b.id(1)}
	b.stop()
	a.await("that b has gone", func() bool { return a.gone[gone[0]] == 1 && a.gone[gone[1]] == 1 && a.sees(0) == "a self" })
	a.stop()
	if n := c.rows("$0.session") + c.rows("$0.session_about") + c.rows("$1.session") + c.rows("$1.session_about"); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

func TestOneThatShowsNoSignOfLifeIsEndedByOneOther(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	others := []*process{c.start("a"), c.start("b"), c.start("c")}
	d := c.start("d")
	others[0].awaitSees(0, "a self, b, c, d")
	began, ids := time.Now(), []string{d.id(0), d.id(1)}
	d.withhold.Store(true)
	others[0].awaitSees(0, "a self, b, c, d silent")
	for _, p := range others {
		p.await("that d has gone", func() bool { return p.gone[ids[0]] == 1 && p.gone[ids[1]] == 1 })
	}
	if took := time.Since(began); took < StandFor-every {
		t.Errorf("ended after %s", took)
	}
	for database, id := range ids {
		if _, ok := d.Session(database); ok || d.Trusts(database, id) {
			t.Error("it trusts a session that stood still")
		}
	}
	d.withhold.Store(false)
	d.await("that it was ended", func() bool { return len(d.ended) == 2 })
	if err := d.Opened(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if slices.Contains(ids, d.id(0)) || slices.Contains(ids, d.id(1)) {
		t.Error("it goes on with a session that was ended")
	}
	others[0].awaitSees(0, "a self, b, c, d")
	if n := ended(others...); n != 2 {
		t.Errorf("%d sessions were ended, want the two of d once each", n)
	}
}

// ended is how many sessions of others the processes have ended.
func ended(some ...*process) (n int) {
	for _, p := range some {
		n += int(value(p.metrics.ended))
	}
	return n
}

// locked locks what a statement reads, until the returned function is called.
func (c *cluster) locked(query string) (unlock func()) {
	c.t.Helper()
	conn, err := c.db.Connx(context.Background())
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := conn.ExecContext(context.Background(), c.sql(query)); err != nil {
		c.t.Fatal(err)
	}
	return sync.OnceFunc(func() {
		_, _ = conn.ExecContext(context.Background(), "UNLOCK TABLES")
		_, _ = conn.ExecContext(context.Background(), "ROLLBACK")
		_ = conn.Close()
	})
}

// The row that is locked can't beat, nor be ended, until its lock goes; its neighbours are not slower for it.
func TestALockedRowStandsStillAlone(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	a.awaitSees(0, "a self, b")
	id := b.id(0)
	unlock := c.locked("BEGIN; SELECT id FROM $0.session WHERE id = '" + id + "' FOR UPDATE")
	defer unlock()
	a.awaitSees(0, "a self, b silent")
	if other := b.id(1); !b.Trusts(1, other) || a.sees(1) != "a self, b" {
		t.Errorf("the other database: %s", a.sees(1))
	}
	for b.Trusts(0, id) {
		time.Sleep(20 * time.Millisecond)
	}
	unlock()
	if err := b.Opened(t.Context(), true); err != nil { // a may have ended the old session, and may not
		t.Fatal(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if (len(b.ended) == 0) != (b.id(0) == id) {
		t.Errorf("session %s, was %s; ended %v", b.id(0), id, b.ended)
	}
}

func TestALockedTableSlowsNoNeighbour(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	a.awaitSees(1, "a self, b")
	id, other := b.id(0), b.id(1)
	unlock := c.locked("LOCK TABLES $0.session WRITE")
	defer unlock()
	for b.Trusts(0, id) {
		if !b.Trusts(1, other) {
			t.Fatal("the other database is not trusted any more")
		}
		time.Sleep(20 * time.Millisecond)
	}
	first := c.beat(1, other)
	for began := time.Now(); time.Since(began) < 4*time.Second; {
		if !b.Trusts(1, other) {
			t.Fatal("the other database is not trusted any more")
		}
		time.Sleep(20 * time.Millisecond)
	}
	if beats := c.beat(1, other) - first; beats < 4 {
		t.Errorf("%d beats in 4 s", beats)
	}
	unlock()
	if err := b.Opened(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if a.sees(1) != "a self, b" || len(b.ended) > 0 && slices.Contains(b.ended, other) {
		t.Errorf("%s; ended %v", a.sees(1), b.ended)
	}
}

func (c *cluster) beat(database int, id string) (beat int) {
	c.t.Helper()
	if err := c.db.GetContext(c.t.Context(), &beat, c.sql(fmt.Sprintf("SELECT beat FROM $%d.session WHERE id = ?", database)), id); err != nil {
		c.t.Fatal(err)
	}
	return beat
}

func TestAMissingTableIsNoEnd(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a")
	id := a.id(0)
	c.exec("RENAME TABLE $0.session TO $0.session_away")
	for a.Trusts(0, id) {
		time.Sleep(20 * time.Millisecond)
	}
	if other := a.id(1); !a.Trusts(1, other) {
		t.Error("the other database is not trusted")
	}
	c.exec("RENAME TABLE $0.session_away TO $0.session")
	if err := a.Opened(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.id(0) != id || len(a.ended) > 0 {
		t.Errorf("session %s, was %s; ended %v", a.id(0), id, a.ended)
	}
}

func TestOpenedWaitsNoLongerThanItsContext(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s, err := store.Connect(t.Context(), c.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	k, err := New(Config{Store: s, Group: "orders", Node: "a"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := k.Opened(ctx, false); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := New(Config{Store: s}); err == nil {
		t.Error("a keeper of nobody")
	}
}
