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
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/duequeue"
)

func TestMain(m *testing.M) { devtest.Main(m) }

func TestDeliversOnTimeAndNeverEarly(t *testing.T) { eachWay(t, testDeliversOnTimeAndNeverEarly) }

func testDeliversOnTimeAndNeverEarly(t *testing.T) {
	var early, late atomic.Int32
	inBubble(t, policy("order.close", 1), func(_ context.Context, task tocsin.Info) error {
		if time.Now().Before(task.ActionTime) {
			early.Add(1)
		}
		if time.Since(task.ActionTime) > 5*time.Millisecond {
			late.Add(1)
		}
		return nil
	}, func(r *rig) {
		r.store.skew.Store(3) // the estimate is wrong: the loaded rows tell
		var ids []tocsin.JobID
		for i := range 200 {
			ids = append(ids, r.add(i%rigTables, 1, time.Duration(i)*37*time.Millisecond))
		}
		pass(10 * time.Second)
		for _, id := range ids {
			r.status(id, tocsin.Done)
		}
		if early.Load() != 0 || late.Load() != 0 {
			t.Errorf("%d early, %d late", early.Load(), late.Load())
		}
	})
}

// near allows for the steps in which a row is loaded and settled.
func near(got, want time.Duration) bool { return got >= want && got < want+50*time.Millisecond }

// Each of the two leaves a run.
func TestHangIsSettledAtTheTimeoutAndALateSuccessCounts(t *testing.T) {
	eachWay(t, testHangIsSettledAtTheTimeoutAndALateSuccessCounts)
}

func testHangIsSettledAtTheTimeoutAndALateSuccessCounts(t *testing.T) {
	var calls atomic.Int32
	p := kept(oneSlot())
	p.Ladder = []biztype.Duration{biztype.Duration(time.Hour)}
	recorded(t, p, handler(func(ctx context.Context, _ tocsin.Info) error {
		if calls.Add(1) == 1 {
			tocsin.Output(ctx, "half")
			time.Sleep(7 * time.Second) // ignores its context
			tocsin.Output(ctx, "whole")
		}
		return nil
	}), func(r *rig, b *book) {
		hung := r.add(0, 1, 0)
		pass(3 * time.Second)
		if row := r.store.row(hung); row.Attempts != 1 || row.LastError != "delivery timed out after 2s" {
			t.Errorf("after the time-out: %d attempts, %q", row.Attempts, row.LastError)
		}
		other := r.add(0, 1, 0)
		pass(time.Second)
		if calls.Load() != 1 {
			t.Error("the slot was free")
		}
		pass(5 * time.Second)
		r.status(other, tocsin.Done)
		r.status(hung, tocsin.Done)
		want := []string{"1 completed: ", "1 completed: whole", "1 retried: delivery timed out after 2s\nhalf"}
		got := b.lines()
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("history %q, want %q", got, want)
		}
	})
}

func TestLanesAreIsolated(t *testing.T) { eachWay(t, testLanesAreIsolated) }

func testLanesAreIsolated(t *testing.T) {
	var block chan struct{} // made in the bubble
	policies := []biztype.Policy{policy("slow", 1), policy("quick", 2)}
	policies[0].Concurrency, policies[0].Timeout = 2, biztype.Duration(time.Minute)
	sinks := map[string]Sink{
		"slow":  handler(func(context.Context, tocsin.Info) error { <-block; return nil }),
		"quick": handler(succeeds),
	}
	inBubbleOf(t, policies, sinks, nil, func(r *rig) {
		block = make(chan struct{})
		for range 2000 {
			r.add(0, 1, 0)
		}
		quick := r.add(0, 2, 0)
		pass(100 * time.Millisecond)
		r.status(quick, tocsin.Done)
		if st := r.Stats(); st.Loaded > 10 || st.Open != 2 {
			t.Errorf("%d rows loaded and %d in delivery for two slots", st.Loaded, st.Open)
		}
		close(block)
		pass(10 * time.Second)
		if st := r.Stats(); st.Queued+st.Loaded+st.Open+st.Unsettled != 0 {
			t.Errorf("left: %+v", st)
		}
	})
}

func TestADeadServerStopsItsOwnTablesOnly(t *testing.T) {
	eachWay(t, testADeadServerStopsItsOwnTablesOnly)
}

