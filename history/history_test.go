package history

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/store"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// site is a cluster of its own: two databases of two tables.
type site struct {
	t      *testing.T
	layout tocsin.Layout
	store  *store.Store
	db     *sql.DB
	log    *lockedLog
	*Recorder
}

// lockedLog is a log that is read while it is written.
type lockedLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lockedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, layout: tocsin.Layout{Databases: 2, Tables: 2, Prefix: devtest.Prefix(t)}, log: &lockedLog{}}
	cfg := tocsin.Config{Layout: s.layout, Servers: []tocsin.Server{{Name: "db1", DSN: devtest.DSN(t)}}}
	if _, err := ddl.Apply(t.Context(), cfg, ddl.Options{Cluster: "test"}); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.store, err = store.Open(cfg); err != nil {
		t.Fatal(err)
	}
	if s.db, err = sql.Open("mysql", devtest.DSN(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = s.db.Close(), s.store.Close() })
	s.make(Config{})
	return s
}

func (s *site) make(cfg Config) {
	s.t.Helper()
	cfg.Runs, cfg.Servers, cfg.Logger = s.store, s.store.Servers(), slog.New(slog.NewTextHandler(s.log, nil))
	var err error
	if s.Recorder, err = New(cfg); err != nil {
		s.t.Fatal(err)
	}
}

// start runs the recorder until the returned function is called, which waits for its end.
func (s *site) start() (stop func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	return func() { cancel(); running.Wait() }
}

func (s *site) exec(query string) {
	s.t.Helper()
	if _, err := s.db.Exec(query); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
}

// run makes the n-th run of a table.
func run(table, n int) *store.Run {
	return &store.Run{JobID: tocsin.JobID(n+1)<<22 | tocsin.JobID(table)<<9, Type: 1, Attempt: 1, Node: "shop", Started: 1_800_000_000_000, Outcome: store.RunCompleted}
}

// runs makes n runs over all tables.
func runs(n int) (all []*store.Run) {
	for i := range n {
		all = append(all, run(i%4, i))
	}
	return all
}

// in counts the runs of a database.
func (s *site) in(database int) (n int) {
	s.t.Helper()
	if err := s.db.QueryRow("SELECT COUNT(*) FROM " + s.layout.Database(database) + ".run").Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// counts are the metrics.
func (s *site) counts() (recorded, dropped, failed int) {
	return int(testutil.ToFloat64(s.metrics.recorded)), int(testutil.ToFloat64(s.metrics.dropped)), int(testutil.ToFloat64(s.metrics.failed))
}

func (s *site) want(recorded, dropped, failed int) {
	s.t.Helper()
	if r, d, f := s.counts(); r != recorded || d != dropped || f != failed {
		s.t.Errorf("%d recorded, %d dropped, %d failed, want %d, %d and %d; log: %s", r, d, f, recorded, dropped, failed, s.log)
	}
}

// until waits for an event.
func (s *site) until(what string, done func() bool) {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("waited a minute for %s; log: %s", what, s.log)
		}
	}
}

func TestWhatIsQueuedIsWrittenAtTheEnd(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	stop := s.start()
	s.Record(0, runs(4999)) // three batches
	stop()
	s.want(4999, 0, 0)
	if s.in(0) != 2500 || s.in(1) != 2499 {
		t.Errorf("%d and %d runs", s.in(0), s.in(1))
	}
}

func TestRunsAreWrittenBeforeTheEndToo(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	defer s.start()()
	for n := range 3 {
		s.Record(0, []*store.Run{run(0, n)})
		s.until("the run", func() bool { return s.in(0) == n+1 })
	}
}

func TestARefusedRunHidesNoOtherOfItsBatch(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	all := runs(1000)
	all[17].Output = strings.Repeat("x", tocsin.MaxOutput+1)
	all[500].Output = "\xff"
	all[999].Attempt = 1 << 20
	s.Record(0, all)
	s.start()()
	s.want(997, 0, 3)
	if s.in(0)+s.in(1) != 997 || strings.Count(s.log.String(), "runs can't be recorded") != 1 {
		t.Errorf("%d and %d runs; log: %s", s.in(0), s.in(1), s.log)
	}
}

func TestATableThatRefusesEveryRunIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.exec("ALTER TABLE " + s.layout.Database(0) + ".run CHANGE outcome result VARCHAR(16)")
	s.Record(0, runs(1000))
	before := s.statements()
	s.start()()
	s.want(500, 0, 500)
	if n := s.statements() - before; s.in(1) != 500 || n > 200 {
		t.Errorf("%d runs, %d statements", s.in(1), n)
	}
}

// statements counts those of the server that failed or not; others use it too, but not with so many inserts.
func (s *site) statements() (n int) {
	s.t.Helper()
	var ignored string
	if err := s.db.QueryRow("SHOW GLOBAL STATUS LIKE 'Com_insert'").Scan(&ignored, &n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

func TestAMissingOrLockedTableCostsItsOwnDatabaseOnly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ sick, well string }{
		"missing":   {"RENAME TABLE {db}.run TO {db}.gone", "RENAME TABLE {db}.gone TO {db}.run"},
		"locked":    {"LOCK TABLES {db}.run WRITE", "UNLOCK TABLES"},
		"read-only": {"LOCK TABLES {db}.run READ", "UNLOCK TABLES"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			conn, err := s.db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			exec := func(query string) {
				t.Helper()
				if _, err := conn.ExecContext(t.Context(), strings.ReplaceAll(query, "{db}", s.layout.Database(0))); err != nil {
					t.Fatal(err)
				}
			}
			exec(c.sick)
			stop := s.start()
			s.Record(0, runs(40))
			s.until("the other database's runs", func() bool { return s.in(1) == 20 })
			s.until("the failures", func() bool { _, _, failed := s.counts(); return failed == 20 })
			exec(c.well)
			s.until("runs of both", func() bool {
				s.Record(0, []*store.Run{run(0, 100), run(3, 100)})
				return s.in(0) > 0
			})
			stop()
			recorded, dropped, _ := s.counts()
			if dropped != 0 || recorded != s.in(0)+s.in(1) {
				t.Errorf("%d recorded, %d dropped; %d and %d there", recorded, dropped, s.in(0), s.in(1))
			}
		})
	}
}

func TestADropIsCountedWhenTheQueueIsFull(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.make(Config{QueueBytes: 100 * perRun})
	s.exec("RENAME TABLE " + s.layout.Database(1) + ".run TO " + s.layout.Database(1) + ".gone")
	s.Record(0, runs(150))
	s.want(0, 50, 0)
	s.start()()
	s.want(50, 50, 50)
	if !strings.Contains(s.log.String(), "runs are dropped") {
		t.Error(s.log)
	}
}

func TestNewRefusesWhatItCannotUse(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{
		"nothing":          {},
		"no servers":       {Runs: fake{}},
		"a negative queue": {Runs: fake{}, Servers: []string{"a"}, QueueBytes: -1},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestManyRecordAtOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	stop := s.start()
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for n := range 50 {
				s.Record(0, []*store.Run{run(g%4, 50*g+n)})
			}
		})
	}
	all.Wait()
	stop()
	s.want(400, 0, 0)
	if n := s.in(0) + s.in(1); n != 400 {
		t.Error(fmt.Sprint(n, " runs"))
	}
}
