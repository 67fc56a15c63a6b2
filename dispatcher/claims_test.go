package dispatcher

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/ids"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/store"
)

// inClaims is inBubbleWith for a dispatcher that claims rows under sessions, and its calls.
func inClaims(t *testing.T, p biztype.Policy, adapt func(*Config), f func(*rig, *calls)) {
	t.Helper()
	begun := newCalls(nil)
	t.Run(claimed[1:], func(t *testing.T) {
		inBubbleWith(t, p, handler(begun.deliver), adapt, func(r *rig) { f(r, begun) })
	})
}

// claimsOf returns how many claims have asked for a row.
func (m *memory) claimsOf(id tocsin.JobID) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.asked {
		if slices.ContainsFunc(c.Rows, func(e duequeue.Entry) bool { return e.JobID == id }) {
			n++
		}
	}
	return n
}

// free fails the test unless a row is pending at its time, and nobody's.
func (r *rig) free(id tocsin.JobID, due int64) {
	r.t.Helper()
	if row := r.store.row(id); row.Status != tocsin.Pending || row.ClaimedBy != "" || row.Action != due || row.Attempts != 0 {
		r.t.Errorf("it is %s of %q after %d attempts, %d ms from its time", row.Status, row.ClaimedBy, row.Attempts, row.Action-due)
	}
}

func TestRowsAreClaimedAheadTogetherAndStartAtTheirTime(t *testing.T) {
	inClaims(t, policy("order.close", 1), nil, func(r *rig, begun *calls) {
		origin := time.Now()
		dues := []time.Duration{100, 101, 104, 118, 200} // ms; the fourth is due within 20 ms of the first one's claim
		rows := make([]tocsin.JobID, len(dues))
		for i, due := range dues {
			rows[i] = r.add(i%rigTables, 1, due*time.Millisecond)
		}
		pass(80 * time.Millisecond)
		for _, id := range rows {
			r.status(id, tocsin.Pending)
		}
		pass(15 * time.Millisecond)
		for i, id := range rows[:3] {
			row := r.store.row(id)
			session, _ := r.sessions.Session(i)
			if row.Status != tocsin.Claimed || !store.IsToken(row.ClaimedBy) || row.ClaimedBy[:store.SessionSize] != session || row.Action != origin.Add(dues[i]*time.Millisecond).UnixMilli() {
				t.Errorf("5 ms before the first is due a row is %s of %q", row.Status, row.ClaimedBy)
			}
		}
		pass(time.Second)
		for i, id := range rows {
			at, _ := begun.first(id)
			if late := at.Sub(origin) - dues[i]*time.Millisecond; late < 0 || late > 2*time.Millisecond {
				t.Errorf("the row that is due at %d ms started %s after its time", dues[i], late)
			}
			r.status(id, tocsin.Done)
		}
		if n := len(r.store.asked); n != 3 && n != 2 {
			t.Errorf("%d claims", n)
		}
	})
}

// A cancel that commits 30 ms ahead wins. A row that is held by then is delivered, and its outcome finds the cancel.
func TestWhenACancelWins(t *testing.T) {
	for before := range 30 {
		before := time.Duration(before+1) * time.Millisecond
		inClaims(t, policy("order.close", 1), nil, func(r *rig, begun *calls) {
			id := r.add(0, 1, 200*time.Millisecond)
			pass(200*time.Millisecond - before)
			held := r.store.row(id).Status == tocsin.Claimed
			r.store.change(id, cancelled)
			pass(time.Second)
			if started := begun.of(id) == 1; started != held || held && before > claimAhead {
				t.Errorf("cancelled %s before its time, it was claimed: %v, and started: %v", before, held, started)
			}
			if _, n := r.store.counts(store.Cancelled); n != begun.of(id) {
				t.Errorf("%d outcomes found the cancel of a row that was delivered %d times", n, begun.of(id))
			}
			r.status(id, tocsin.Cancelled)
			if known, _, _ := r.Lane(0, 1); known != 0 {
				t.Error("it is still known")
			}
		})
	}
}