func testADeadServerStopsItsOwnTablesOnly(t *testing.T) {
	inBubbleWith(t, policy("order.close", 1), handler(succeeds), onServers(2), func(r *rig) {
		r.store.fail(func(_ string, ids []tocsin.JobID) error {
			if ids[0].Table() == 1 {
				return errLost
			}
			return nil
		})
		sick := r.add(1, 1, 0)
		well := r.add(0, 1, 0)
		pass(time.Second)
		r.status(well, tocsin.Done)
		r.status(sick, tocsin.Pending)
		r.store.fail(nil)
		pass(3 * time.Second)
		r.status(sick, tocsin.Done)
	})
}

func TestPausedAndForeignTypesAreLeftAlone(t *testing.T) {
	eachWay(t, testPausedAndForeignTypesAreLeftAlone)
}

func testPausedAndForeignTypesAreLeftAlone(t *testing.T) {
	paused := policy("paused", 1)
	paused.Paused = true
	foreign := policy("foreign", 2)
	own := policy("own", 3)
	var calls atomic.Int32
	count := handler(func(context.Context, tocsin.Info) error { calls.Add(1); return nil })
	inBubbleOf(t, []biztype.Policy{paused, foreign, own}, map[string]Sink{"paused": count, "own": count}, nil, func(r *rig) {
		if got := r.Wanted(0); len(got) != 1 || got[0] != 3 {
			t.Errorf("wanted %v", got)
		}
		for kind := range uint64(2) {
			id := r.insert(0, kind+1, 0)
			if refused := r.Offer(0, []duequeue.Entry{{JobID: id, Type: kind + 1, Due: 1}}); len(refused) != 1 {
				t.Errorf("type %d was not refused", kind+1)
			}
		}
		queued := r.add(0, 3, time.Second)
		own.Paused = true
		r.SetPolicies([]biztype.Policy{own})
		pass(3 * time.Second)
		r.status(queued, tocsin.Pending)
		own.Paused = false
		r.SetPolicies([]biztype.Policy{own})
		pass(time.Second)
		r.status(queued, tocsin.Done)
	})
}

func TestAFullLaneRefusesAndCallsForMore(t *testing.T) {
	eachWay(t, testAFullLaneRefusesAndCallsForMore)
}

func testAFullLaneRefusesAndCallsForMore(t *testing.T) {
	var block chan struct{} // made in the bubble
	var woken atomic.Int32
	p := policy("order.close", 1)
	p.Concurrency, p.Timeout = 1, biztype.Duration(time.Minute)
	sinks := map[string]Sink{"order.close": handler(func(context.Context, tocsin.Info) error { <-block; return nil })}
	adapt := func(c *Config) { c.QueueCap, c.Woken = 4, func(int) { woken.Add(1) } }
	inBubbleOf(t, nil, sinks, adapt, func(r *rig) {
		block = make(chan struct{})
		r.SetPolicies([]biztype.Policy{p})
		for range 4 {
			r.add(0, 1, 0)
		}
		pass(time.Second)
		woken.Store(0)
		late := r.insert(0, 1, 0)
		entry := duequeue.Entry{JobID: late, Type: 1, Due: r.store.row(late).Action}
		if got := r.Offer(0, []duequeue.Entry{entry}); len(got) != 1 || got[0] != entry {
			t.Errorf("refused %v, want %v", got, entry)
		}
		if len(r.Wanted(0)) != 0 || woken.Load() != 0 {
			t.Errorf("full, and yet wanted %v, woken %d times", r.Wanted(0), woken.Load())
		}
		close(block)
		pass(time.Second)
		if len(r.Wanted(0)) != 1 || woken.Load() == 0 {
			t.Errorf("empty, and yet wanted %v, woken %d times", r.Wanted(0), woken.Load())
		}
	})
}

// A task that is due again within the scanner's look-ahead is delivered then, without a peek. A later one is left to the scanner.
func TestATaskThatIsDueAgainSoonStaysQueued(t *testing.T) {
	eachWay(t, testATaskThatIsDueAgainSoonStaysQueued)
}

