package dispatcher_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/dispatcher"
	"github.com/tocsinhq/tocsin/duequeue"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/seam"
	"github.com/tocsinhq/tocsin/store"
)

// These tests run against a real server and the real store.

type handler func(context.Context, tocsin.Info) error

func (h handler) Deliver(ctx context.Context, tasks []tocsin.Info) []error {
	errs := make([]error, len(tasks))
	for i, task := range tasks {
		errs[i] = h(ctx, task)
	}
	return errs
}

// site is a small cluster with one running dispatcher.
type site struct {
	*dispatcher.Dispatcher
	tb    testing.TB
	store *store.Store
	db    *sqlx.DB
	stop  context.CancelFunc
	ended chan error
}

func newSite(tb testing.TB, dsn string, h handler) *site {
	tb.Helper()
	cfg := tocsin.Config{
		Layout:  tocsin.Layout{Databases: 2, Tables: 4, Prefix: devtest.Prefix(tb)},
		Servers: []tocsin.Server{{Name: "db1", DSN: dsn}},
	}
	ctx := context.Background()
	must(tb, errOf(ddl.Apply(ctx, cfg, ddl.Options{})))
	st, err := store.Open(cfg)
	must(tb, err)
	must(tb, errOf(st.Measure(ctx, 0)))
	server, err := mysql.Open(seam.Specs(cfg)[0])
	must(tb, err)
	s := &site{tb: tb, store: st, db: server.DB, ended: make(chan error, 1)}
	s.Dispatcher, err = dispatcher.New(dispatcher.Config{
		Store: st, Servers: 1, ServerOf: st.ServerOf, Node: "node-1",
		Target: func(biztype.Policy) (dispatcher.Target, bool) { return dispatcher.Target{Sink: h}, true },
	})
	must(tb, err)
	s.SetPolicies([]biztype.Policy{{Name: "order.close", Number: 1, Concurrency: 64}})
	s.Set(st.TablesOf(0), &duequeue.Access{Owner: "me"})
	run, stop := context.WithCancel(ctx)
	s.stop = stop
	go func() { s.ended <- s.Run(run) }()
	tb.Cleanup(s.close)
	return s
}

func (s *site) close() {
	s.stop()
	if err := <-s.ended; err != nil {
		s.tb.Errorf("run: %v", err)
	}
	must(s.tb, s.store.Close())
	must(s.tb, s.db.Close())
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func errOf[T any](_ T, err error) error { return err }

// add stores n rows and offers them, as the scanner would.
func (s *site) add(n int, in time.Duration) { s.offer(s.insert(n, in)) }

// insert stores n rows that are due the given time from now and returns their
// entries by table.
func (s *site) insert(n int, in time.Duration) map[int][]duequeue.Entry {
	s.tb.Helper()
	layout, due := s.store.Layout(), time.Now().Add(in).UnixMilli()
	text := time.UnixMilli(due).UTC().Format("2006-01-02 15:04:05.000")
	perTable := make(map[int][]duequeue.Entry)
	for i := range n {
		table := i % layout.Total()
		id := tocsin.JobID(1<<50 | i<<22 | table<<9)
		perTable[table] = append(perTable[table], duequeue.Entry{JobID: id, Type: 1, Due: due})
	}
	for table, entries := range perTable {
		for part := range slices.Chunk(entries, 1000) {
			s.insertRows(layout.Table(table), part, text)
		}
	}
	return perTable
}

func (s *site) insertRows(table string, entries []duequeue.Entry, text string) {
	rows := make([]string, len(entries))
	for i, e := range entries {
		rows[i] = fmt.Sprintf("(%d,'%s','%s',7,1,0,'%s','%s','{}')", e.JobID, text, text, text, text)
	}
	_, err := s.db.Exec("INSERT INTO " + table +
		" (job_id, gmt_create, gmt_modified, biz_id, biz_type, status, action_time, due_time, attribute) VALUES " +
		strings.Join(rows, ","))
	must(s.tb, err)
}

func (s *site) offer(perTable map[int][]duequeue.Entry) {
	for _, entries := range perTable {
		if s.Offer(0, entries) != nil {
			s.tb.Error("refused")
		}
	}
}

// await returns when nothing is queued or under way.
func (s *site) await(within time.Duration) {
	s.tb.Helper()
	for end := time.Now().Add(within); ; time.Sleep(2 * time.Millisecond) {
		st := s.Stats()
		if st.Queued+st.Loaded+st.Open+st.Unsettled == 0 {
			return
		}
		if time.Now().After(end) {
			s.tb.Fatalf("not done after %s: %+v", within, st)
		}
	}
}

// done counts the rows with the status done.
func (s *site) done() (n int) {
	s.tb.Helper()
	layout := s.store.Layout()
	for table := range layout.Total() {
		var some int
		must(s.tb, s.db.Get(&some, "SELECT COUNT(*) FROM "+layout.Table(table)+" WHERE status = 2"))
		n += some
	}
	return n
}

func TestRealRowsAreDeliveredOnTimeAndSettled(t *testing.T) {
	t.Parallel()
	var calls, early atomic.Int32
	s := newSite(t, devtest.DSN(t), func(_ context.Context, task tocsin.Info) error {
		calls.Add(1)
		if time.Now().Before(task.ActionTime) { // the server's clock is this machine's
			early.Add(1)
		}
		return nil
	})
	s.add(2000, 500*time.Millisecond)
	s.await(3 * time.Minute)
	if calls.Load() != 2000 || early.Load() != 0 || s.done() != 2000 {
		t.Errorf("%d calls, %d early, %d done", calls.Load(), early.Load(), s.done())
	}
}

func TestNothingIsLostWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server, err := devserver.StartMariaDB(t.Context(), devserver.MariaDBConfig{Dir: dir})
	must(t, err)
	var calls atomic.Int32
	var s *site
	t.Cleanup(func() { must(t, server.Stop()) })
	s = newSite(t, server.DSN(), func(context.Context, tocsin.Info) error {
		calls.Add(1)
		time.Sleep(5 * time.Millisecond)
		return nil
	})
	s.add(4000, 0)
	for calls.Load() < 500 {
		time.Sleep(time.Millisecond)
	}
	port := server.Port()
	must(t, server.Kill())
	_ = server.Stop()
	time.Sleep(time.Second)
	server, err = devserver.StartMariaDB(context.Background(), devserver.MariaDBConfig{Dir: dir, Port: port})
	must(t, err)
	s.await(3 * time.Minute)
	if s.done() != 4000 {
		t.Errorf("%d of 4000 done", s.done())
	}
	t.Logf("%d deliveries of 4000 tasks", calls.Load())
}

// BenchmarkDrain loads, delivers and settles no-op tasks that are due.
func BenchmarkDrain(b *testing.B) {
	s := newSite(b, devtest.DSN(b), func(context.Context, tocsin.Info) error { return nil })
	entries := s.insert(b.N, 0)
	b.ReportAllocs()
	b.ResetTimer()
	s.offer(entries)
	s.await(10 * time.Minute)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
}