// What is held, or waits for a slot, goes back as it was if it can't start.
func TestWhatIsHeldGoesBack(t *testing.T) {
	for name, c := range map[string]struct {
		then func(*rig)
		over func(*rig) // nil: it is not looked at again
	}{
		"the server's clock was set back":    {func(r *rig) { r.store.skew.Store(-1200) }, func(r *rig) { r.store.skew.Store(0) }},
		"nobody knows the server's clock":    {func(r *rig) { r.store.moved.Store(true) }, func(r *rig) { r.store.moved.Store(false) }},
		"the session is not trusted":         {func(r *rig) { r.sessions.distrust(1, true) }, func(r *rig) { r.sessions.distrust(1, false) }},
		"the process stood still":            {func(r *rig) { r.store.jumped.Store(time.Now().UnixMicro() + 1) }, func(*rig) {}},
		"the table is another's":             {func(r *rig) { r.Set([]int{1}, nil) }, nil},
		"the node stops":                     {func(r *rig) { r.stop() }, nil},
		"the type is paused, and the node's": {func(r *rig) { p := oneSlot(); p.Paused = true; r.SetPolicies([]biztype.Policy{p}); r.stop() }, nil},
	} {
		for how, ahead := range map[string]time.Duration{"held": 5 * time.Millisecond, "waiting for a slot": -50 * time.Millisecond} {
			t.Run(name+", "+how, func(t *testing.T) {
				inClaims(t, oneSlot(), nil, func(r *rig, begun *calls) {
					r.loadAhead(2)
					begun.answers(ends(500*time.Millisecond, nil))
					r.add(0, 1, 50*time.Millisecond)
					id := r.add(1, 1, 200*time.Millisecond)
					due := r.store.row(id).Action
					pass(200*time.Millisecond - ahead)
					r.status(id, tocsin.Claimed)
					c.then(r)
					pass(900 * time.Millisecond)
					if c.over == nil || name == "the session is not trusted" {
						r.free(id, due)
					}
					if c.over == nil {
						return
					}
					c.over(r)
					r.offer(id)
					pass(2 * time.Second)
					if begun.of(id) != 1 {
						t.Errorf("%d deliveries", begun.of(id))
					}
					r.status(id, tocsin.Done)
				})
			})
		}
	}
}

// A clock that was set back by less than a second leaves rows held: they start at their time.
func TestAHeldRowStartsNotEarly(t *testing.T) {
	inClaims(t, policy("order.close", 1), nil, func(r *rig, begun *calls) {
		began := time.Now()
		id := r.add(0, 1, 100*time.Millisecond)
		pass(95 * time.Millisecond)
		r.store.skew.Store(-900)
		pass(100 * time.Millisecond)
		r.status(id, tocsin.Claimed)
		pass(2 * time.Second)
		if at, some := begun.first(id); !some || at.Sub(began) < time.Second || at.Sub(began) > 1010*time.Millisecond {
			t.Errorf("it started after %s", at.Sub(began))
		}
	})
}

// If the estimate of the server's clock is ahead, nothing is held by it.
func TestNothingIsClaimedAheadByAClockThatIsAhead(t *testing.T) {
	inClaims(t, policy("order.close", 1), nil, func(r *rig, begun *calls) {
		began := time.Now()
		r.store.skew.Store(50)
		id := r.add(0, 1, 60*time.Millisecond)
		pass(55 * time.Millisecond)
		r.store.skew.Store(0)
		pass(time.Second)
		if at, some := begun.first(id); !some || at.Sub(began) < 60*time.Millisecond {
			t.Errorf("it started after %s", at.Sub(began))
		}
	})
}

func TestTheEndOfASession(t *testing.T) {
	var causes []error
	var calls atomic.Int32
	p := oneSlot()
	p.Timeout = biztype.Duration(time.Minute)
	t.Run(claimed[1:], func(t *testing.T) {
		inBubbleWith(t, p, handler(func(ctx context.Context, task tocsin.Info) error {
			if calls.Add(1); task.Crashes > 0 {
				return nil
			}
			<-ctx.Done()
			causes = append(causes, context.Cause(ctx))
			if task.JobID.Table() == 1 {
				return nil
			}
			return ctx.Err()
		}), nil, func(r *rig) {
			for table := range 2 {
				calls.Store(0)
				began, waits := r.add(table, 1, 0), r.insert(table, 1, 10*time.Millisecond)
				pass(time.Millisecond)
				r.loadAhead(2)
				r.offer(waits)
				pass(50 * time.Millisecond)
				r.status(began, tocsin.Claimed)
				r.status(waits, tocsin.Claimed)
				id := r.sessions.end(table)
				r.store.change(began, func(row *store.Row) { row.Status, row.ClaimedBy, row.Crashes = tocsin.Pending, "", 1 }) // its recovery
				r.store.change(waits, func(row *store.Row) { row.Crashes = 1 })                                                // so the handler knows it
				r.SessionEnded(table, id)
				pass(2 * time.Second)
				if want := []int32{3, 2}[table]; calls.Load() != want { // the success of table 1 counts
					t.Errorf("%d deliveries, want %d", calls.Load(), want)
				}
				for _, id := range []tocsin.JobID{began, waits} {
					if row := r.store.row(id); row.Status != tocsin.Done || row.Attempts != 0 {
						t.Errorf("%s after %d attempts, %q", row.Status, row.Attempts, row.LastError)
					}
				}
			}
			if !slices.Equal(causes, []error{tocsin.ErrClaimEnded, tocsin.ErrClaimEnded}) {
				t.Errorf("the contexts ended with %v", causes)
			}
		})
	})
}