func testATaskThatIsDueAgainSoonStaysQueued(t *testing.T) {
	for name, c := range map[string]struct {
		ahead, again time.Duration
		want         tocsin.Status
	}{
		"within a look-ahead of two minutes":  {2 * time.Minute, 119 * time.Second, tocsin.Done},
		"beyond a look-ahead of two minutes":  {2 * time.Minute, 121 * time.Second, tocsin.Pending},
		"within the least look-ahead":         {time.Second, 9 * time.Second, tocsin.Done},
		"beyond the look-ahead of no scanner": {0, 11 * time.Second, tocsin.Pending},
	} {
		t.Run(name, func(t *testing.T) {
			inBubbleWith(t, policy("order.close", 1), handler(func(_ context.Context, task tocsin.Info) error {
				if task.Attempts == 0 {
					return tocsin.RetryIn(c.again, errors.New("busy"))
				}
				return nil
			}), func(cfg *Config) { cfg.LookAhead = c.ahead }, func(r *rig) {
				id := r.add(0, 1, 0)
				pass(c.again + time.Second)
				r.status(id, c.want)
			})
		})
	}
}

// Tasks that are due again leave room in the queue: the scanner looks for no others of a lane without. It is told of those that do not stay.
func TestTasksThatAreDueAgainLeaveRoom(t *testing.T) { eachWay(t, testTasksThatAreDueAgainLeaveRoom) }

func testTasksThatAreDueAgainLeaveRoom(t *testing.T) {
	refused := map[tocsin.JobID]int64{}
	inBubbleWith(t, policy("order.close", 1), handler(func(context.Context, tocsin.Info) error {
		return tocsin.RetryIn(time.Minute, errors.New("busy"))
	}), func(cfg *Config) {
		cfg.LookAhead, cfg.QueueCap = 2*time.Minute, 16
		cfg.Refused = func(_ int, entries []duequeue.Entry) {
			for _, e := range entries {
				refused[e.JobID] = e.Due
			}
		}
	}, func(r *rig) {
		for range 32 {
			id := r.add(0, 1, 0)
			pass(100 * time.Millisecond)
			if due := r.store.row(id).Action; (r.Place(0, id).Stage == Queued) == (refused[id] == due) {
				t.Errorf("%+v, refused until %d, due at %d", r.Place(0, id), refused[id], due)
			}
		}
		s := r.servers[0]
		s.mu.Lock()
		defer s.mu.Unlock()
		if queue := s.lanes[1].queue; queue.Len() == 0 || queue.Len() > queue.Cap()*3/4+1 {
			t.Errorf("%d of %d wait", queue.Len(), queue.Cap())
		}
	})
}

// A bell for a task that is due now finds room in a full lane, even in one whose
// share shrank when biz types were added: tasks that are due later give way.
func TestAFullLaneTakesWhatIsDueSooner(t *testing.T) { eachWay(t, testAFullLaneTakesWhatIsDueSooner) }

func testAFullLaneTakesWhatIsDueSooner(t *testing.T) {
	var calls atomic.Int32
	sinks := map[string]Sink{
		"order.close": handler(func(context.Context, tocsin.Info) error { calls.Add(1); return nil }),
		"other":       handler(succeeds),
	}
	for name, policies := range map[string][]biztype.Policy{
		"a lane of its first size": {policy("order.close", 1)},
		"a lane that has shrunk":   {policy("order.close", 1), policy("other", 2)},
	} {
		t.Run(name, func(t *testing.T) {
			calls.Store(0)
			inBubbleOf(t, []biztype.Policy{policy("order.close", 1)}, sinks, func(c *Config) { c.QueueCap = 8 }, func(r *rig) {
				for range 8 {
					r.add(0, 1, 9*time.Second)
				}
				r.SetPolicies(policies)
				if wanted, heard := r.Wanted(0), r.Heard(0); slices.Contains(wanted, 1) || !slices.Contains(heard, 1) {
					t.Errorf("full: wanted %v, heard %v", wanted, heard)
				}
				id := r.insert(0, 1, 0)
				later := time.Now().Add(9 * time.Second).UnixMilli()
				refused := r.Offer(0, []duequeue.Entry{{JobID: id, Type: 1, Due: r.store.row(id).Action}})
				if len(refused) != 1 || refused[0].Due != later {
					t.Errorf("refused %v, want the later ones due at %d", refused, later)
				}
				pass(time.Second)
				r.status(id, tocsin.Done)
				if calls.Load() != 1 {
					t.Errorf("%d deliveries", calls.Load())
				}
			})
		})
	}
}
