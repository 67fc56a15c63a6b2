package sweeper

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/duequeue"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/store"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// small is an intake with room for three entries at a time. It takes each entry
// as settled when its server is asked for the oldest.
type small struct {
	mu   sync.Mutex
	held []duequeue.Entry
	got  map[tocsin.JobID]int
}

func (s *small) Offer(_ int, entries []duequeue.Entry) duequeue.Refused {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range entries {
		if s.got[e.JobID] > 0 {
			continue // known
		}
		if len(s.held) == 3 {
			s.held = nil // settled by the time it is asked again
			return duequeue.Refused{e.Type: e.Due}
		}
		s.held = append(s.held, e)
		s.got[e.JobID]++
	}
	return nil
}

func (s *small) Oldest(int) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.held) == 0 {
		return math.MaxInt64
	}
	s.held = s.held[1:]
	return 1
}

// fixture is a cluster with tasks and the store to sweep it with.
type fixture struct {
	cfg    tocsin.Config
	client *tocsin.Client
	store  *store.Store
}

func newFixture(t *testing.T) fixture {
	t.Helper()
	cfg := tocsin.Config{
		Layout:  tocsin.Layout{Databases: 2, Tables: 40, Prefix: devtest.Prefix(t)},
		Servers: []tocsin.Server{{Name: "db1", DSN: devtest.DSN(t)}},
	}
	if _, err := ddl.Apply(t.Context(), cfg, ddl.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := biztype.Apply(t.Context(), cfg, []biztype.Policy{{Name: "a", Number: 1, Group: "g"}}); err != nil {
		t.Fatal(err)
	}
	client, err := tocsin.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = client.Close(), db.Close() })
	return fixture{cfg, client, db}
}

// add stores n tasks that are due now and returns their ids.
func (f fixture) add(t *testing.T, n int) map[tocsin.JobID]bool {
	t.Helper()
	var tasks []tocsin.NewTask
	for i := range n {
		tasks = append(tasks, tocsin.Define[string]("a").New(uint64(i+1), "", tocsin.In(0)))
	}
	added, err := f.client.AddMany(t.Context(), tasks)
	if err != nil {
		t.Fatal(err)
	}
	ids := make(map[tocsin.JobID]bool)
	for _, a := range added {
		ids[a.JobID] = true
	}
	return ids
}

func (f fixture) sweeper(t *testing.T, intake Intake) *Sweeper {
	t.Helper()
	s, err := New(Config{
		Tables: f.store, Now: f.store.Now, Servers: f.store.Servers(), TablesOf: f.store.TablesOf, Intake: intake,
		Policies: func() []biztype.Policy { return []biztype.Policy{{Name: "a", Number: 1, Group: "g"}} },
		Can:      func(biztype.Policy) bool { return true }, Grace: -1, Page: 2,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSweepHandsOverEveryEntryOfFullPagesToAFullIntake(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ids := f.add(t, 400)
	intake := &small{got: map[tocsin.JobID]int{}}
	result, err := f.sweeper(t, intake).Sweep(t.Context())
	if err != nil || result.Tables != 80 || result.Overdue != 400 {
		t.Errorf("%s, %v", result, err)
	}
	for id := range ids {
		if intake.got[id] != 1 {
			t.Errorf("task %s was handed over %d times", id, intake.got[id])
		}
	}
}

func TestSweepNamesTheTableThatFailsAndReadsTheOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ids := f.add(t, 200)
	lost := f.cfg.Layout.Table(7)
	dropTable(t, lost)
	want := 0
	for id := range ids {
		if id.Table() != 7 {
			want++
		}
	}
	intake := &small{got: map[tocsin.JobID]int{}}
	result, err := f.sweeper(t, intake).Sweep(t.Context())
	if err == nil || !strings.Contains(err.Error(), lost) {
		t.Errorf("error %v does not name %s", err, lost)
	}
	if result.Tables != 79 || result.Overdue != want || len(intake.got) != want || fmt.Sprint(result.Failed) != "[db1]" {
		t.Errorf("%s; handed over %d, want %d", result, len(intake.got), want)
	}
}

func TestSweepThatIsCutOffReturnsWhatItHas(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.add(t, 100)
	ctx, cancel := context.WithCancel(t.Context())
	intake := &cutting{small{got: map[tocsin.JobID]int{}}, cancel}
	result, err := f.sweeper(t, intake).Sweep(ctx)
	if !errors.Is(err, context.Canceled) || result.Overdue == 0 || result.Tables == 80 {
		t.Errorf("%s, %v", result, err)
	}
	if result.CutOff != result.Overdue || result.Elsewhere != 0 || len(result.Failed) != 0 {
		t.Errorf("%s: nothing is settled yet, and no server failed", result)
	}
	if late := result.Settled(Counts{Delivered: 1}); late.Delivered != 1 || late.CutOff != result.CutOff-1 {
		t.Errorf("%s: one was settled at the end", late)
	}
}

// cutting ends the sweep at the first entries it is offered.
type cutting struct {
	small
	cancel context.CancelFunc
}

func (c *cutting) Offer(server int, entries []duequeue.Entry) duequeue.Refused {
	c.cancel()
	return c.small.Offer(server, entries)
}

func TestDryRunOfAnUnreachableServerNamesIt(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.add(t, 10)
	s := f.sweeper(t, nil)
	if result, err := s.Sweep(t.Context()); err != nil || result.Overdue != 10 || result.Elsewhere != 0 {
		t.Errorf("%s, %v", result, err)
	}
	gone := f.cfg
	gone.Servers = []tocsin.Server{{Name: "gone", DSN: "root:secret@tcp(127.0.0.1:1)/"}}
	db, err := store.Open(gone)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s.cfg.Tables, s.cfg.Servers = db, db.Servers()
	result, err := s.Sweep(t.Context())
	if err == nil || !strings.Contains(err.Error(), "gone") || strings.Contains(err.Error(), "secret") || result.Tables != 0 {
		t.Errorf("%s, %v", result, err)
	}
}

func TestResidentSweeperEndsWithItsContext(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	schedule, err := ParseSchedule("@every 1s")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := f.sweeper(t, nil).Run(ctx, schedule); err != nil {
		t.Error(err)
	}
}