// A session that ends leaves those of other databases alone, and rows of the former session don't start even if nobody tells of its end.
func TestTheEndOfASessionConcernsItsOwnRows(t *testing.T) {
	inClaims(t, policy("order.close", 1), nil, func(r *rig, begun *calls) {
		one, other := r.add(0, 1, 100*time.Millisecond), r.add(1, 1, 100*time.Millisecond)
		pass(95 * time.Millisecond)
		r.sessions.end(0)
		_, _ = r.sessions.Session(0) // a new one, which has not claimed the row
		pass(time.Second)
		if begun.of(one) != 1 || r.store.claimsOf(one) != 2 || begun.of(other) != 1 || r.store.claimsOf(other) != 1 {
			t.Errorf("%d deliveries and %d claims of a row whose session has ended, %d and %d of another",
				begun.of(one), r.store.claimsOf(one), begun.of(other), r.store.claimsOf(other))
		}
	})
}

func TestRowsThatAClaimRefuses(t *testing.T) {
	run := func(schedule uint64) func(*store.Row) {
		return func(row *store.Row) { row.DedupKey = ids.OfTime(schedule, 1, time.Now()).String() }
	}
	for name, c := range map[string]struct {
		row     func(*store.Row)
		adapt   func(*rig)
		want    tocsin.Status // after three seconds
		claims  int           // that ask for the row, at most
		special bool          // one of these is a special one
	}{
		"none":                          {want: tocsin.Done, claims: 1},
		"one that has ended a process":  {row: func(row *store.Row) { row.Crashes = 1 }, want: tocsin.Done, claims: 2, special: true},
		"a run that Runs claims":        {row: run(1), want: tocsin.Done, claims: 1},
		"a run that is not wanted":      {row: run(2), want: tocsin.Cancelled, claims: 2, special: true},
		"one that is due in a moment":   {row: func(row *store.Row) { row.Action += 500 }, want: tocsin.Done, claims: 3},
		"one that is due in an hour":    {row: inAnHour, want: tocsin.Pending, claims: 1},
		"one that another has":          {row: func(row *store.Row) { row.Status, row.ClaimedBy = tocsin.Claimed, "another" }, want: tocsin.Claimed, claims: 1},
		"one of another type":           {row: func(row *store.Row) { row.Type = 7 }, want: tocsin.Pending, claims: 1},
		"one without a trusted session": {adapt: func(r *rig) { r.sessions.distrust(0, true) }, want: tocsin.Pending},
		"one that is locked":            {adapt: func(r *rig) { r.failOn("claim_row", mysql.ErrLocked) }, want: tocsin.Pending, claims: 4},
		"one of a table that fails":     {adapt: func(r *rig) { r.failOn("claim_table", errors.New("no such table")) }, want: tocsin.Pending, claims: 4},
	} {
		t.Run(name, func(t *testing.T) {
			all := &turns{}
			inClaims(t, policy("order.close", 1), func(cfg *Config) { all.memory, cfg.Runs = cfg.Store.(*memory), all }, func(r *rig, begun *calls) {
				id := r.insert(0, 1, 0)
				if c.adapt != nil {
					c.adapt(r)
				}
				entry := duequeue.Entry{JobID: id, Type: 1, Due: r.store.row(id).Action}
				if c.row != nil {
					r.store.change(id, c.row)
				}
				_ = r.Offer(0, []duequeue.Entry{entry})
				pass(3 * time.Second)
				r.status(id, c.want)
				if n := r.store.claimsOf(id); n > c.claims || (begun.of(id) == 1) != (c.want == tocsin.Done) {
					t.Errorf("%d claims and %d deliveries", n, begun.of(id))
				}
				special := slices.ContainsFunc(r.store.asked, func(c store.RowsClaim) bool { return c.Special })
				if special != c.special {
					t.Errorf("a special claim: %v", special)
				}
				r.store.fail(nil)
			})
		})
	}
}

