package dispatcher

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/store"
)

// Tests of rows that are loaded shortly before their time and held until then.

// watched is memory that records when rows were read.
type watched struct {
	*memory
	mu    sync.Mutex
	loads []time.Time
	rows  [][]tocsin.JobID
}

// Load records the time and the ids.
func (w *watched) Load(ctx context.Context, server int, ids []tocsin.JobID) (store.Loaded, error) {
	w.mu.Lock()
	w.loads, w.rows = append(w.loads, time.Now()), append(w.rows, slices.Clone(ids))
	w.mu.Unlock()
	return w.memory.Load(ctx, server, ids)
}

// reads returns the times of the loads so far.
func (w *watched) reads() []time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.loads)
}

// halfASecond is how long the task takes, and no other.
func halfASecond(id tocsin.JobID) answer {
	return func(task tocsin.Info) (time.Duration, error) {
		if task.JobID == id {
			return 500 * time.Millisecond, nil
		}
		return 0, nil
	}
}

// ahead runs f with a dispatcher of one biz type, its watched memory and its calls.
func ahead(t *testing.T, p biztype.Policy, adapt func(*Config), f func(*rig, *watched, *calls)) {
	t.Helper()
	begun := newCalls(nil)
	var w *watched
	inBubbleWith(t, p, handler(begun.deliver), func(c *Config) {
		w = &watched{memory: c.Store.(*memory)}
		w.owner = store.Fence{Node: "me"}
		c.Store = w
		if adapt != nil {
			adapt(c)
		}
	}, func(r *rig) {
		f(r, w, begun)
	})
}

func TestRowsAreLoadedAheadTogetherAndStartedAtTheirTime(t *testing.T) {
	ahead(t, policy("order.close", 1), nil, func(r *rig, w *watched, begun *calls) {
		origin := time.Now()
		dues := []time.Duration{100, 101, 104, 106, 200} // ms
		ids := make([]tocsin.JobID, len(dues))
		for i, due := range dues {
			ids[i] = r.add(i%rigTables, 1, due*time.Millisecond)
		}
		pass(time.Second)
		for i, due := range dues {
			at, _ := begun.first(ids[i])
			if got := at.Sub(origin); got != due*time.Millisecond {
				t.Errorf("the row that is due at %d ms started at %v", due, got)
			}
		}
		var loaded []time.Duration
		for _, at := range w.reads() {
			loaded = append(loaded, at.Sub(origin)/time.Millisecond)
		}
		want := []time.Duration{100 - 5, 106 - 5, 200 - 5}
		if !slices.Equal(loaded, want) || len(w.rows[0]) != 3 {
			t.Errorf("loads at %v ms of %v, want at %v, the first of three rows", loaded, w.rows, want)
		}
	})
}

func TestARowCancelledBeforeItIsLoadedIsNeverDelivered(t *testing.T) {
	for before := range 15 {
		ahead(t, policy("order.close", 1), nil, func(r *rig, w *watched, begun *calls) {
			first := r.add(0, 1, 96*time.Millisecond) // first loads its neighbour with it, as early as possible
			id := r.add(1, 1, 100*time.Millisecond)
			pass(100*time.Millisecond - time.Duration(before)*time.Millisecond)
			r.store.change(id, func(row *store.Row) { row.Status = tocsin.Cancelled })
			cancelled := time.Now()
			pass(time.Second)
			r.status(first, tocsin.Done)
			_, delivered := begun.first(id)
			for i, ids := range w.rows {
				if slices.Contains(ids, id) && delivered && w.loads[i].After(cancelled) {
					t.Errorf("delivered although cancelled %d ms before it was due, and before its load", before)
				}
			}
			if delivered && before > int(holdWithin.Milliseconds()) {
				t.Errorf("delivered although cancelled %d ms before it was due, more than it is held", before)
			}
		})
	}
}

func TestAHeldRowTakesNoSlotFromOneThatIsDue(t *testing.T) {
	eachWay(t, testAHeldRowTakesNoSlotFromOneThatIsDue)
}

func testAHeldRowTakesNoSlotFromOneThatIsDue(t *testing.T) {
	p := policy("order.close", 1)
	p.Concurrency = 1
	ahead(t, p, nil, func(r *rig, _ *watched, begun *calls) {
		held := r.add(0, 1, 100*time.Millisecond)
		pass(97 * time.Millisecond)
		now := r.add(1, 1, 0)
		offered := time.Now()
		pass(time.Second)
		if at, _ := begun.first(now); !at.Equal(offered) {
			t.Errorf("the row that was due at once waited %v", at.Sub(offered))
		}
		r.status(held, tocsin.Done)
	})
}

