package upkeep

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/store"
)

// recording is a site whose runs are recorded.
type recording struct {
	*site
	*Recorder
	log *devtest.Log
}

func newRecording(t *testing.T, capacity int) *recording {
	t.Helper()
	s := newSite(t, small)
	return (&recording{site: s}).of(s.store, s.store.Servers(), capacity)
}

func (s *recording) of(runs Runs, servers []string, capacity int) *recording {
	s.log = new(devtest.Log)
	s.Recorder = newRecorder(RecorderConfig{Runs: runs, Servers: servers, Logger: s.log.Logger()}, capacity)
	return s
}

// start runs the recorder until the returned function is called, which waits for its end.
func (s *recording) start() (stop func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	return func() { cancel(); running.Wait() }
}

// runOf makes the n-th run of a table.
func runOf(table, n int) *store.Run {
	return &store.Run{JobID: tocsin.JobID(n+1)<<22 | tocsin.JobID(table)<<9, Type: 1, Attempt: 1, Node: "shop", Started: 1_800_000_000_000, Outcome: store.RunCompleted}
}

// runsOf makes n runs over all tables.
func runsOf(n int) (all []*store.Run) {
	for i := range n {
		all = append(all, runOf(i%4, i))
	}
	return all
}

// in counts the runs of a database.
func (s *recording) in(database int) (n int) {
	s.t.Helper()
	if err := s.db.QueryRow("SELECT COUNT(*) FROM " + s.layout.Database(database) + ".run").Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// counts are the metrics.
func (s *recording) counts() (recorded, dropped, failed int) {
	return int(testutil.ToFloat64(s.metrics.recorded)), int(testutil.ToFloat64(s.metrics.dropped)), int(testutil.ToFloat64(s.metrics.failed))
}

func (s *recording) want(recorded, dropped, failed int) {
	s.t.Helper()
	if r, d, f := s.counts(); r != recorded || d != dropped || f != failed {
		s.t.Errorf("%d recorded, %d dropped, %d failed, want %d, %d and %d; log: %s", r, d, f, recorded, dropped, failed, s.log.Lines())
	}
}

// until waits for an event.
func (s *recording) until(what string, done func() bool) {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("waited a minute for %s; log: %s", what, s.log.Lines())
		}
	}
}

// Many record at the same time.
func TestWhatIsQueuedIsWrittenAtTheEnd(t *testing.T) {
	t.Parallel()
	s := newRecording(t, queueBytes)
	stop := s.start()
	var all sync.WaitGroup
	for some := range slices.Chunk(runsOf(4999), 625) { // three batches
		all.Go(func() {
			for few := range slices.Chunk(some, 25) {
				s.Record(0, slices.Clone(few))
			}
		})
	}
	all.Wait()
	stop()
	s.want(4999, 0, 0)
	if s.in(0) != 2500 || s.in(1) != 2499 {
		t.Errorf("%d and %d runs", s.in(0), s.in(1))
	}
}

func TestARefusedRunHidesNoOtherOfItsBatch(t *testing.T) {
	t.Parallel()
	s := newRecording(t, queueBytes)
	all := runsOf(1000)
	all[17].Output = strings.Repeat("x", tocsin.MaxOutput+1)
	all[500].Output = "\xff"
	all[999].Attempt = 1 << 20
	s.Record(0, all)
	s.start()()
	s.want(997, 0, 3)
	if s.in(0)+s.in(1) != 997 || len(s.log.Lines("runs can't be recorded: the history lacks them, their tasks are not affected")) != 1 {
		t.Errorf("%d and %d runs; log: %s", s.in(0), s.in(1), s.log.Lines())
	}
}

func TestATableThatRefusesEveryRunIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := newRecording(t, queueBytes)
	s.exec("ALTER TABLE " + s.layout.Database(0) + ".run CHANGE outcome result VARCHAR(16)")
	s.Record(0, runsOf(1000))
	before := s.status("Com_insert")
	s.start()()
	s.want(500, 0, 500)
	if n := s.status("Com_insert") - before; s.in(1) != 500 || n > 200 { // other tests use the server too, with fewer inserts
		t.Errorf("%d runs, %d statements", s.in(1), n)
	}
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
			s := newRecording(t, queueBytes)
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
			s.Record(0, runsOf(40))
			s.until("the other database's runs", func() bool { return s.in(1) == 20 })
			s.until("the failures", func() bool { _, _, failed := s.counts(); return failed == 20 })
			exec(c.well)
			s.until("runs of both", func() bool {
				s.Record(0, []*store.Run{runOf(0, 100), runOf(3, 100)})
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
	s := newRecording(t, 100*perRun)
	s.exec("RENAME TABLE " + s.layout.Database(1) + ".run TO " + s.layout.Database(1) + ".gone")
	s.Record(0, runsOf(150))
	s.want(0, 50, 0)
	s.start()()
	s.want(50, 50, 50)
	if len(s.log.Lines("runs are dropped: the history lacks them, their tasks are not affected")) != 1 {
		t.Error(s.log.Lines())
	}
}

// fake is a server that answers as a test says. Its one database is 0.
type fake struct {
	answer func(ctx context.Context, runs []*store.Run) (sent bool, err error)
}

func (f fake) RecordRuns(ctx context.Context, _ int, runs []*store.Run) (bool, error) {
	return f.answer(ctx, runs)
}

func (fake) RunsIn(tocsin.JobID) int { return 0 }

// inBubble runs a recorder beside f, which ends it by calling stop.
func inBubble(t *testing.T, answer func(context.Context, []*store.Run) (bool, error), f func(s *recording, stop func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := (&recording{site: &site{t: t}}).of(fake{answer}, []string{"db1"}, 3000*perRun)
		f(s, s.start())
	})
}

// pass lets d go by, and waits until all that happens at its end has happened.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestABatchWaitsForItsServerAndTheQueueFills(t *testing.T) {
	var back atomic.Bool
	var writes atomic.Int32
	inBubble(t, func(context.Context, []*store.Run) (bool, error) {
		if writes.Add(1); !back.Load() {
			return false, driver.ErrInvalidConn
		}
		return true, nil
	}, func(s *recording, stop func()) {
		s.Record(0, runsOf(2000))
		pass(time.Minute)
		s.Record(0, runsOf(3500))
		s.want(0, 500, 0)
		if n := writes.Load(); n > 30 {
			t.Errorf("%d tries in a minute", n)
		}
		back.Store(true)
		pass(10 * time.Second)
		s.want(5000, 500, 0)
		stop()
	})
}

func TestABatchThatMayBeStoredIsNotSentAgain(t *testing.T) {
	var writes atomic.Int32
	inBubble(t, func(context.Context, []*store.Run) (bool, error) {
		writes.Add(1)
		return true, driver.ErrInvalidConn
	}, func(s *recording, stop func()) {
		s.Record(0, runsOf(10))
		pass(time.Minute)
		s.want(0, 0, 10)
		if n := writes.Load(); n != 1 {
			t.Errorf("sent %d times", n)
		}
		stop()
	})
}

func TestTheEndWaitsTwoSecondsForAServerThatHangs(t *testing.T) {
	inBubble(t, func(ctx context.Context, _ []*store.Run) (bool, error) {
		<-ctx.Done()
		return false, ctx.Err()
	}, func(s *recording, stop func()) {
		s.Record(0, runsOf(2500))
		time.Sleep(time.Second)
		began := time.Now()
		stop()
		if took := time.Since(began); took != endWithin {
			t.Errorf("ended after %s", took)
		}
		s.want(0, 2500, 0)
	})
}

func TestABurstComesBeforeItsHistory(t *testing.T) {
	var writes []time.Time
	inBubble(t, func(context.Context, []*store.Run) (bool, error) {
		writes = append(writes, time.Now())
		time.Sleep(100 * time.Millisecond)
		return true, nil
	}, func(s *recording, stop func()) {
		began := time.Now()
		s.Record(0, runsOf(1))
		time.Sleep(time.Second)
		s.Record(0, runsOf(1))
		s.Record(0, runsOf(3000)) // no room for one
		time.Sleep(time.Minute)
		stop()
		var at []time.Duration
		for _, w := range writes {
			at = append(at, w.Sub(began))
		}
		// alone: after the linger; a full batch at once; what is left of it, a third of the queue, after a pause as long as that took
		want := []time.Duration{200 * time.Millisecond, time.Second, 1400 * time.Millisecond}
		if len(at) != 3 || at[0] != want[0] || at[1] != want[1] || at[2] != want[2] {
			t.Errorf("written at %v, want %v", at, want)
		}
		s.want(3000+1, 1, 0)
	})
}

func TestAnErrorOfTheBatchIsNoEndlessHalving(t *testing.T) {
	var writes atomic.Int32
	inBubble(t, func(context.Context, []*store.Run) (bool, error) {
		writes.Add(1)
		return false, errors.New("unknown column")
	}, func(s *recording, stop func()) {
		s.Record(0, runsOf(2000))
		time.Sleep(time.Minute)
		stop()
		s.want(0, 0, 2000)
		if n := writes.Load(); n > 40 {
			t.Errorf("%d statements for a table that takes nothing", n)
		}
	})
}
