package scanner

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/store"
)

// tape is rows whose Due takes a moment, as otherwise a backlog would be read in no
// time in a bubble.
type tape struct {
	*rows
	asked   int // how often whole rows were read, guarded by rows.mu
	seq     int
	failing error  // what Due says, guarded by rows.mu; nil: all is well
	endless int    // a table whose rows Due never finds an end of; 0: none
	after   func() // what happens once a page is read, guarded by rows.mu; nil: nothing
}

func newTape(tables int) *tape {
	return &tape{rows: &rows{places: tables, pending: make(map[tocsin.JobID]row)}}
}

func (p *tape) DueIDs(ctx context.Context, q store.DueQuery) (store.DuePage, error) {
	return idsOf(p.Due(ctx, q))
}

func (p *tape) Due(ctx context.Context, q store.DueQuery) (store.DuePage, error) {
	time.Sleep(50 * time.Millisecond)
	p.mu.Lock()
	p.asked++
	failing, after := p.failing, p.after
	p.mu.Unlock()
	if slices.ContainsFunc(q.From, func(at store.Place) bool { return at.Table == p.endless && at.Table > 0 }) {
		<-ctx.Done()
		return store.DuePage{}, ctx.Err()
	}
	if failing != nil {
		return store.DuePage{}, failing
	}
	page, err := p.rows.Due(ctx, q)
	if after != nil {
		after()
	}
	return page, err
}

// fill adds n rows of a table, a millisecond apart from the given time on.
func (p *tape) fill(table int, typ uint64, from time.Time, n int) (ids []tocsin.JobID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range n {
		p.seq++
		id := tocsin.JobID(p.seq<<22 | table<<9)
		p.pending[id] = row{Entry: duequeue.Entry{JobID: id, Type: typ, Due: from.UnixMilli() + int64(i)}}
		ids = append(ids, id)
	}
	return ids
}

// quick is an intake that starts whole rows as they come and completes them at
// once, a few at a time. What it is offered as ids it keeps.
type quick struct {
	*tape
	rate int // rows in one page

	mu      sync.Mutex
	types   []uint64
	slow    map[uint64]bool // has no demand
	full    bool            // takes no ids
	taken   []tocsin.JobID
	offered map[tocsin.JobID]bool
}

func newQuick(p *tape, types ...uint64) *quick {
	return &quick{tape: p, rate: 10, types: types, slow: make(map[uint64]bool), offered: make(map[tocsin.JobID]bool)}
}

func (q *quick) Offer(_ int, entries []duequeue.Entry) []duequeue.Entry {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.full {
		return slices.Clone(entries)
	}
	for _, e := range entries {
		q.offered[e.JobID] = true
	}
	return nil
}

func (q *quick) Heard(server int) []uint64 { return q.Wanted(server) }

func (q *quick) Wanted(int) []uint64 { return slices.Clone(q.types) }

func (q *quick) Set([]int, *duequeue.Access) {}

func (q *quick) Reserve(_ int, bizType uint64, most int) duequeue.Room {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.slow[bizType] {
		return duequeue.Room{}
	}
	return duequeue.Room{Rows: min(q.rate, most)}
}

func (q *quick) Take(_ context.Context, _ int, _ uint64, _ duequeue.Room, rows []store.Row, _ time.Time) []duequeue.Entry {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tape.mu.Lock()
	defer q.tape.mu.Unlock()
	for _, row := range rows {
		q.taken = append(q.taken, row.JobID)
		delete(q.pending, row.JobID)
	}
	return nil
}

func (q *quick) OwnLook(context.Context, int, []int) error { return nil }

func (q *quick) Room(server int, bizType uint64, most int) int {
	return q.Reserve(server, bizType, most).Rows
}

func (q *quick) Fetched(_ int, _ uint64, _ int, entries []duequeue.Entry) []duequeue.Entry {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tape.mu.Lock()
	defer q.tape.mu.Unlock()
	for _, e := range entries {
		q.taken = append(q.taken, e.JobID)
		delete(q.pending, e.JobID)
	}
	return nil
}

// has reports how many of the ids were taken whole.
func (q *quick) has(ids []tocsin.JobID) (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, id := range ids {
		if slices.Contains(q.taken, id) {
			n++
		}
	}
	return n
}

