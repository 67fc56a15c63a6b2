package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/store"
)

func TestClaimsFirst(t *testing.T) {
	cases := map[string]struct {
		adapt   func(*biztype.Policy)
		row     func(*store.Row)
		unclean bool
		lost    bool // the lease can't be proven
		overdue time.Duration
		claims  int
	}{
		"not in time":                    {claims: 0},
		"not a little late":              {overdue: 20 * time.Second, claims: 0},
		"where the sweeper may look":     {overdue: 55 * time.Second, claims: 1},
		"a strict biz type always":       {adapt: func(p *biztype.Policy) { p.Strict = true }, claims: 1},
		"a row that ended a process":     {row: func(row *store.Row) { row.Crashes = 1 }, claims: 1},
		"overdue after an unclean end":   {unclean: true, overdue: 5 * time.Second, claims: 1},
		"not in time after one, though":  {unclean: true, claims: 0},
		"without a lease":                {lost: true, claims: 1},
		"a row that somebody has by now": {overdue: 55 * time.Second, row: func(row *store.Row) { row.Status = tocsin.Claimed }},
	}
	for name, c := range cases {
		for how, whole := range map[string]bool{"": false, ", read whole": true} {
			t.Run(name+how, func(t *testing.T) {
				p := policy("order.close", 1)
				if c.adapt != nil {
					c.adapt(&p)
				}
				lease := func(cfg *Config) { cfg.LeaseOK = func(string) bool { return !c.lost } }
				inBubbleWith(t, p, handler(succeeds), lease, func(r *rig) {
					r.ownedBy("me")
					r.Set([]int{0}, &duequeue.Access{Owner: "me", Unclean: c.unclean})
					id := r.insert(0, 1, -c.overdue)
					if c.row != nil {
						r.store.change(id, c.row)
					}
					want := tocsin.Done
					if r.store.row(id).Status == tocsin.Claimed {
						want = tocsin.Claimed
					}
					if whole {
						r.failOn("load", errLost) // what starts was read whole
						r.hand(r.room(1), r.rows(id))
					} else {
						r.offer(id)
					}
					pass(time.Second)
					if n, _ := r.store.counts(store.Stored); n != c.claims {
						t.Errorf("%d claims, want %d", n, c.claims)
					}
					r.status(id, want)
					r.idle()
				})
			})
		}
	}
}

// TestLockedRowsHoldUpNoOtherType: claims of more types than there are loaders wait for locks, and another type is
// delivered on time. After the first wait the lanes claim without waiting.
func TestLockedRowsHoldUpNoOtherType(t *testing.T) {
	const locked = loaders + 2
	var late atomic.Int64
	free := policy("free", locked+1)
	free.Strict = true
	policies := []biztype.Policy{free}
	sinks := map[string]Sink{"free": handler(func(_ context.Context, task tocsin.Info) error {
		late.Store(max(late.Load(), time.Since(task.ActionTime).Milliseconds()))
		return nil
	})}
	for n := range uint64(locked) {
		p := policy(fmt.Sprintf("locked%d", n), n+1)
		p.Strict = true
		policies = append(policies, p)
		sinks[p.Name] = handler(succeeds)
	}
	inBubbleOf(t, policies, sinks, nil, func(r *rig) {
		held := make(map[tocsin.JobID]bool)
		waits := 0
		r.store.fail(func(statement string, ids []tocsin.JobID) error {
			if statement == "claim" && held[ids[0]] {
				waits++
				return mysql.ErrLocked
			}
			return nil
		})
		for n := range uint64(locked) {
			id := r.insert(0, n+1, time.Second)
			held[id] = true
			r.offer(id)
		}
		var ids []tocsin.JobID
		for n := range 20 {
			ids = append(ids, r.add(1, locked+1, time.Duration(n)*500*time.Millisecond))
		}
		pass(15 * time.Second)
		for _, id := range ids {
			r.status(id, tocsin.Done)
		}
		if late.Load() > 50 {
			t.Errorf("up to %d ms late", late.Load())
		}
		r.store.mu.Lock()
		defer r.store.mu.Unlock()
		if waits < 5*locked { // one that waits each time has at most three in the 15 s
			t.Errorf("%d claims of %d locked rows", waits, locked)
		}
	})
}