// Rows of a type with turns that were claimed beside each other go back, and one after the other starts.
func TestCrowdedRowsGoBack(t *testing.T) {
	p := policy("order.close", 1)
	p.PerKey = 1
	inClaims(t, p, nil, func(r *rig, begun *calls) {
		begun.answers(ends(100*time.Millisecond, nil))
		id := r.insert(0, 1, 0)
		r.store.mu.Lock()
		r.store.crowded = []tocsin.JobID{id}
		r.store.mu.Unlock()
		r.offer(id)
		pass(5 * time.Second)
		if n := r.store.claimsOf(id); n < 2 || begun.of(id) != 1 {
			t.Errorf("%d claims, %d deliveries", n, begun.of(id))
		}
		if n := len(r.servers[0].keys); n != 0 {
			t.Errorf("%d keys are still in hand", n)
		}
	})
}

func TestARowWithANewerPayloadGoesBackForAMinute(t *testing.T) {
	sink := newCalls(nil)
	inClaims(t, policy("order.close", 1), func(cfg *Config) {
		cfg.LookAhead = 2 * time.Minute
		cfg.Target = func(biztype.Policy) (Target, bool) { return Target{Sink: handler(sink.deliver), Version: 1}, true }
	}, func(r *rig, _ *calls) {
		id := r.insert(0, 1, 0)
		due := r.store.row(id).Action
		r.store.change(id, func(row *store.Row) { row.PayloadVersion = 2 })
		r.offer(id)
		for range 59 {
			pass(time.Second)
			r.free(id, due)
		}
		if n := r.store.claimsOf(id); n != 1 || sink.of(id) != 0 {
			t.Errorf("%d claims, %d deliveries", n, sink.of(id))
		}
		r.store.change(id, func(row *store.Row) { row.PayloadVersion = 1 })
		pass(2 * time.Second)
		r.status(id, tocsin.Done)
	})
}

// A lane has at most fetchAhead ids of its backlog, read or being read, and asks for more once half of them are claimed.
func TestRoomForTheIdsOfABacklog(t *testing.T) {
	p := oneSlot()
	p.Timeout = biztype.Duration(time.Minute)
	var woken atomic.Int32
	inClaims(t, p, func(cfg *Config) { cfg.Woken = func(int) { woken.Add(1) } }, func(r *rig, begun *calls) {
		begun.answers(ends(time.Second, nil))
		if n := r.Room(0, 7, 100); n != 0 {
			t.Errorf("room for %d of an unknown type", n)
		}
		var backlog []duequeue.Entry
		for range fetchAhead {
			id := r.insert(0, 1, -time.Second)
			backlog = append(backlog, duequeue.Entry{JobID: id, Type: 1, Due: r.store.row(id).Action})
		}
		one, two := r.Room(0, 1, fetchAhead/2), r.Room(0, 1, fetchAhead)
		if one != fetchAhead/2 || two != fetchAhead/2 || r.Room(0, 1, 1) != 0 {
			t.Errorf("room for %d and %d", one, two)
		}
		r.Fetched(0, 1, one, nil)
		if n := r.Room(0, 1, fetchAhead); n != fetchAhead/2 {
			t.Errorf("room for %d after a read that found nothing", n)
		}
		if refused := r.Fetched(0, 1, two, backlog[:two]); refused != nil {
			t.Error("refused")
		}
		r.Fetched(0, 1, fetchAhead/2, backlog[:two]) // which are known
		pass(time.Second)
		if n := r.Room(0, 1, fetchAhead); n < fetchAhead/2 || n > fetchAhead/2+10 {
			t.Errorf("room for %d beside %d ids", n, two)
		} else {
			r.Fetched(0, 1, n, backlog[two:])
		}
		if woken.Store(0); r.Room(0, 1, fetchAhead) != 0 {
			t.Error("room beside a whole backlog")
		}
		begun.answers(nil)
		pass(20 * time.Second)
		if woken.Load() == 0 || r.Room(0, 1, fetchAhead) != fetchAhead {
			t.Error("no room when all is done")
		}
		if _, n := r.store.counts(store.Stored); n < fetchAhead {
			t.Errorf("%d of %d are done", n, fetchAhead)
		}
		p.Paused = true
		r.SetPolicies([]biztype.Policy{p})
		if r.Room(0, 1, 10) != 0 {
			t.Error("room in a lane that is paused")
		}
	})
}