func TestRowsOfStrictTypesAreLoadedWhenTheyAreDue(t *testing.T) {
	p := policy("order.close", 1)
	p.Strict = true
	ahead(t, p, nil, func(r *rig, w *watched, _ *calls) {
		origin := time.Now()
		id := r.add(0, 1, 100*time.Millisecond)
		pass(time.Second)
		r.status(id, tocsin.Done)
		if len(w.reads()) != 1 || w.reads()[0].Sub(origin) < 100*time.Millisecond {
			t.Errorf("loaded at %v", w.reads())
		}
		if claims, _ := r.store.counts(store.Stored); claims != 1 {
			t.Errorf("%d claims, want 1", claims)
		}
	})
}

// A row that is held until it is due, or waits for a slot, starts only as it may then.
func TestRowsThatWaitAreGivenBack(t *testing.T) {
	p := oneSlot()
	paused, strict := p, p
	paused.Paused, strict.Strict = true, true
	cases := map[string]struct {
		lose   func(*rig, *atomic.Bool)
		regain func(*rig) // nil: it was delivered even so, by a claim
	}{
		"a paused type": {
			lose:   func(r *rig, _ *atomic.Bool) { r.SetPolicies([]biztype.Policy{paused}) },
			regain: func(r *rig) { r.SetPolicies([]biztype.Policy{p}) },
		},
		"a lost table": {
			lose:   func(r *rig, _ *atomic.Bool) { r.Set([]int{0}, nil) },
			regain: func(r *rig) { r.Set([]int{0}, &duequeue.Access{Owner: "me"}) },
		},
		"a type that became strict": {lose: func(r *rig, _ *atomic.Bool) { r.SetPolicies([]biztype.Policy{strict}) }},
		"a lost lease":              {lose: func(_ *rig, lost *atomic.Bool) { lost.Store(true) }},
	}
	for name, c := range cases {
		for wait, at := range map[string]time.Duration{"held": 97 * time.Millisecond, "waiting for a slot": 300 * time.Millisecond} {
			t.Run(name+", "+wait, func(t *testing.T) {
				var lost atomic.Bool
				lease := func(cfg *Config) { cfg.LeaseOK = func(string) bool { return !lost.Load() } }
				ahead(t, p, lease, func(r *rig, _ *watched, begun *calls) {
					if at > 100*time.Millisecond {
						r.loadAhead(1)
						begun.answers(halfASecond(r.add(1, 1, 50*time.Millisecond)))
					}
					id := r.add(0, 1, 100*time.Millisecond)
					pass(at)
					if n := r.Stats().Loaded; n != 1 {
						t.Fatalf("%d rows wait by now", n)
					}
					c.lose(r, &lost)
					pass(time.Second)
					_, started := begun.first(id)
					if claims, _ := r.store.counts(store.Stored); started != (c.regain == nil) || claims > 0 != started {
						t.Errorf("delivered is %v after %d claims", started, claims)
					}
					if c.regain != nil {
						c.regain(r)
						r.offer(id)
						pass(time.Second)
					}
					r.status(id, tocsin.Done)
					if st := r.Stats(); st.Loaded != 0 || st.Queued != 0 || st.PayloadBytes != 0 {
						t.Errorf("%+v is left", st)
					}
				})
			})
		}
	}
}

// A row that waits, held or for a slot, is no longer due once its server's clock is
// set back.
func TestNothingStartsOnceTheClockWasSetBack(t *testing.T) {
	for name, before := range map[string]time.Duration{"held": 3 * time.Millisecond, "waiting for a slot": -200 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			ahead(t, oneSlot(), nil, func(r *rig, w *watched, begun *calls) {
				r.loadAhead(1)
				busy := r.add(0, 1, 50*time.Millisecond)
				begun.answers(halfASecond(busy))
				id := r.add(1, 1, 100*time.Millisecond)
				pass(100*time.Millisecond - before)
				if n := r.Stats().Loaded; n != 1 {
					t.Fatalf("%d rows wait by now", n)
				}
				w.skew.Store(-60_000)
				pass(5 * time.Second)
				if _, started := begun.first(id); started {
					t.Error("started")
				}
				w.skew.Store(0)
				pass(5 * time.Second)
				r.status(id, tocsin.Done)
			})
		})
	}
}

