package dispatcher

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/ids"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/store"
	"github.com/tocsinhq/tocsin/schedule"
)

// turns stand in for schedule.Runs on the rows of a memory. Runs are Alone, except those of schedule 2, of which nothing is known.
type turns struct {
	*memory
	began   func(*store.Row) schedule.Began // nil: each run is claimed
	unread  atomic.Bool                     // schedules can't be read
	mu      sync.Mutex
	ended   []string       // reasons
	forward []tocsin.JobID // of each Settle in turn
}

func (r *turns) Look(_ context.Context, _ int, rows []store.Row) map[tocsin.JobID]*schedule.Turn {
	all := map[tocsin.JobID]*schedule.Turn{}
	for _, row := range rows {
		if key, is := ids.ParseRunKey(row.DedupKey); is && !r.unread.Load() {
			all[row.JobID] = &schedule.Turn{Name: "report", Time: key.Nominal(), Alone: key.Schedule != 2}
		}
	}
	return all
}

func (r *turns) Begin(_ context.Context, _ *schedule.Turn, row *store.Row, by string, hold time.Duration) (schedule.Began, error) {
	r.memory.mu.Lock()
	defer r.memory.mu.Unlock()
	if err := r.fault("begin", []tocsin.JobID{row.JobID}); err != nil {
		return schedule.Began{}, err
	}
	done := schedule.Began{Deadline: time.Now().Add(hold).UnixMilli()}
	if r.began != nil {
		done = r.began(row)
	}
	own := r.rows[row.JobID]
	if hold == 0 && done.Deadline != 0 {
		done.Deadline = own.Action
	}
	switch {
	case own.Status == tocsin.Claimed && own.ClaimedBy == by:
		return schedule.Began{Deadline: own.Action}, nil
	case own.Status != tocsin.Pending:
		return schedule.Began{}, nil
	case done.Deadline != 0:
		own.Status, own.ClaimedBy, own.Action = tocsin.Claimed, by, done.Deadline
	case done.Ended != "":
		own.Status, own.LastError = tocsin.Cancelled, done.Ended
	case done.Next != 0:
		own.Action = done.Next
	}
	for _, id := range done.Replaced {
		r.rows[id].Status = tocsin.Cancelled
	}
	return done, r.fault("begun", []tocsin.JobID{row.JobID})
}

func (r *turns) Settle(ctx context.Context, _ *schedule.Turn, o store.Outcome) (done schedule.SettledRun, err error) {
	fates, err := r.memory.Settle(ctx, 0, []store.Outcome{o})
	if err != nil {
		return done, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if done.Fate = fates[0]; len(r.forward) > 0 {
		done.Forward, r.forward = r.forward[0], r.forward[1:]
		done.Type = r.row(done.Forward).Type
	}
	return done, nil
}

func (r *turns) Count(_ *schedule.Turn, _ *store.Row, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = append(r.ended, reason)
}

func (r *turns) counted() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ended)
}

// withRuns runs f with a dispatcher of runs, in a bubble.
func withRuns(t *testing.T, target handler, f func(*rig, *turns)) {
	t.Helper()
	p := policy("order.close", 1)
	all := &turns{}
	inBubbleWith(t, p, target, func(cfg *Config) {
		all.memory = cfg.Store.(*memory)
		cfg.Runs = all
	}, func(r *rig) {
		f(r, all)
	})
}

// insertRun stores a run of a schedule. A test that must know it before it begins offers it afterwards.
func (r *rig) insertRun(of uint64, ahead time.Duration) tocsin.JobID {
	id := r.insert(0, 1, ahead)
	r.store.change(id, func(row *store.Row) {
		row.DedupKey = ids.OfTime(of, 1, time.Now().Add(ahead)).String()
	})
	return id
}

// runOf adds a run of a schedule.
func (r *rig) runOf(of uint64, ahead time.Duration) tocsin.JobID {
	id := r.insertRun(of, ahead)
	r.offer(id)
	return id
}

// TestARunOverItsTimeoutStaysClaimed until its handler returns, and is settled then: as failed, or done.
func TestARunOverItsTimeoutStaysClaimed(t *testing.T) { eachWay(t, testARunOverItsTimeoutStaysClaimed) }

