package standin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/duequeue"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is two servers, one with the even and one with the odd tables, and an intake.
type world struct {
	mu      sync.Mutex
	lease   bool
	down    bool                            // server 0 fails
	queries []store.PeekQuery               // to server 0
	rows    map[int][]duequeue.Entry        // by table
	admits  map[int]string                  // table -> owner and types
	offered map[tocsin.JobID]duequeue.Entry // so far
	full    bool                            // the intake refuses
}

func newWorld() *world {
	return &world{lease: true, rows: map[int][]duequeue.Entry{}, admits: map[int]string{}, offered: map[tocsin.JobID]duequeue.Entry{}}
}

func (w *world) Servers() []string      { return []string{"db1", "db2"} }
func (w *world) ServerOf(table int) int { return table % 2 }
func (w *world) Now(int) int64          { return time.Now().UnixMilli() }

func (w *world) Peek(_ context.Context, q store.PeekQuery) (page store.Page, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if q.Server == 0 {
		w.queries = append(w.queries, q)
		if w.down {
			return page, errors.New("connection refused")
		}
	}
	for _, table := range q.Tables {
		rows := 0
		for _, e := range w.rows[table] {
			if rows < q.Limit && slices.Contains(q.Types, e.Type) && e.Due >= q.From && e.Due <= q.Until {
				page.Entries = append(page.Entries, e)
				if rows++; rows == q.Limit {
					page.Full = append(page.Full, e)
				}
			}
		}
	}
	return page, nil
}

func (w *world) StandIn(tables []int, owner string, types []uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, table := range tables {
		w.admits[table] = fmt.Sprint(owner, types)
	}
}

func (w *world) StandDown(tables []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, table := range tables {
		delete(w.admits, table)
	}
}

func (w *world) Offer(_ int, entries []duequeue.Entry) (refused duequeue.Refused) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range entries {
		if w.full {
			refused.Note(e.Type, e.Due)
		} else {
			w.offered[e.JobID] = e
		}
	}
	return refused
}

func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// add puts a row of a type into a table.
func (w *world) add(table int, bizType uint64, in time.Duration) tocsin.JobID {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := tocsin.JobID(1<<40 | table<<9 | len(w.rows[table])<<22)
	w.rows[table] = append(w.rows[table], duequeue.Entry{JobID: id, Type: bizType, Due: time.Now().Add(in).UnixMilli()})
	return id
}

func (w *world) has(id tocsin.JobID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, has := w.offered[id]
	return has
}

// standsIn returns the owners and types it stands in for, by table.
func (w *world) standsIn() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprint(w.admits)
}

// inBubble runs f with a StandIn that knows the types a (1) and b (2).
func (w *world) inBubble(t *testing.T, log *devtest.Log, f func(s *StandIn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Config{
			Tables: w, Intake: w, Logger: log.Logger(), May: func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.lease },
			Number: func(name string) (uint64, bool) { n := map[string]uint64{"a": 1, "b": 2}[name]; return n, n > 0 },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		f(s)
		end()
		if err := <-ended; err != nil || len(w.admits) > 0 {
			t.Errorf("ended with %v, still stands in for %v", err, w.admits)
		}
	})
}

// soon lets two looks pass.
func soon() { pass(2 * DefaultEvery) }

