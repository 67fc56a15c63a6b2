package scanner

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/store"
)

// crowded makes a scanner of two tables whose rows are in memory, peeked once. The
// lane of type 1 has the given room, that of type 2 plenty.
func crowded(t *testing.T, room int) (*Scanner, *rows, *lanes) {
	t.Helper()
	r := &rows{places: 2, pending: make(map[tocsin.JobID]row)}
	l := newLanes(100, 1, 2)
	l.queues[1].SetCap(room)
	s, err := New(Config{Store: r, Intake: l, TablesPerStatement: 1})
	if err != nil {
		t.Fatal(err)
	}
	s.Set([]int{0, 1}, owner)
	work(s.servers[0])
	return s, r, l
}

// add adds a row of table 0 that is due after the given time.
func (r *rows) add(seq int, bizType uint64, in time.Duration) tocsin.JobID {
	id := tocsin.JobID(seq << 22)
	r.pending[id] = row{Entry: duequeue.Entry{JobID: id, Type: bizType, Due: r.Now(0) + in.Milliseconds()}}
	return id
}

// due adds a row of a table that is due now.
func (r *rows) due(seq, table int) tocsin.JobID {
	id := tocsin.JobID(seq<<22 | table<<9)
	r.pending[id] = row{Entry: duequeue.Entry{JobID: id, Type: 1, Due: r.Now(0)}}
	return id
}

// A bell for a task that is due now is heard although its lane is full of later ones.
func TestAFullLaneHearsBells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rows{places: 1, pending: make(map[tocsin.JobID]row)}
		in := newLanes(4, 1)
		for n := range 4 {
			r.add(n+1, 1, 8*time.Second)
		}
		s := run(t, Config{Store: r, Intake: in, Interval: slow})
		s.Set([]int{0}, owner)
		pass(time.Second)
		if len(in.Wanted(0)) != 0 {
			t.Fatal("the lane is not full")
		}
		id := r.ring(9)
		pass(2 * DefaultBellInterval)
		in.mu.Lock()
		defer in.mu.Unlock()
		if due := in.queues[1].Pop(r.Now(0), 10, nil); len(due) != 1 || due[0].JobID != id {
			t.Errorf("the lane has %v to start", due)
		}
	})
}

// When a lane refuses entries of a peek or of a bell, the other types stay where they
// are in every group of tables.
func TestARefusalConcernsItsTypeAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r, l := crowded(t, 2)
		sv := s.servers[0]
		for n := range 5 {
			r.add(2*n+1, 1, 9*time.Second)
			r.add(2*n+2, 2, 9*time.Second)
		}
		time.Sleep(DefaultInterval)
		work(sv)
		if n := l.queues[2].Len(); n != 5 {
			t.Errorf("%d entries of the type that has room", n)
		}
		sv.offer([]duequeue.Entry{{JobID: 1 << 40, Type: 1, Due: r.Now(0)}}) // a bell: another entry gives way to it
		if one, two := len(sv.lane(1).spans), len(sv.lane(2).spans); one == 0 || two != 0 {
			t.Errorf("%d tables of the full type are unread, %d of the other", one, two)
		}
		r.peeks = nil
		time.Sleep(DefaultInterval)
		work(sv)
		if len(r.peeks) == 0 {
			t.Error("nothing is peeked any more")
		}
		for _, q := range r.peeks {
			if !slices.Equal(q.Types, []uint64{2}) {
				t.Errorf("peeked types %v", q.Types)
			}
		}
	})
}

// A type that is read no further because its lane refuses is continued later from the
// same place, page by page. The others are read to their end at once.
func TestARefusalEndsThePeekOfItsTypeAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r, l := crowded(t, 2)
		s.cfg.PageLimit, s.servers[0].cfg.PageLimit = 3, 3
		for n := range 20 {
			r.add(2*n+1, 1, 9*time.Second)
			r.add(2*n+2, 2, 9*time.Second+time.Duration(n)*time.Millisecond)
		}
		time.Sleep(DefaultInterval)
		work(s.servers[0])
		if n := l.queues[2].Len(); n != 20 {
			t.Errorf("%d of 20 entries of the type that has room", n)
		}
		for end := time.Now().Add(time.Minute); len(r.pending) > 0; {
			if time.Now().After(end) {
				t.Fatalf("%d rows are left", len(r.pending))
			}
			time.Sleep(100 * time.Millisecond)
			l.deliver(r, 100)
			s.Wake(0)
			work(s.servers[0])
		}
	})
}

// A type without demand does not postpone the pulls of another.
func TestATypeIsPulledWhileAnotherHasNoDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r, l := crowded(t, 2)
		sv := s.servers[0]
		l.paused[1] = true
		sv.refuse([]duequeue.Entry{{JobID: 1 << 40, Type: 1, Due: 1}, {JobID: 2 << 40, Type: 2, Due: r.Now(0)}})
		if p := sv.nextPull(sv.view()); p == nil || p.lane.bizType != 2 {
			t.Errorf("next is %+v", p)
		}
	})
}

func isFull(q store.PeekQuery) bool { return q.From == 0 }