func testARunOverItsTimeoutStaysClaimed(t *testing.T) {
	for name, c := range map[string]struct {
		answer error
		status tocsin.Status
		reason string
	}{
		"failed": {errors.New("late"), tocsin.Pending, "delivery timed out after 2s"},
		"done":   {nil, tocsin.Done, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			withRuns(t, func(context.Context, tocsin.Info) error {
				if calls.Add(1) == 1 {
					time.Sleep(40 * time.Second) // over its time-out, and over its claim
				}
				return c.answer
			}, func(r *rig, _ *turns) {
				id := r.runOf(1, 0)
				began := time.Now()
				for range 39 {
					pass(time.Second)
					row := r.store.row(id)
					if row.Status != tocsin.Claimed || row.Attempts != 0 || r.sessions == nil && row.Action <= time.Now().UnixMilli() {
						t.Fatalf("after %s it is %s, %d attempts, until %s", time.Since(began), row.Status, row.Attempts, time.UnixMilli(row.Action))
					}
				}
				pass(1100 * time.Millisecond)
				if row := r.store.row(id); row.Status != c.status || row.LastError != c.reason || calls.Load() != 1 {
					t.Errorf("it is %s, %q, after %d calls", row.Status, row.LastError, calls.Load())
				}
			})
		})
	}
}

// TestADeliveryThatStoodStillIsPutOff: a process that is stopped after it has booked a delivery, for longer than the time-out, calls no
// handler for it, and counts no attempt. Another delivery follows.
func TestADeliveryThatStoodStillIsPutOff(t *testing.T) {
	eachWay(t, testADeliveryThatStoodStillIsPutOff)
}

func testADeliveryThatStoodStillIsPutOff(t *testing.T) {
	for name, of := range map[string]uint64{"a task": 0, "a run that is alone": 1} {
		t.Run(name, func(t *testing.T) {
			var calls, early atomic.Int32
			withRuns(t, func(_ context.Context, task tocsin.Info) error {
				if calls.Add(1); task.Attempts > 0 {
					early.Add(1)
				}
				return nil
			}, func(r *rig, all *turns) {
				s, k := r.servers[0], r.kinds[1]
				id := r.add(3, 1, time.Hour)
				r.store.change(id, func(row *store.Row) {
					row.Action, row.ActionTime = time.Now().UnixMilli(), time.Now()
					if of != 0 {
						row.DedupKey = ids.OfTime(of, 1, time.Now()).String()
					}
				})
				row := r.store.row(id)
				l := s.lanes[1]
				one := &task{lane: l, row: &row, asked: time.Now(), loaded: time.Now()}
				if of != 0 {
					one.turn = all.Look(t.Context(), 0, []store.Row{row})[id]
					done, _ := all.Begin(t.Context(), one.turn, &row, r.cfg.Node, 7*time.Second)
					row.Status, row.Action = tocsin.Claimed, done.Deadline
					one.claimed, one.until = true, time.Now().Add(7*time.Second)
				}
				s.mu.Lock()
				l.held++
				s.mu.Unlock()
				batch := s.start([]*task{one}, k.rule.Load(), time.Now())
				if len(batch) != 1 {
					t.Fatal("it was not booked")
				}
				time.Sleep(20 * time.Second) // the process stands still
				w := &worker{kind: k, tasks: batch}
				w.deliver(batch, k.rule.Load())
				if calls.Load() != 0 {
					t.Error("its handler was called")
				}
				pass(time.Second)
				if row := r.store.row(id); row.Status != tocsin.Done || row.Attempts != 0 || calls.Load() != 1 || early.Load() != 0 {
					t.Errorf("it is %s, %d attempts, after %d calls", row.Status, row.Attempts, calls.Load())
				}
			})
		})
	}
}

// TestARunWhoseScheduleCannotBeReadWaits, and counts no attempt; nothing is written, so that it is missed if it is late then.
func TestARunWhoseScheduleCannotBeReadWaits(t *testing.T) {
	eachWay(t, testARunWhoseScheduleCannotBeReadWaits)
}

func testARunWhoseScheduleCannotBeReadWaits(t *testing.T) {
	var calls atomic.Int32
	withRuns(t, func(context.Context, tocsin.Info) error { calls.Add(1); return nil }, func(r *rig, all *turns) {
		all.unread.Store(true)
		id := r.runOf(1, 0)
		before := r.store.row(id).Action
		pass(5 * time.Second)
		if row := r.store.row(id); row.Status != tocsin.Pending || row.Action != before || calls.Load() != 0 {
			t.Errorf("it is %s after %d calls, due %d", row.Status, calls.Load(), row.Action-before)
		}
		all.unread.Store(false)
		pass(2 * time.Second)
		r.status(id, tocsin.Done)
	})
}