func TestAStopGivesHeldRowsBack(t *testing.T) {
	ahead(t, policy("order.close", 1), nil, func(r *rig, w *watched, begun *calls) {
		id := r.add(0, 1, 100*time.Millisecond)
		pass(97 * time.Millisecond)
		r.stop()
		pass(time.Second)
		r.status(id, tocsin.Pending)
		if _, started := begun.first(id); started || len(w.reads()) != 1 {
			t.Errorf("started is %v after %d loads, want a row that was held and did not start", started, len(w.reads()))
		}
	})
}

// partial is a memory whose table 0 can't be read. A load of nothing else has not
// read the clock either.
type partial struct{ *watched }

func (p partial) Load(ctx context.Context, server int, ids []tocsin.JobID) (store.Loaded, error) {
	others := slices.DeleteFunc(slices.Clone(ids), func(id tocsin.JobID) bool { return id.Table() == 0 })
	failed := map[int]error{0: errors.New("gone")}
	if len(others) == 0 {
		return store.Loaded{Failed: failed}, nil
	}
	loaded, err := p.watched.Load(ctx, server, others)
	if len(others) < len(ids) {
		loaded.Failed = failed
	}
	return loaded, err
}

func TestATableThatCannotBeReadDelaysNoOther(t *testing.T) {
	broken := func(c *Config) { c.Store = partial{c.Store.(*watched)} }
	ahead(t, policy("order.close", 1), broken, func(r *rig, w *watched, _ *calls) {
		r.add(0, 1, 0)
		for range 20 {
			due := time.Now().Add(250 * time.Millisecond)
			id := r.add(1, 1, 250*time.Millisecond)
			pass(300 * time.Millisecond)
			r.status(id, tocsin.Done)
			reads := w.reads()
			if last := reads[len(reads)-1]; due.Sub(last) != holdLead {
				t.Errorf("loaded %v before it was due, want %v", due.Sub(last), holdLead)
			}
		}
	})
}

// stepping is memory whose server's clock can be set back; loads alone tell of it.
type stepping struct {
	*watched
	back, known *atomic.Int64 // ms
}

func (m stepping) NowMicro(int) int64 { return time.Now().UnixMicro() - 1000*m.known.Load() }

func (m stepping) Load(ctx context.Context, server int, ids []tocsin.JobID) (store.Loaded, error) {
	loaded, err := m.watched.Load(ctx, server, ids)
	loaded.Now -= m.back.Load()
	m.known.Store(m.back.Load())
	return loaded, err
}

// Two rows are due at 100 ms. The second waits for the rate until 160 ms, when its
// server's clock, set back meanwhile, is at 90 ms.
func TestARowThatWaitsIsNotStartedAMomentEarly(t *testing.T) {
	p := policy("order.close", 1)
	p.Rate = 1000. / 60
	var back, known atomic.Int64
	ahead(t, p, func(c *Config) { c.Store = stepping{c.Store.(*watched), &back, &known} }, func(r *rig, _ *watched, begun *calls) {
		origin := time.Now()
		first, second := r.add(0, 1, 100*time.Millisecond), r.add(1, 1, 100*time.Millisecond)
		pass(102 * time.Millisecond)
		back.Store(70)
		r.add(2, 1, 0) // its load reads the clock
		pass(time.Second)
		one, _ := begun.first(first)
		two, _ := begun.first(second)
		if two.Before(one) {
			one, two = two, one
		}
		if one.Sub(origin) != 100*time.Millisecond || two.Sub(origin) < 170*time.Millisecond {
			t.Errorf("started at %v and %v", one.Sub(origin), two.Sub(origin))
		}
	})
}

// laggard is memory that reads the clock some time after the rows.
type laggard struct{ *watched }

func (m laggard) Load(ctx context.Context, server int, ids []tocsin.JobID) (store.Loaded, error) {
	loaded, err := m.watched.Load(ctx, server, ids)
	time.Sleep(20 * time.Millisecond)
	loaded.Now = time.Now().UnixMilli()
	return loaded, err
}

func TestARowThatWasPutOffIsNotHeldByAnOldRead(t *testing.T) {
	slow := func(c *Config) { c.Store = laggard{c.Store.(*watched)} }
	ahead(t, policy("order.close", 1), slow, func(r *rig, w *watched, begun *calls) {
		id := r.add(0, 1, 100*time.Millisecond)
		r.store.change(id, func(row *store.Row) { row.Action, row.Version = row.Action+24, row.Version+1 })
		pass(110 * time.Millisecond) // it was read at 95 ms; the clock will be at 115
		r.store.change(id, func(row *store.Row) { row.Status = tocsin.Cancelled })
		pass(time.Second)
		if _, started := begun.first(id); started {
			t.Errorf("delivered although cancelled 14 ms before it was due; loads at %v", w.reads())
		}
	})
}