// eachTable lets a full look take so long for each table.
func eachTable(d time.Duration) func(store.PeekQuery) time.Duration {
	return func(q store.PeekQuery) time.Duration {
		if !isFull(q) {
			return 0
		}
		return d * time.Duration(len(q.Tables))
	}
}

// Tables that hold too many rows for one statement are first read in smaller groups.
func TestAFirstLookThatTakesTooLongIsHalved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rows{places: 8, takes: eachTable(peekTimeout / 3), pending: make(map[tocsin.JobID]row)}
		in := newLanes(100, 1)
		id := r.add(1, 1, -time.Hour)
		s := run(t, Config{Store: r, Intake: in})
		s.Set([]int{0, 1, 2, 3, 4, 5, 6, 7}, owner)
		pass(time.Minute)
		in.mu.Lock()
		defer in.mu.Unlock()
		if !in.seen[id] {
			t.Error("an overdue row is not found")
		}
	})
}

// Full looks that take too long are halved until they have an answer. If that of a single table has none, it comes less
// often. The regular ones go on beside it, and the server does not count as failing.
func TestASlowFullLookHoldsUpNoRegularOne(t *testing.T) {
	for name, c := range map[string]struct {
		each         time.Duration // that a full look takes for a table
		least, most  int           // full looks without an answer, in ten minutes
		someAnswered bool
	}{
		"of two tables together": {peekTimeout * 2 / 3, 1, 1, true},
		"of each table":          {2 * peekTimeout, 4, 12, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &rows{places: 2, pending: make(map[tocsin.JobID]row)}
				s := run(t, Config{Store: r, Intake: newLanes(100, 1)})
				s.Set([]int{0, 1}, owner)
				time.Sleep(DefaultFullEvery / 2)
				r.mu.Lock()
				r.takes, r.peeks = eachTable(c.each), nil
				r.mu.Unlock()
				longest, last, answered := time.Duration(0), time.Now(), false
				for end := time.Now().Add(10 * time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
					r.mu.Lock()
					if n := len(r.peeks); n > 0 {
						answered = answered || slices.ContainsFunc(r.peeks, isFull)
						longest, last, r.peeks = max(longest, time.Since(last)), time.Now(), nil
					}
					r.mu.Unlock()
				}
				failures := s.servers[0].metrics.failures
				full := int(valueOf(t, failures.WithLabelValues("db1", "full")))
				if longest > 2*DefaultInterval+peekTimeout || full < c.least || full > c.most || answered != c.someAnswered {
					t.Errorf("no regular look for %s; %d full ones took too long; others were answered: %t", longest, full, answered)
				}
				if n := valueOf(t, failures.WithLabelValues("db1", "peek")); n > 0 {
					t.Errorf("the server counts as failing, %g times", n)
				}
			})
		})
	}
}

// One full look that has no answer in time, among many that take no time, leaves no table without a full look for long.
func TestOneSlowFullLookPutsOffNoOtherForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tables = 256
		r := &rows{places: tables, pending: make(map[tocsin.JobID]row)}
		s := run(t, Config{Store: r, Intake: newLanes(100, 1), TablesPerStatement: 2})
		var all []int
		for table := range tables {
			all = append(all, table)
		}
		s.Set(all, owner)
		time.Sleep(DefaultFullEvery / 2)
		last, slow := make(map[int]time.Time), time.Time{}
		r.mu.Lock()
		r.takes = func(q store.PeekQuery) time.Duration {
			switch {
			case !isFull(q):
			case slow.IsZero():
				slow = time.Now()
				return 2 * peekTimeout
			default:
				for _, table := range q.Tables {
					last[table] = time.Now()
				}
			}
			return 0
		}
		r.mu.Unlock()
		for range 10 {
			time.Sleep(DefaultFullEvery)
			r.mu.Lock()
			longest := time.Duration(0)
			for _, table := range all {
				longest = max(longest, min(time.Since(last[table]), time.Since(slow)))
			}
			r.mu.Unlock()
			if longest > 2*DefaultFullEvery {
				t.Errorf("a table had no full look for %s", longest)
			}
		}
	})
}

// Tables that came one by one, each under an access of its own, are soon peeked together.
func TestTablesThatCameOneByOneArePeekedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rows{places: 4, pending: make(map[tocsin.JobID]row)}
		s, err := New(Config{Store: r, Intake: newLanes(10, 1, 2)})
		if err != nil {
			t.Fatal(err)
		}
		for table := range 3 {
			s.Set([]int{table}, &duequeue.Access{Owner: fmt.Sprint("n", table)})
		}
		s.Set([]int{3}, &duequeue.Access{Owner: "n9", Types: []uint64{2}})
		work(s.servers[0])
		time.Sleep(DefaultInterval)
		work(s.servers[0])
		var sizes []int
		for _, g := range s.servers[0].groups {
			sizes = append(sizes, len(g.tables))
		}
		if slices.Sort(sizes); !slices.Equal(sizes, []int{1, 3}) {
			t.Errorf("groups of %d tables", sizes)
		}
	})
}
