package dispatcher

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/store"
)

// sick is memory that fails to store some outcomes: they wait a second for a lock, or
// have a fault.
type sick struct {
	*memory

	mu      sync.Mutex
	locked  func(tocsin.JobID) bool
	shut    int  // a table that is locked as a whole; 0: none
	unseen  bool // locks show in no row
	refused func(tocsin.JobID) bool
	calls   [][]tocsin.JobID // that failed
}

func (s *sick) Settle(ctx context.Context, server int, outcomes []store.Outcome) ([]store.Fate, error) {
	ids := idsOf(outcomes, func(o store.Outcome) tocsin.JobID { return o.JobID })
	s.mu.Lock()
	locked, refused := some(ids, s.locked), some(ids, s.refused)
	if locked || refused {
		s.calls = append(s.calls, ids)
	}
	s.mu.Unlock()
	switch {
	case locked:
		time.Sleep(time.Second)
		return nil, &mysql.MySQLError{Number: 1205, Message: "Lock wait timeout exceeded"}
	case refused:
		return nil, errors.New("refused")
	}
	return s.memory.Settle(ctx, server, outcomes)
}

func (s *sick) Locked(_ context.Context, _ int, ids []tocsin.JobID) (store.Locks, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	locks := store.Locks{Rows: map[tocsin.JobID]bool{}, Tables: map[int]error{}}
	for _, id := range ids {
		switch {
		case s.locked == nil || s.unseen || !s.locked(id):
		case s.shut != 0 && id.Table() == s.shut:
			locks.Tables[s.shut] = &mysql.MySQLError{Number: 1205, Message: "Lock wait timeout exceeded"}
		default:
			locks.Rows[id] = true
		}
	}
	return locks, nil
}

func some(ids []tocsin.JobID, is func(tocsin.JobID) bool) bool {
	for _, id := range ids {
		if is != nil && is(id) {
			return true
		}
	}
	return false
}

// set replaces the faults.
func (s *sick) set(locked, refused func(tocsin.JobID) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.locked, s.refused = locked, refused
}