// TestALostAnswerToABeginIsAskedForAgain: the claim is the run's own.
func TestALostAnswerToABeginIsAskedForAgain(t *testing.T) {
	eachWay(t, testALostAnswerToABeginIsAskedForAgain)
}

func testALostAnswerToABeginIsAskedForAgain(t *testing.T) {
	for name, c := range map[string]struct{ lost, then error }{
		"the connection broke":                          {lost: errLost},
		"the connection broke, and a lock was met then": {lost: errLost, then: mysql.ErrLocked},
		"it took too long":                              {lost: context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			withRuns(t, func(context.Context, tocsin.Info) error { calls.Add(1); return nil }, func(r *rig, _ *turns) {
				lost, more := 0, 0
				r.store.fail(func(statement string, _ []tocsin.JobID) error {
					switch {
					case statement == "begun":
						lost++
						return c.lost
					case statement == "begin" && lost > 0 && more < 3:
						more++
						return c.then
					}
					return nil
				})
				id := r.runOf(1, 0)
				pass(5 * time.Second)
				if row := r.store.row(id); row.Status != tocsin.Done || calls.Load() != 1 || lost != 1 {
					t.Errorf("it is %s after %d calls, %d answers were lost", row.Status, calls.Load(), lost)
				}
			})
		})
	}
}

// TestADeliveryEndsWhenItsRunIsReplaced, with a cause that says so.
func TestADeliveryEndsWhenItsRunIsReplaced(t *testing.T) {
	eachWay(t, testADeliveryEndsWhenItsRunIsReplaced)
}