// TestNothingStartsThatWasLoadedBeforeThePauseOfItsProcess: claimed or not, it is looked at again.
func TestNothingStartsThatWasLoadedBeforeThePauseOfItsProcess(t *testing.T) {
	eachWay(t, testNothingStartsThatWasLoadedBeforeThePauseOfItsProcess)
}

func testNothingStartsThatWasLoadedBeforeThePauseOfItsProcess(t *testing.T) {
	for name, strict := range map[string]bool{"claimed": true, "not claimed": false} {
		t.Run(name, func(t *testing.T) {
			p := policy("order.close", 1)
			p.Strict, p.Concurrency = strict, 1
			var calls atomic.Int32
			var leave chan struct{}
			inBubble(t, p, func(context.Context, tocsin.Info) error {
				if calls.Add(1) == 1 {
					<-leave
				}
				return nil
			}, func(r *rig) {
				leave = make(chan struct{}) // of the bubble
				r.loadAhead(1)
				r.add(0, 1, 0)
				pass(time.Millisecond)
				waits := r.add(0, 1, 0)
				pass(10 * time.Millisecond)
				if st := r.Stats(); st.Loaded != 1 {
					t.Fatalf("%d rows wait for the slot", st.Loaded)
				}
				r.store.jumped.Store(time.Now().UnixMicro())
				r.store.change(waits, func(row *store.Row) { row.Status = tocsin.Done }) // as another process has delivered it meanwhile
				close(leave)
				pass(time.Second)
				if calls.Load() != 1 {
					t.Error("it was delivered")
				}
			})
		})
	}
}

func TestTheHandlerOfAClaimedTaskSeesWhenItWasToAct(t *testing.T) {
	eachWay(t, testTheHandlerOfAClaimedTaskSeesWhenItWasToAct)
}

func testTheHandlerOfAClaimedTaskSeesWhenItWasToAct(t *testing.T) {
	p := policy("order.close", 1)
	p.Strict = true
	early := make(chan time.Duration, 1)
	inBubble(t, p, func(_ context.Context, task tocsin.Info) error { early <- time.Until(task.ActionTime); return nil }, func(r *rig) {
		r.offer(r.insert(0, 1, 0))
		if d := <-early; d > 0 {
			t.Errorf("its action time is %s from now: the claim's deadline", d)
		}
	})
}

// A node that stops while rows are being claimed gives them back, whether it loaded them or they were read whole: else they would
// wait for the end of the claim, and count as crashes.
func TestAClaimUnderWayAtTheEndIsNotLeftBehind(t *testing.T) {
	for name, whole := range map[string]bool{"loaded": false, "read whole": true} {
		t.Run(name, func(t *testing.T) {
			target := newCalls(nil)
			target.inBubble(t, func(r *rig) {
				r.store.fail(func(statement string, _ []tocsin.JobID) error {
					if statement == "claim" {
						time.Sleep(100 * time.Millisecond)
					}
					return nil
				})
				id := r.insert(0, 1, -time.Hour)
				var taking sync.WaitGroup
				if whole {
					room, rows := r.room(1), r.rows(id)
					taking.Go(func() { r.hand(room, rows) })
				} else {
					r.offer(id)
				}
				pass(50 * time.Millisecond)
				r.stop()
				taking.Wait()
				pass(time.Second)
				if n, _ := r.store.counts(store.Stored); n != 1 || target.of(id) != 0 {
					t.Errorf("%d claims, %d deliveries", n, target.of(id))
				}
				r.status(id, tocsin.Pending)
			})
		})
	}
}

// claimMode is a config of the group g whose lease can be taken away.
func claimMode(lease *atomic.Bool) func(*Config) {
	return func(c *Config) {
		c.Group = "g"
		c.LeaseOK = func(owner string) bool { return owner == "me" && lease.Load() }
	}
}