// failed returns the calls that failed since it was last called.
func (s *sick) failed() [][]tocsin.JobID {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

// withSick runs f with a dispatcher over sick memory.
func withSick(t *testing.T, target handler, f func(*rig, *sick)) {
	t.Helper()
	p := policy("order.close", 1)
	p.Concurrency = 100
	var s *sick
	inBubbleWith(t, p, target, func(c *Config) {
		s = &sick{memory: c.Store.(*memory)}
		c.Store = s
	}, func(r *rig) {
		f(r, s)
	})
}

func (r *rig) undone(ids []tocsin.JobID) (n int) {
	for _, id := range ids {
		if r.store.row(id).Status != tocsin.Done {
			n++
		}
	}
	return n
}

// An outcome that was set aside is retried by itself: in a batch it would make the
// batch fail every time.
func TestWhatIsSetAsideSpoilsNoBatch(t *testing.T) { eachWay(t, testWhatIsSetAsideSpoilsNoBatch) }

func testWhatIsSetAsideSpoilsNoBatch(t *testing.T) {
	withSick(t, succeeds, func(r *rig, s *sick) {
		all := r.inserts(100)
		culprit := all[len(all)/2]
		s.set(nil, func(id tocsin.JobID) bool { return id == culprit })
		for _, id := range all {
			r.offer(id)
		}
		if pass(100 * time.Millisecond); r.undone(all) != 1 || r.Stats().Aside != 1 {
			t.Errorf("%d are not stored with the one that is refused: %+v", r.undone(all), r.Stats())
		}
		pass(3 * time.Second)
		s.failed()
		for range 20 {
			var ids []tocsin.JobID
			for i := range 50 {
				ids = append(ids, r.add(i%rigTables, 1, 0))
			}
			pass(500 * time.Millisecond)
			if n := r.undone(ids); n > 0 {
				t.Errorf("%d healthy outcomes are not stored", n)
			}
		}
		tries := s.failed()
		if len(tries) == 0 {
			t.Error("it was not tried again")
		}
		for _, ids := range tries {
			if len(ids) > 1 {
				t.Errorf("it was tried with %d others", len(ids)-1)
			}
		}
		s.set(nil, nil)
		pass(20 * time.Second)
		r.status(culprit, tocsin.Done)
	})
}

func TestTheEndOfRunWaitsForALock(t *testing.T) { eachWay(t, testTheEndOfRunWaitsForALock) }

func testTheEndOfRunWaitsForALock(t *testing.T) {
	withSick(t, succeeds, func(r *rig, s *sick) {
		until := time.Now().Add(5 * time.Second)
		s.set(func(tocsin.JobID) bool { return time.Now().Before(until) }, nil)
		id := r.add(0, 1, 0)
		pass(100 * time.Millisecond)
		r.stop()
		pass(time.Minute)
		r.status(id, tocsin.Done)
	})
}

// TestWhatIsSetAsideIsTriedWhileADeliveryInHandIsWaitedFor, too.
func TestWhatIsSetAsideIsTriedWhileADeliveryInHandIsWaitedFor(t *testing.T) {
	eachWay(t, testWhatIsSetAsideIsTriedWhileADeliveryInHandIsWaitedFor)
}

func testWhatIsSetAsideIsTriedWhileADeliveryInHandIsWaitedFor(t *testing.T) {
	var slow atomic.Uint64
	withSick(t, func(_ context.Context, task tocsin.Info) error {
		if uint64(task.JobID) == slow.Load() {
			time.Sleep(25 * time.Second)
		}
		return nil
	}, func(r *rig, s *sick) {
		p := policy("order.close", 1)
		p.Timeout = biztype.Duration(time.Minute)
		r.SetPolicies([]biztype.Policy{p})
		until := time.Now().Add(2 * time.Second)
		s.set(func(tocsin.JobID) bool { return time.Now().Before(until) }, nil)
		hung, id := r.insert(0, 1, 0), r.insert(1, 1, 0)
		slow.Store(uint64(hung))
		r.offer(hung)
		r.offer(id)
		pass(100 * time.Millisecond)
		r.stop()
		pass(5 * time.Second)
		r.status(id, tocsin.Done)
	})
}

// Locked rows delay the other rows of their table only for as long as it takes to
// find the locked ones.
func TestALockedRowHoldsUpNoOtherOfItsTable(t *testing.T) {
	eachWay(t, testALockedRowHoldsUpNoOtherOfItsTable)
}

func testALockedRowHoldsUpNoOtherOfItsTable(t *testing.T) {
	for name, every := range map[string]int{"one row": 1000, "some rows": 40, "rows side by side": -4} {
		t.Run(name, func(t *testing.T) {
			withSick(t, succeeds, func(r *rig, s *sick) {
				var ids, others []tocsin.JobID
				locked := make(map[tocsin.JobID]bool)
				for i := range 200 {
					id := r.insert(1, 1, 0)
					ids = append(ids, id)
					if every > 0 && i%every == 7 || i < -every {
						locked[id] = true
					} else {
						others = append(others, id)
					}
				}
				s.set(func(id tocsin.JobID) bool { return locked[id] }, nil)
				for _, id := range ids {
					r.offer(id)
				}
				pass(15 * time.Second)
				if n := r.undone(others); n > 0 {
					t.Errorf("%d of %d outcomes beside the locked rows are not stored", n, len(others))
				}
				if st := r.Stats(); st.Unsettled != len(locked) {
					t.Errorf("%d are not stored, %d are locked", st.Unsettled, len(locked))
				}
				s.set(nil, nil)
				pass(5 * time.Second)
				if n := r.undone(ids); n > 0 {
					t.Errorf("%d are not stored after the lock is gone", n)
				}
			})
		})
	}
}

// Rows that a user holds in every table delay no other task: neither its start nor its outcome.
func TestLockedRowsOfEveryTableDelayNoOtherTask(t *testing.T) {
	eachWay(t, testLockedRowsOfEveryTableDelayNoOtherTask)
}

func testLockedRowsOfEveryTableDelayNoOtherTask(t *testing.T) {
	var late atomic.Int64
	withSick(t, func(_ context.Context, task tocsin.Info) error {
		late.Store(max(late.Load(), int64(time.Since(task.ActionTime))))
		return nil
	}, func(r *rig, s *sick) {
		locked := make(map[tocsin.JobID]bool)
		for i := range 60 {
			locked[r.insert(i%rigTables, 1, 0)] = true
		}
		s.set(func(id tocsin.JobID) bool { return locked[id] }, nil)
		for id := range locked {
			r.offer(id)
		}
		pass(5 * time.Second)
		late.Store(0)
		s.failed()
		for range 20 {
			var ids []tocsin.JobID
			for i := range 50 {
				ids = append(ids, r.add(i%rigTables, 1, 0))
			}
			pass(500 * time.Millisecond)
			if n := r.undone(ids); n > 0 {
				t.Errorf("%d outcomes are not stored half a second later: %+v", n, r.Stats())
			}
		}
		if got := time.Duration(late.Load()); got > 50*time.Millisecond {
			t.Errorf("a task began %s late", got)
		}
		if n := len(s.failed()); n > 0 {
			t.Errorf("%d writes have waited for a lock of which it was known that it is held", n)
		}
		s.set(nil, nil)
		pass(5 * time.Second)
		if st := r.Stats(); st.Unsettled != 0 {
			t.Errorf("after the locks are gone: %+v", st)
		}
	})
}

// While a table is locked, its outcomes wait apart, later ones included: batches of
// other tables do not wait for its lock.
func TestALockedTableSpoilsNoBatchOfOthers(t *testing.T) {
	eachWay(t, testALockedTableSpoilsNoBatchOfOthers)
}

func testALockedTableSpoilsNoBatchOfOthers(t *testing.T) {
	for name, c := range map[string]struct {
		shut   int
		unseen bool
	}{"as a whole": {shut: 1}, "in the gaps of an index": {unseen: true}} {
		t.Run(name, func(t *testing.T) {
			withSick(t, succeeds, func(r *rig, s *sick) {
				s.shut, s.unseen = c.shut, c.unseen
				s.set(func(id tocsin.JobID) bool { return id.Table() == 1 }, nil)
				var shut, others []tocsin.JobID
				for range 5 {
					shut = append(shut, r.add(1, 1, 0))
				}
				pass(6 * time.Second)
				s.failed()
				for range 20 {
					for range 10 {
						shut, others = append(shut, r.add(1, 1, 0)), append(others, r.add(2, 1, 0))
					}
					pass(500 * time.Millisecond)
					if n := r.undone(others); n > 0 {
						t.Fatalf("%d outcomes beside the locked table are not stored", n)
					}
				}
				for _, ids := range s.failed() {
					if some(ids, func(id tocsin.JobID) bool { return id.Table() != 1 }) {
						t.Errorf("a batch of %d outcomes has waited for the locked table", len(ids))
					}
				}
				s.set(nil, nil)
				pass(5 * time.Second)
				if n := r.undone(shut); n > 0 || r.Stats().Aside != 0 {
					t.Errorf("%d are not stored after the lock is gone", n)
				}
			})
		})
	}
}

// A table that is gone is not searched row by row: its outcomes wait together.
func TestATableThatIsGoneIsTriedAsAWhole(t *testing.T) {
	eachWay(t, testATableThatIsGoneIsTriedAsAWhole)
}

func testATableThatIsGoneIsTriedAsAWhole(t *testing.T) {
	withSick(t, succeeds, func(r *rig, s *sick) {
		gone := func(id tocsin.JobID) bool { return id.Table() == 1 }
		r.store.fail(func(statement string, ids []tocsin.JobID) error {
			if statement == "settle" && some(ids, gone) {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.calls = append(s.calls, ids)
				return &mysql.MySQLError{Number: 1146, Message: "no such table"}
			}
			return nil
		})
		for range 300 {
			r.add(1, 1, 0)
		}
		pass(10 * time.Second)
		if n := len(s.failed()); n == 0 || n > 60 {
			t.Errorf("%d statements for 300 outcomes", n)
		}
		r.store.fail(nil)
		pass(time.Minute)
		if st := r.Stats(); st.Unsettled != 0 {
			t.Errorf("%+v", st)
		}
	})
}