func testADeliveryEndsWhenItsRunIsReplaced(t *testing.T) {
	var causes []error
	var mu sync.Mutex
	var first tocsin.JobID
	withRuns(t, func(ctx context.Context, task tocsin.Info) error {
		if task.JobID != first {
			return nil
		}
		<-ctx.Done()
		mu.Lock()
		defer mu.Unlock()
		causes = append(causes, context.Cause(ctx))
		return ctx.Err()
	}, func(r *rig, all *turns) {
		all.began = func(row *store.Row) schedule.Began {
			done := schedule.Began{Deadline: time.Now().Add(7 * time.Second).UnixMilli()}
			if row.JobID != first {
				done.Replaced = []tocsin.JobID{first}
			}
			return done
		}
		first = r.insertRun(1, 0)
		r.offer(first)
		second := r.runOf(1, time.Second)
		pass(1500 * time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(causes, []error{tocsin.ErrCancelled}) {
			t.Errorf("causes %v", causes)
		}
		r.status(first, tocsin.Cancelled)
		r.status(second, tocsin.Done)
	})
}

// TestARunThatWaitsIsBroughtForward when the one that it waits for ends.
func TestARunThatWaitsIsBroughtForward(t *testing.T) { eachWay(t, testARunThatWaitsIsBroughtForward) }

func testARunThatWaitsIsBroughtForward(t *testing.T) {
	var first, second atomic.Uint64 // job_ids
	withRuns(t, func(context.Context, tocsin.Info) error { time.Sleep(time.Second); return nil }, func(r *rig, all *turns) {
		looks := 0
		all.began = func(row *store.Row) schedule.Began {
			if looks++; row.JobID == tocsin.JobID(second.Load()) && r.store.rows[tocsin.JobID(first.Load())].Status != tocsin.Done {
				all.forward = []tocsin.JobID{row.JobID}
				return schedule.Began{Next: time.Now().Add(9 * time.Second).UnixMilli()}
			}
			return schedule.Began{Deadline: time.Now().Add(7 * time.Second).UnixMilli()}
		}
		one, waits := r.insertRun(1, 0), r.insertRun(1, 500*time.Millisecond)
		first.Store(uint64(one))
		second.Store(uint64(waits))
		r.offer(one)
		r.offer(waits)
		pass(800 * time.Millisecond)
		r.store.change(waits, func(row *store.Row) { row.Action, row.ActionTime = time.Now().UnixMilli(), time.Now() }) // Settle does
		pass(1500 * time.Millisecond)
		r.status(waits, tocsin.Done)
		if looks != 3 {
			t.Errorf("%d looks", looks)
		}
	})
}

// typed runs f with a dispatcher of runs of two biz types, of which it delivers so many, each with one slot. as has the biz types of the
// deliveries, by job_id. Each takes a second.
func typed(t *testing.T, types int, f func(r *rig, all *turns, as *sync.Map)) {
	t.Helper()
	var as sync.Map
	policies, sinks := twoTypes(0)
	for i := range policies {
		policies[i].Concurrency = 1
		sinks[policies[i].Name] = handler(func(_ context.Context, task tocsin.Info) error {
			as.Store(task.JobID, task.BizType)
			time.Sleep(time.Second)
			return nil
		})
	}
	all := &turns{}
	inBubbleOf(t, policies[:types], sinks, func(cfg *Config) {
		all.memory = cfg.Store.(*memory)
		cfg.Runs = all
	}, func(r *rig) { f(r, all, &as) })
}

// retype makes a stored task one of the second biz type.
func (r *rig) retype(id tocsin.JobID) { r.store.change(id, func(row *store.Row) { row.Type = 2 }) }

// TestATaskIsDeliveredAsItsOwnBizType, and by no other: a schedule may have got another one while a run of the former one was in delivery,
// and a bell may name a wrong one.
func TestATaskIsDeliveredAsItsOwnBizType(t *testing.T) {
	eachWay(t, testATaskIsDeliveredAsItsOwnBizType)
}

func testATaskIsDeliveredAsItsOwnBizType(t *testing.T) {
	forward := func(r *rig, all *turns, id tocsin.JobID) {
		all.forward = []tocsin.JobID{id}
		r.runOf(1, 0)
	}
	wrong := func(r *rig, _ *turns, id tocsin.JobID) {
		r.Offer(0, []duequeue.Entry{{JobID: id, Type: 1, Due: r.store.row(id).Action}})
	}
	for name, c := range map[string]struct {
		types int
		tell  func(*rig, *turns, tocsin.JobID)
		as    any
	}{
		"a run that is brought forward":                                  {2, forward, "coupon.remind"},
		"a run that is brought forward, whose type this process lacks":   {1, forward, nil},
		"a task whose bell names another type":                           {2, wrong, nil},
		"a task whose bell names another type, and its own it lacks too": {1, wrong, nil},
	} {
		t.Run(name, func(t *testing.T) {
			typed(t, c.types, func(r *rig, all *turns, as *sync.Map) {
				id := r.insertRun(1, 0)
				r.retype(id)
				c.tell(r, all, id)
				pass(3 * time.Second)
				if got, _ := as.Load(id); got != c.as {
					t.Errorf("it was delivered as %v, want %v", got, c.as)
				}
				next := r.add(0, 1, 0) // the lanes go on
				pass(2 * time.Second)
				r.status(next, tocsin.Done)
				r.idle()
			})
		})
	}
}

// TestARunThatIsReplacedBeforeItBeginsIsNotDelivered, though the later run is of another biz type.
func TestARunThatIsReplacedBeforeItBeginsIsNotDelivered(t *testing.T) {
	eachWay(t, testARunThatIsReplacedBeforeItBeginsIsNotDelivered)
}

func testARunThatIsReplacedBeforeItBeginsIsNotDelivered(t *testing.T) {
	typed(t, 2, func(r *rig, all *turns, as *sync.Map) {
		r.add(0, 1, 0) // keeps the slot
		pass(100 * time.Millisecond)
		r.loadAhead(1)
		first, second := r.insertRun(1, 0), r.insertRun(1, 0)
		r.retype(second)
		all.began = func(row *store.Row) schedule.Began {
			done := schedule.Began{Deadline: time.Now().Add(7 * time.Second).UnixMilli()}
			if row.JobID == second {
				done.Replaced = []tocsin.JobID{first}
			}
			return done
		}
		r.offer(first)
		pass(100 * time.Millisecond)
		r.status(first, tocsin.Claimed)
		r.offer(second)
		pass(3 * time.Second)
		if _, was := as.Load(first); was {
			t.Error("it was delivered")
		}
		r.status(second, tocsin.Done)
		r.idle()
	})
}

// TestARunThatIsNotWantedEndsOnlyWhereItMayBegin, as others may be delivering it, and counts once that is stored.
func TestARunThatIsNotWantedEndsOnlyWhereItMayBegin(t *testing.T) {
	unsure := func(c *Config) { c.LeaseOK = func(string) bool { return false } }
	sweeps := func(may error) func(*Config) {
		return func(c *Config) {
			sweeping(c)
			c.MayClaim = func(int) error { return may }
		}
	}
	for name, c := range map[string]struct {
		adapt   func(*Config)
		late    time.Duration
		owner   string           // in the owner rows
		before  func(*store.Row) // just before its end is stored; nil: nothing happens
		status  tocsin.Status
		claims  int
		counted int
	}{
		"on its owner":                      {owner: "me", status: tocsin.Cancelled, counted: 1},
		"on its owner, to whom it is late":  {late: time.Hour, owner: "me", status: tocsin.Cancelled, claims: 1, counted: 1},
		"on its owner, which is unsure":     {adapt: unsure, owner: "me", status: tocsin.Cancelled, claims: 1, counted: 1},
		"on a former owner":                 {adapt: unsure, owner: "other", status: tocsin.Pending},
		"in a sweep":                        {adapt: sweeps(nil), late: time.Hour, status: tocsin.Cancelled, claims: 1, counted: 1},
		"in a sweep that may not claim yet": {adapt: sweeps(errors.New("it took no writes a moment ago")), late: time.Hour, status: tocsin.Pending},
		"while it ends otherwise":           {owner: "me", before: func(row *store.Row) { row.Status = tocsin.Done }, status: tocsin.Done},
	} {
		t.Run(name, func(t *testing.T) {
			all := &turns{}
			inBubbleWith(t, policy("order.close", 1), handler(succeeds), func(cfg *Config) {
				all.memory = cfg.Store.(*memory)
				if cfg.Runs = all; c.adapt != nil {
					c.adapt(cfg)
				}
			}, func(r *rig) {
				r.ownedBy(c.owner)
				r.store.fail(func(statement string, ids []tocsin.JobID) error {
					if statement == "settle" && c.before != nil {
						c.before(r.store.rows[ids[0]])
					}
					return nil
				})
				id := r.runOf(2, -c.late)
				pass(500 * time.Millisecond)
				r.status(id, c.status)
				if n := r.claims(); n != c.claims || len(all.ended) != c.counted {
					t.Errorf("%d claims, and counted as %q", n, all.ended)
				}
			})
		})
	}
}

// TestARunThatIsGivenBackKeepsItsTime, by which it may be missed, whatever its schedule's overlap is.
func TestARunThatIsGivenBackKeepsItsTime(t *testing.T) {
	eachWay(t, testARunThatIsGivenBackKeepsItsTime)
}

func testARunThatIsGivenBackKeepsItsTime(t *testing.T) {
	withRuns(t, succeeds, func(r *rig, _ *turns) {
		s, row := r.servers[0], r.store.row(r.insertRun(1, -time.Minute))
		for _, alone := range []bool{false, true} {
			back := s.back(&task{lane: s.lanes[1], row: &row, turn: &schedule.Turn{Alone: alone}, claimed: true})
			if back.next != row.DueTime.UnixMilli() {
				t.Errorf("alone: %t, %s later", alone, time.UnixMilli(back.next).Sub(row.DueTime))
			}
		}
	})
}

// TestRunsThatAreNotWantedEnd without a call, with a run in the history that has their fire time. They are counted once that is stored.
func TestRunsThatAreNotWantedEnd(t *testing.T) { eachWay(t, testRunsThatAreNotWantedEnd) }

func testRunsThatAreNotWantedEnd(t *testing.T) {
	var calls atomic.Int32
	withRuns(t, func(context.Context, tocsin.Info) error { calls.Add(1); return nil }, func(r *rig, all *turns) {
		b := &book{}
		r.cfg.Record = b.record
		all.began = func(*store.Row) schedule.Began { return schedule.Began{Ended: "missed: 5m0s late"} }
		r.failOn("settle", errLost)
		late, deleted, ahead := r.runOf(1, 0), r.runOf(2, 0), r.runOf(2, time.Second) // the last one is loaded ahead of its time, as a retry is
		pass(2 * time.Second)
		if counted := all.counted(); len(counted) > 0 {
			t.Errorf("counted before they are stored: %q", counted)
		}
		r.failOn("", nil)
		pass(20 * time.Second)
		if counted := all.counted(); !slices.Equal(counted, []string{"cancelled: its schedule was deleted", "cancelled: its schedule was deleted"}) {
			t.Errorf("counted: %q", counted)
		}
		lines := b.lines()
		slices.Sort(lines)
		for i, want := range []string{"1 cancelled: cancelled: its schedule was deleted", "1 cancelled: cancelled: its schedule was deleted", "1 missed: missed: 5m0s late"} {
			r.status([]tocsin.JobID{late, deleted, ahead}[i], tocsin.Cancelled)
			if len(lines) != 3 || !strings.HasPrefix(lines[i], want+"; fire time ") || calls.Load() != 0 {
				t.Errorf("%q, %d calls", lines, calls.Load())
			}
		}
		if st := r.Stats(); st.Open+st.Loaded+st.Unsettled != 0 || st.PayloadBytes != 0 {
			t.Errorf("%+v", st)
		}
	})
}