// pass lets d go by, and waits for the look that comes at its end.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestRowsThatTheOwnerLacksAreOfferedSoonAndNoOthers(t *testing.T) {
	w := newWorld()
	w.inBubble(t, new(devtest.Log), func(s *StandIn) {
		old, foreign, far := w.add(2, 2, -time.Hour), w.add(2, 1, 0), w.add(4, 2, time.Minute)
		elsewhere := w.add(6, 2, 0)
		s.Set([]Duty{{"n1", []string{"b", "unknown"}, []int{2, 4, 5}}})
		soon()
		if !w.has(old) || w.has(foreign) || w.has(far) || w.has(elsewhere) {
			t.Errorf("old %t, foreign %t, far %t, elsewhere %t", w.has(old), w.has(foreign), w.has(far), w.has(elsewhere))
		}
		if got, want := w.standsIn(), "map[2:n1[2] 4:n1[2] 5:n1[2]]"; got != want {
			t.Errorf("stands in for %s, want %s", got, want)
		}
		fresh, odd := w.add(4, 2, time.Second), w.add(5, 2, 0)
		soon()
		if !w.has(fresh) || !w.has(odd) {
			t.Error("what came since is not offered")
		}
		s.Set([]Duty{{"n1", []string{"b"}, []int{4}}, {"n2", []string{"unknown"}, []int{5}}})
		soon()
		if got, want := w.standsIn(), "map[4:n1[2]]"; got != want {
			t.Errorf("stands in for %s, want %s", got, want)
		}
		pass(time.Minute)
		if !w.has(far) {
			t.Error("what has become due is not offered")
		}
	})
}

func TestWithoutItsLeaseANodeStandsInForNobody(t *testing.T) {
	w := newWorld()
	w.inBubble(t, new(devtest.Log), func(s *StandIn) {
		s.Set([]Duty{{"n1", []string{"b"}, []int{2}}})
		soon()
		w.set(func() { w.lease = false })
		soon()
		late := w.add(2, 2, 0)
		soon()
		if got := w.standsIn(); w.has(late) || got != "map[]" {
			t.Errorf("stands in for %s", got)
		}
		w.set(func() { w.lease = true })
		soon()
		if !w.has(late) {
			t.Error("not offered with the lease back")
		}
	})
}

func TestAServerThatFailsDelaysItsOwnTablesOnly(t *testing.T) {
	w, log := newWorld(), new(devtest.Log)
	w.inBubble(t, log, func(s *StandIn) {
		w.set(func() { w.down = true })
		s.Set([]Duty{{"n1", []string{"a"}, []int{2, 3}}})
		sick, well := w.add(2, 1, 0), w.add(3, 1, 0)
		pass(20 * time.Second)
		if w.has(sick) || !w.has(well) {
			t.Errorf("of the sick server %t, of the other %t", w.has(sick), w.has(well))
		}
		if n := len(log.Lines("tables of nodes that lack biz types can't be looked at")); n != 1 {
			t.Errorf("%d lines in 20 s:\n%v", n, log.Lines())
		}
		w.set(func() { w.down = false })
		soon()
		if !w.has(sick) { // though it is older than an ordinary look reads
			t.Error("not offered by a server that is back")
		}
	})
}

func TestWhatFoundNoRoomIsOfferedAgain(t *testing.T) {
	w := newWorld()
	w.inBubble(t, new(devtest.Log), func(s *StandIn) {
		w.set(func() { w.full = true })
		s.Set([]Duty{{"n1", []string{"a"}, []int{2}}})
		id := w.add(2, 1, 0)
		pass(time.Minute)
		w.set(func() { w.full = false })
		soon()
		if !w.has(id) {
			t.Error("not offered when there is room")
		}
		w.set(func() { w.queries, w.offered = nil, map[tocsin.JobID]duequeue.Entry{} }) // as if its claim had failed
		pass(time.Minute)
		whole, all := 0, 0
		w.set(func() {
			for _, q := range w.queries {
				all++
				if q.From == 0 {
					whole++
				}
			}
		})
		if !w.has(id) || whole < 1 || whole > 3 || all < 100 {
			t.Errorf("offered again: %t; %d of %d looks in a minute were from the beginning", w.has(id), whole, all)
		}
	})
}

// A type that is paused, or whose deliveries hang, leaves its rows at the front.
func TestABacklogOfOneTypeHidesNoOther(t *testing.T) {
	w := newWorld()
	w.inBubble(t, new(devtest.Log), func(s *StandIn) {
		for range 3 * pageLimit {
			w.add(2, 1, -time.Hour)
		}
		behind := w.add(2, 2, -time.Minute)
		s.Set([]Duty{{"n1", []string{"a", "b"}, []int{2, 4}}})
		soon()
		if !w.has(behind) {
			t.Error("not offered behind a backlog of another type")
		}
	})
}