func TestWithoutTheLeaseRowsAreClaimedBehindTheFence(t *testing.T) {
	for name, c := range map[string]struct {
		owner store.Fence
		calls int32
	}{
		"the last owner delivers":     {store.Fence{Group: "g", Node: "me"}, 1},
		"who was replaced does not":   {store.Fence{Group: "g", Node: "another"}, 0},
		"another group is no owner":   {store.Fence{Group: "h", Node: "me"}, 0},
		"nor is who was never fenced": {store.Fence{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			var lease atomic.Bool
			sinks := map[string]Sink{"order.close": handler(func(context.Context, tocsin.Info) error { calls.Add(1); return nil })}
			inBubbleOf(t, nil, sinks, claimMode(&lease), func(r *rig) {
				r.store.owner = c.owner
				r.SetPolicies([]biztype.Policy{policy("order.close", 1)})
				r.add(0, 1, 0)
				pass(2 * time.Second)
				if calls.Load() != c.calls || r.store.claims != int(c.calls) {
					t.Errorf("%d deliveries and %d claims, want %d", calls.Load(), r.store.claims, c.calls)
				}
				lease.Store(true)
				r.add(0, 1, 0)
				pass(2 * time.Second)
				if calls.Load() != c.calls+1 || r.store.claims != int(c.calls) {
					t.Errorf("with the lease back: %d deliveries and %d claims, want %d and %d", calls.Load(), r.store.claims, c.calls+1, c.calls)
				}
			})
		})
	}
}

func TestLoosenClaimsWhatIsInDelivery(t *testing.T) {
	var lease atomic.Bool
	lease.Store(true)
	sinks := map[string]Sink{"order.close": handler(func(context.Context, tocsin.Info) error { time.Sleep(10 * time.Second); return nil })}
	inBubbleOf(t, nil, sinks, claimMode(&lease), func(r *rig) {
		r.store.owner = store.Fence{Group: "g", Node: "me"}
		r.SetPolicies([]biztype.Policy{policy("order.close", 1)})
		id := r.add(0, 1, 0)
		pass(time.Second)
		r.status(id, tocsin.Pending)
		lease.Store(false)
		if err := r.Loosen(t.Context(), "somebody else"); err != nil {
			t.Error(err)
		}
		r.status(id, tocsin.Pending)
		if err := r.Loosen(t.Context(), "me"); err != nil {
			t.Error(err)
		}
		r.status(id, tocsin.Claimed)
		pass(10 * time.Second)
		r.status(id, tocsin.Done)
	})
}

func TestRowsThatEndedProcessesAreInHandOneAtATime(t *testing.T) {
	var inHand, most, calls atomic.Int32
	inBubble(t, policy("order.close", 1), func(_ context.Context, task tocsin.Info) error {
		calls.Add(1)
		if task.Crashes < 2 {
			return nil
		}
		most.Store(max(most.Load(), inHand.Add(1)))
		time.Sleep(time.Second)
		inHand.Add(-1)
		if task.BizID == 3 && task.Attempts == 0 {
			return errors.New("not yet") // a failure makes room too
		}
		return nil
	}, func(r *rig) {
		var ids []tocsin.JobID
		for i := range 12 {
			id := r.insert(i%rigTables, 1, 0)
			r.store.change(id, func(row *store.Row) { row.Crashes = i % 3 })
			ids = append(ids, id)
		}
		for _, id := range ids {
			r.offer(id)
		}
		pass(100 * time.Millisecond)
		if n := calls.Load(); n != 9 {
			t.Errorf("%d deliveries at once, want the 8 without suspicion and 1 suspect", n)
		}
		pass(time.Minute)
		for _, id := range ids {
			r.status(id, tocsin.Done)
		}
		if most.Load() != 1 {
			t.Errorf("%d suspects were in hand at once", most.Load())
		}
	})
}
