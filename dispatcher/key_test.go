package dispatcher

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/store"
)

var quick = ends(20*time.Millisecond, nil)

// keyed stores a row of a key.
func (r *rig) keyed(key uint64, due time.Duration) tocsin.JobID {
	id := r.insert(int(key)%rigTables, 1, due)
	r.store.change(id, func(row *store.Row) { row.BizID = key })
	return id
}

func keyPolicy(n int) biztype.Policy {
	p := policy("order.step", 1)
	p.PerKey, p.Strict = n, true
	return p
}

// Of each key so many tasks are in delivery at once, in the order of their times, whatever the order they are found in. The
// keys don't wait for each other.
func TestAKeysTasksAreDeliveredInTurn(t *testing.T) { eachWay(t, testAKeysTasksAreDeliveredInTurn) }

func testAKeysTasksAreDeliveredInTurn(t *testing.T) {
	const keys, each = 3, 30
	for _, n := range []int{1, 4} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			log := newCalls(quick)
			inBubble(t, keyPolicy(n), log.deliver, func(r *rig) {
				want := map[uint64][]tocsin.JobID{}
				for i := range each {
					for k := range uint64(keys) {
						want[k] = append(want[k], r.keyed(k, time.Duration(i-each)*100*time.Millisecond))
					}
				}
				for i := range each {
					for k := range want {
						r.offer(want[k][i*7%each])
					}
				}
				pass(5 * time.Second)
				for k := range want {
					if log.most[k] != n || n == 1 && !slices.Equal(log.order(k), want[k]) || len(log.order(k)) != each {
						t.Errorf("key %d: %d at once, in the order %v, want %v", k, log.most[k], log.order(k), want[k])
					}
					for _, id := range want[k] {
						r.status(id, tocsin.Done)
					}
				}
				if log.all <= n || log.all > keys*n { // the keys go on beside each other, though not always all of them
					t.Errorf("%d at once, want more than %d and at most %d", log.all, n, keys*n)
				}
				if len(r.servers[0].keys) != 0 || len(r.servers[0].lookups) != 0 {
					t.Errorf("%d keys and %d looks are left", len(r.servers[0].keys), len(r.servers[0].lookups))
				}
			})
		})
	}
}

// A key's tasks go in the order of their times, whichever are known, retried or over their time-out.
func TestAKeysTasksGoInOrder(t *testing.T) { eachWay(t, testAKeysTasksGoInOrder) }

func testAKeysTasksGoInOrder(t *testing.T) {
	timeout := keyPolicy(1).Timeout.D()
	for name, c := range map[string]struct {
		rows    int // of the key, a second apart
		offered []int
		took    answer
		order   []int // nil: each once
	}{
		"those before the last go first, though it alone is offered": {20, []int{19}, quick, nil},
		"a retried one has a new time, and gives way": {2, []int{0, 1}, func(task tocsin.Info) (time.Duration, error) {
			if task.DueTime.Before(time.Now().Add(-1500*time.Millisecond)) && task.Attempts == 0 {
				return 0, tocsin.RetryIn(time.Second, errors.New("busy"))
			}
			return 0, nil
		}, []int{0, 1, 0}},
		"a handler that ignores its time-out keeps its place": {2, []int{0, 1}, ends(9*timeout/2, nil), nil},
	} {
		t.Run(name, func(t *testing.T) {
			log := newCalls(c.took)
			inBubble(t, keyPolicy(1), log.deliver, func(r *rig) {
				var ids, want []tocsin.JobID
				for i := range c.rows {
					ids = append(ids, r.keyed(7, time.Duration(i-c.rows)*time.Second))
				}
				for _, i := range c.order {
					want = append(want, ids[i])
				}
				if c.order == nil {
					want = ids
				}
				for _, i := range c.offered {
					r.offer(ids[i])
				}
				pass(30 * time.Second)
				if !slices.Equal(log.order(7), want) || log.most[7] != 1 {
					t.Errorf("in the order %v, want %v; %d at once", log.order(7), want, log.most[7])
				}
				for _, id := range ids {
					r.status(id, tocsin.Done)
				}
			})
		})
	}
}

// Two processes that find the same rows deliver a key's tasks in one order, never two at once; a failing look is made again.
func TestProcessesShareAKeysTurns(t *testing.T) { eachWay(t, testProcessesShareAKeysTurns) }

func testProcessesShareAKeysTurns(t *testing.T) {
	log := newCalls(quick)
	p := keyPolicy(1)
	p.Strict = true // each row is claimed, also where tables have owners
	sinks := map[string]Sink{p.Name: handler(log.deliver)}
	synctest.Test(t, func(t *testing.T) {
		a := newRig(t, sinks, nil)
		b := newRig(t, sinks, func(c *Config) { c.Store, c.Node = a.store, "node-2" })
		b.store = a.store
		fails := 0
		a.store.fail(func(statement string, _ []tocsin.JobID) error {
			if statement != "turn" || fails == 5 {
				return nil
			}
			fails++
			return errLost
		})
		for _, r := range []*rig{a, b} {
			r.SetPolicies([]biztype.Policy{p})
			r.run()
		}
		var want []tocsin.JobID
		for i := range 40 {
			want = append(want, a.keyed(7, time.Duration(i-40)*time.Second))
		}
		for i := range want {
			a.offer(want[i])
			b.offer(want[len(want)-1-i])
		}
		pass(20 * time.Second)
		if log.most[7] != 1 || !slices.Equal(log.order(7), want) || fails != 5 {
			t.Errorf("%d at once, in the order %v, want %v", log.most[7], log.order(7), want)
		}
		a.finish()
		b.finish()
	})
}