// found reports how many of the ids came, whole or as ids.
func (q *quick) found(ids []tocsin.JobID) (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, id := range ids {
		if q.offered[id] || slices.Contains(q.taken, id) {
			n++
		}
	}
	return n
}

// pass lets d go by, and waits until all that happens at its end has happened.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// playTape runs f beside a scanner of the quick intake in a bubble.
func playTape(t *testing.T, tables int, types []uint64, f func(*testing.T, *quick, *Scanner)) {
	t.Helper()
	for _, claims := range []bool{false, true} {
		t.Run(map[bool]string{false: "whole rows", true: "ids"}[claims], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQuick(newTape(tables), types...)
				f(t, q, run(t, Config{Store: q.tape, Intake: q, Claims: claims}))
			})
		})
	}
}

func owned(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

func TestABacklogIsPulledOldestTableFirst(t *testing.T) {
	playTape(t, 2, []uint64{1}, func(t *testing.T, q *quick, s *Scanner) {
		newer := q.fill(0, 1, time.Now().Add(-time.Minute), 300)
		older := q.fill(1, 1, time.Now().Add(-time.Hour), 300)
		s.Set(owned(2), owner)
		pass(10 * time.Second)
		if n, m := q.has(older), q.has(newer); n != 300 || m != 300 || len(q.offered) != 0 {
			t.Errorf("pulled %d and %d of 300, %d as ids", n, m, len(q.offered))
		}
		for i := 300 + q.rate*3; i < len(q.taken); i++ {
			if q.taken[i].Table() != 0 {
				t.Fatalf("row %d is of the older table", i)
			}
		}
	})
}

// A lane without demand costs no statement, however long its backlog is; when it has demand, its rows come.
func TestALaneWithoutDemandIsNotRead(t *testing.T) {
	playTape(t, 1, []uint64{1}, func(t *testing.T, q *quick, s *Scanner) {
		q.slow[1] = true
		ids := q.fill(0, 1, time.Now().Add(-time.Hour), 300)
		s.Set(owned(1), owner)
		pass(3 * DefaultFullEvery)
		q.mu.Lock()
		if q.asked != 0 || len(q.offered)+len(q.taken) != 0 {
			t.Errorf("read %d times, %d ids offered, %d rows taken", q.asked, len(q.offered), len(q.taken))
		}
		q.slow[1] = false
		q.mu.Unlock()
		s.Wake(0)
		pass(2 * time.Second)
		if n := q.has(ids); n != len(ids) {
			t.Errorf("%d of %d rows came", n, len(ids))
		}
	})
}

// When a backlog is read up to now, its table is not asked again and again for what becomes due: peeks find that.
func TestABacklogThatIsReadUpIsNotPulledOn(t *testing.T) {
	playTape(t, 2, []uint64{1}, func(t *testing.T, q *quick, s *Scanner) {
		q.rate = 1000
		ids := q.fill(0, 1, time.Now().Add(-time.Minute), 300)
		soon := q.fill(0, 1, time.Now().Add(8*time.Second), 3)
		s.Set(owned(2), owner)
		pass(DefaultInterval)
		if n, found := q.has(ids), q.found(soon); n != len(ids) || found != len(soon) {
			t.Errorf("%d of %d due rows came, and %d of %d that are due soon", n, len(ids), found, len(soon))
		}
		q.tape.mu.Lock()
		defer q.tape.mu.Unlock()
		if q.asked > 3 {
			t.Errorf("whole rows were read %d times", q.asked)
		}
	})
}

// Many tables with a few due rows each are a backlog too: their rows are read whole, together.
func TestAFewDueRowsOfManyTablesArePulled(t *testing.T) {
	const tables = 64
	playTape(t, tables, []uint64{1}, func(t *testing.T, q *quick, s *Scanner) {
		q.rate = 1000
		var ids []tocsin.JobID
		for table := range tables {
			ids = append(ids, q.fill(table, 1, time.Now().Add(-time.Minute), 20)...)
		}
		s.Set(owned(tables), owner)
		pass(time.Second)
		if n := q.has(ids); n != len(ids) || len(q.offered) > 0 {
			t.Errorf("%d of %d rows were read whole, %d ids offered", n, len(ids), len(q.offered))
		}
	})
}

// What finds no room, as when a bell rings for a full lane, is pulled as soon as it is due if there is demand.
func TestWhatFindsNoRoomIsPulledWhenItIsDue(t *testing.T) {
	playTape(t, 1, []uint64{1}, func(t *testing.T, q *quick, s *Scanner) {
		s.Set(owned(1), owner)
		pass(time.Second)
		q.mu.Lock()
		q.full = true
		q.mu.Unlock()
		id := q.fill(0, 1, time.Now(), 1)
		s.servers[0].offer([]duequeue.Entry{{JobID: id[0], Type: 1, Due: time.Now().UnixMilli()}})
		pass(100 * time.Millisecond)
		if q.has(id) != 1 {
			t.Error("it did not come")
		}
		due := time.Now().Add(2 * time.Second)
		again := q.fill(0, 1, due, 1) // put off by the intake, that is
		s.Refuse(0, []duequeue.Entry{{JobID: again[0], Type: 1, Due: due.UnixMilli()}})
		pass(2 * time.Second)
		if n := q.has(again); n != 0 {
			t.Errorf("%d came early", n)
		}
		pass(pullEvery + 100*time.Millisecond)
		if q.has(again) != 1 {
			t.Error("what was put off did not come")
		}
	})
}

// A table whose pull gets no answer holds up no other table of its lane, and its server does not count as failing.
func TestAPullWithoutAnAnswerHoldsUpNoOtherTable(t *testing.T) {
	playTape(t, 4, []uint64{1}, func(t *testing.T, q *quick, s *Scanner) {
		q.rate, q.endless = 1000, 2
		var ids []tocsin.JobID
		for _, table := range []int{0, 1, 3} {
			ids = append(ids, q.fill(table, 1, time.Now().Add(-time.Minute), 300)...)
		}
		q.fill(2, 1, time.Now().Add(-time.Hour), 300)
		s.Set(owned(4), owner)
		pass(5 * peekTimeout)
		if n := q.has(ids); n != len(ids) {
			t.Errorf("%d of %d rows of the others came", n, len(ids))
		}
		if n := valueOf(t, s.servers[0].metrics.failures.WithLabelValues("db1", "peek")); n > 0 {
			t.Errorf("the server counts as failing, %g times", n)
		}
	})
}

// A backlog of one type keeps none of another waiting, be they in the same tables.
func TestABacklogHoldsUpNoOtherType(t *testing.T) {
	playTape(t, 2, []uint64{1, 2, 3}, func(t *testing.T, q *quick, s *Scanner) {
		q.slow[3] = true
		backlog := q.fill(0, 1, time.Now().Add(-time.Hour), 2000)
		quickly := q.fill(0, 2, time.Now().Add(-time.Second), 10)
		byIDs := q.fill(1, 3, time.Now().Add(-time.Second), 10)
		s.Set(owned(2), owner)
		pass(2 * time.Second)
		if n := q.has(backlog); n < 100 || n == len(backlog) {
			t.Errorf("%d rows of the backlog came", n)
		}
		if n := q.found(quickly); n != len(quickly) {
			t.Errorf("%d rows of the second type came", n)
		}
		if n := q.found(byIDs); n != len(byIDs) {
			t.Errorf("%d ids of the third type came", n)
		}
	})
}

// Into one table come as many rows as are taken, so that its backlog never ends.
// What becomes due in another is found all the same, and no bell tells of it.
func TestABacklogThatNeverEndsHidesNoTable(t *testing.T) {
	playTape(t, 2, []uint64{1}, func(t *testing.T, q *quick, s *Scanner) {
		q.fill(0, 1, time.Now().Add(-5*time.Second), 500)
		q.after = func() { q.fill(0, 1, time.Now(), q.rate) }
		soon := q.fill(1, 1, time.Now().Add(500*time.Millisecond), 3)
		later := q.fill(1, 1, time.Now().Add(time.Minute), 5) // beyond the doorbell
		s.Set(owned(2), owner)
		pass(4 * time.Second)
		if n := q.found(soon); n != len(soon) {
			t.Errorf("%d of %d rows that became due came", n, len(soon))
		}
		pass(86 * time.Second)
		if n := q.found(later); n != len(later) {
			t.Errorf("%d of %d rows came, 30 s late", n, len(later))
		}
	})
}

func TestATableGivenUpInTheMiddleOfABacklog(t *testing.T) {
	playTape(t, 1, []uint64{1}, func(t *testing.T, q *quick, s *Scanner) {
		q.fill(0, 1, time.Now().Add(-time.Hour), 1000)
		s.Set(owned(1), owner)
		time.Sleep(525 * time.Millisecond) // within a read
		s.Set(owned(1), nil)
		synctest.Wait()
		before := len(q.taken)
		pass(10 * time.Second)
		if before == 0 || len(q.taken) != before {
			t.Errorf("%d rows taken, %d after the table was gone", before, len(q.taken)-before)
		}
	})
}

func TestAPullThatFailsGoesOn(t *testing.T) {
	cases := map[string]func(q *quick, on bool){
		"the server": func(q *quick, on bool) {
			q.tape.mu.Lock()
			defer q.tape.mu.Unlock()
			q.failing = nil
			if on {
				q.failing = errors.New("no answer")
			}
		},
		"a table": func(q *quick, on bool) {
			q.tape.mu.Lock()
			defer q.tape.mu.Unlock()
			q.broken = nil
			if on {
				q.broken = map[int]error{1: errors.New("no such table")}
			}
		},
	}
	for name, fail := range cases {
		t.Run(name, func(t *testing.T) {
			playTape(t, 2, []uint64{1}, func(t *testing.T, q *quick, s *Scanner) {
				ids := append(q.fill(0, 1, time.Now().Add(-time.Hour), 600), q.fill(1, 1, time.Now().Add(-time.Hour), 600)...)
				s.Set(owned(2), owner)
				time.Sleep(300 * time.Millisecond)
				fail(q, true)
				time.Sleep(3 * time.Second)
				fail(q, false)
				pass(2 * time.Minute)
				if n := q.has(ids); n != len(ids) || len(q.taken) != n {
					t.Errorf("%d of %d rows came, %d in all", n, len(ids), len(q.taken))
				}
			})
		})
	}
}

// A row that lands before all that was read, as one that was given back late, is found by a full look
// although its type has a backlog.
func TestAFullLookFindsWhatLandsBeforeABacklog(t *testing.T) {
	playTape(t, 1, []uint64{1}, func(t *testing.T, q *quick, s *Scanner) {
		q.rate = 2
		q.fill(0, 1, time.Now().Add(-time.Minute), 3_000)
		s.Set(owned(1), owner)
		time.Sleep(DefaultFullEvery / 2)
		hidden := q.fill(0, 1, time.Now().Add(-time.Hour), 1)
		pass(DefaultFullEvery/2 + DefaultInterval)
		n := q.found(hidden)
		q.tape.mu.Lock()
		defer q.tape.mu.Unlock()
		if n != 1 || len(q.pending) == 0 {
			t.Errorf("%d came; %d rows are left", n, len(q.pending))
		}
	})
}

// A statement is of few tables where they hold much, so that rows which are read
// together are settled together.
func TestHowManyTablesAStatementIsOf(t *testing.T) {
	for name, c := range map[string]struct{ rows, tables int }{
		"three pages in each table": {3*pullPage + 100, 1},
		"a hundred pages":           {100 * pullPage, 1},
		"a page of many tables":     {pullPage/maxPulled - 1, maxPulled},
		"few rows":                  {3, maxPulled},
	} {
		w, left, counts := width{tables: maxPulled}, [maxPulled]int{}, map[int]int{}
		for range 400 {
			tables, limit := w.next(maxPulled)
			read, more := 0, 0
			for i := range left[:tables] {
				if left[i] == 0 {
					left[i] = c.rows // of the next table
				}
				n := min(left[i], limit)
				if read, left[i] = read+n, left[i]-n; n == limit {
					more++
				} else {
					left[i] = 0
				}
			}
			w.note(tables, more, read)
			counts[tables]++
		}
		if counts[c.tables] < 300 {
			t.Errorf("%s: statements by their number of tables: %v, want most of %d", name, counts, c.tables)
		}
	}
}