// A sweep goes through a key's overdue rows, and leaves those that are not.
func TestASweepTakesAKeysRowsInTurn(t *testing.T) { eachWay(t, testASweepTakesAKeysRowsInTurn) }

func testASweepTakesAKeysRowsInTurn(t *testing.T) {
	log := newCalls(quick)
	inBubbleWith(t, keyPolicy(1), handler(log.deliver), func(c *Config) { sweeping(c); c.SweepGrace = 10 * time.Second }, func(r *rig) {
		var want []tocsin.JobID
		for i := range 20 {
			want = append(want, r.keyed(7, time.Duration(i-90)*time.Second))
		}
		young := r.keyed(7, -time.Second)
		for _, id := range want {
			r.offer(id)
		}
		for busy := 1; busy > 0; {
			pass(10 * time.Millisecond)
			busy, _, _ = r.Lane(0, 1)
		}
		if !slices.Equal(log.order(7), want) || log.most[7] != 1 {
			t.Errorf("in the order %v, want %v", log.order(7), want)
		}
		r.status(young, tocsin.Pending)
	})
}

// In a sweep a look at a key may be due when a task could not reach its target: then the key is left alone, and nothing else happens.
func TestASweepForgetsALookAtAKeyWhoseTargetIsAway(t *testing.T) {
	eachWay(t, testASweepForgetsALookAtAKeyWhoseTargetIsAway)
}

func testASweepForgetsALookAtAKeyWhoseTargetIsAway(t *testing.T) {
	log := newCalls(func(task tocsin.Info) (time.Duration, error) {
		if task.Payload == "away" {
			return 20 * time.Millisecond, absent{}
		}
		return 20 * time.Millisecond, nil
	})
	inBubbleWith(t, keyPolicy(2), handler(log.deliver), sweeping, func(r *rig) {
		var ids []tocsin.JobID
		for i := range 4 {
			ids = append(ids, r.keyed(7, time.Duration(i-90)*time.Second))
		}
		r.store.change(ids[1], func(row *store.Row) { row.Payload = "away" })
		for _, id := range ids {
			r.offer(id)
		}
		pass(10 * time.Second)
		r.status(ids[0], tocsin.Done)
		r.status(ids[1], tocsin.Pending)
	})
}

// A task of a key whose turn comes while its type is paused is delivered when the type goes on.
func TestAKeysTurnOutlastsAPause(t *testing.T) { eachWay(t, testAKeysTurnOutlastsAPause) }

func testAKeysTurnOutlastsAPause(t *testing.T) {
	p := keyPolicy(1)
	inBubble(t, p, newCalls(ends(time.Second, nil)).deliver, func(r *rig) {
		first, second := r.keyed(7, -2*time.Second), r.keyed(7, -time.Second)
		r.offer(first)
		r.offer(second)
		pass(500 * time.Millisecond)
		paused := p
		paused.Paused = true
		r.SetPolicies([]biztype.Policy{paused})
		pass(10 * time.Second)
		r.status(first, tocsin.Done)
		r.status(second, tocsin.Pending)
		r.SetPolicies([]biztype.Policy{p})
		pass(3 * time.Second)
		r.status(second, tocsin.Done)
	})
}

// Keys of a locked table are not looked at, as that would hold up those of others.
func TestKeysOfALockedTableAreNotLookedAt(t *testing.T) {
	eachWay(t, testKeysOfALockedTableAreNotLookedAt)
}

func testKeysOfALockedTableAreNotLookedAt(t *testing.T) {
	inBubble(t, keyPolicy(1), newCalls(ends(time.Second, nil)).deliver, func(r *rig) {
		first, second := r.keyed(7, -2*time.Second), r.keyed(7, -time.Second)
		r.offer(first)
		r.offer(second)
		pass(500 * time.Millisecond)
		var looks atomic.Int32
		r.store.fail(func(statement string, _ []tocsin.JobID) error {
			if statement == "turn" {
				looks.Add(1)
			}
			return nil
		})
		s := r.servers[0]
		s.mu.Lock()
		s.known(first.Table()).avoidUntil = time.Now().Add(3 * time.Second)
		s.mu.Unlock()
		pass(2900 * time.Millisecond)
		r.status(first, tocsin.Done)
		if n := looks.Load(); n > 0 {
			t.Errorf("%d looks", n)
		}
		pass(2 * time.Second)
		r.status(second, tocsin.Done)
	})
}

// A key whose rows were refused again and again, as others are in delivery, goes on once one of these has ended.
func TestAKeyThatWasRefusedOftenGoesOn(t *testing.T) { eachWay(t, testAKeyThatWasRefusedOftenGoesOn) }

func testAKeyThatWasRefusedOftenGoesOn(t *testing.T) {
	inBubble(t, keyPolicy(2), newCalls(ends(1900*time.Millisecond, nil)).deliver, func(r *rig) {
		elsewhere, here, next := r.keyed(7, -3*time.Second), r.keyed(7, -2*time.Second), r.keyed(7, -time.Second)
		r.store.change(elsewhere, func(row *store.Row) { row.Status, row.ClaimedBy = tocsin.Claimed, "node-2" })
		r.offer(here)
		for range 4 * vainLooks { // peeks and bells find it
			pass(40 * time.Millisecond)
			r.offer(next)
		}
		r.status(here, tocsin.Claimed)
		r.status(next, tocsin.Pending)
		pass(2500 * time.Millisecond)
		r.status(here, tocsin.Done)
		r.status(next, tocsin.Done)
	})
}
