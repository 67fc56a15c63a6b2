package dispatcher

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/duequeue"
	"github.com/tocsinhq/tocsin/store"
)

// calls is a target that remembers how often each task came.
type calls struct {
	took time.Duration

	mu   sync.Mutex
	byID map[tocsin.JobID]int
	err  error
}

func newCalls() *calls { return &calls{byID: make(map[tocsin.JobID]int)} }

// of tells how often the task came.
func (c *calls) of(id tocsin.JobID) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byID[id]
}

// tasks tells how many came.
func (c *calls) tasks() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byID)
}

// answer sets what the target says from now on.
func (c *calls) answer(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

func (c *calls) note(id tocsin.JobID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byID[id]++
	return c.err
}

// policies gives a type with one slot whose target are the calls.
func (c *calls) policies() ([]biztype.Policy, map[string]Sink) {
	p := policy("order.close", 1)
	p.Concurrency = 1
	return one(p, func(_ context.Context, task tocsin.Info) error {
		err := c.note(task.JobID)
		time.Sleep(c.took)
		return err
	})
}

// noLoad lets every Load fail: what starts was read whole.
func (r *rig) noLoad() {
	r.store.fail(func(statement string, _ []tocsin.JobID) error {
		if statement == "load" {
			return errLost
		}
		return nil
	})
}

// reserve is Reserve of type 1, once everything else has come to rest.
func (r *rig) reserve(most int) duequeue.Room {
	synctest.Wait()
	return r.Reserve(r.t.Context(), 0, 1, most)
}

// rows gives the pending rows with the ids as they are now.
func (r *rig) rows(ids ...tocsin.JobID) []store.Row {
	rows := make([]store.Row, len(ids))
	for i, id := range ids {
		rows[i] = r.store.row(id)
	}
	return rows
}

// hand takes the rows into the room, as read just now.
func (r *rig) hand(room duequeue.Room, rows []store.Row) (refused int64) {
	return r.Take(r.t.Context(), 0, 1, room, rows, time.Now())
}

// room reserves until there is room for so many rows.
func (r *rig) room(n int) duequeue.Room {
	r.t.Helper()
	for range 20 {
		room := r.reserve(n)
		if room.Rows == n {
			return room
		}
		if room.Rows > 0 {
			r.hand(room, nil)
		}
	}
	r.t.Fatalf("no room for %d rows", n)
	return duequeue.Room{}
}

// idle fails the test if something is left under way.
func (r *rig) idle() {
	r.t.Helper()
	if st := r.Stats(); st.Queued+st.Loaded+st.Open+st.Unsettled != 0 {
		r.t.Errorf("left: %+v", st)
	}
	if oldest := r.Oldest(0); oldest != math.MaxInt64 {
		r.t.Errorf("a task due at %d is still known", oldest)
	}
	s := r.servers[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.order {
		if l.held != 0 {
			r.t.Errorf("%d rows are held", l.held)
		}
	}
}

func TestWholeRowsStartWithoutALoad(t *testing.T) {
	c := newCalls()
	policies, sinks := c.policies()
	inBubble(t, 1, policies, sinks, func(r *rig) {
		r.noLoad()
		ids := make([]tocsin.JobID, 20)
		for i := range ids {
			ids[i] = r.insert(i%rigTables, 1, 0)
		}
		if refused := r.hand(r.room(len(ids)), r.rows(ids...)); refused != 0 {
			t.Errorf("refused what is due at %d", refused)
		}
		time.Sleep(time.Second)
		for _, id := range ids {
			r.status(id, tocsin.Done)
		}
		r.idle()
	})
}

func TestRoomGrowsWhileTheLaneIsQuick(t *testing.T) {
	c := newCalls()
	policies, sinks := c.policies()
	inBubble(t, 1, policies, sinks, func(r *rig) {
		r.noLoad()
		first := 0
		for range 12 {
			room := r.reserve(1000)
			if first == 0 {
				first = room.Rows
			}
			ids := make([]tocsin.JobID, room.Rows)
			for i := range ids {
				ids[i] = r.insert(0, 1, 0)
			}
			r.hand(room, r.rows(ids...))
			time.Sleep(10 * time.Millisecond)
		}
		room := r.reserve(1000)
		if first == 0 || first > 10 || room.Rows != 1000 {
			t.Errorf("room for %d rows at first and %d in the end", first, room.Rows)
		}
		r.hand(room, nil)
		time.Sleep(time.Second)
		r.idle()
	})
}

func TestNoRoom(t *testing.T) {
	cases := map[string]func(*rig){
		"of a type that is not there": func(r *rig) { r.servers[0].lanes = map[uint64]*lane{} },
		"of a paused type":            func(r *rig) { r.SetPolicies(nil) },
		"of a node that stops":        func(r *rig) { r.stop(); synctest.Wait() },
	}
	for name, prepare := range cases {
		t.Run(name, func(t *testing.T) {
			policies, sinks := newCalls().policies()
			inBubble(t, 1, policies, sinks, func(r *rig) {
				prepare(r)
				began := time.Now()
				if room := r.reserve(10); room.Rows != 0 || room.Later || time.Since(began) != 0 {
					t.Errorf("%+v after %s, want none at once", room, time.Since(began))
				}
			})
		})
	}
}

func TestASlowLaneHasNoRoom(t *testing.T) {
	c := newCalls()
	c.took = time.Second
	policies, sinks := c.policies()
	inBubble(t, 1, policies, sinks, func(r *rig) {
		for range 40 {
			if room := r.reserve(100); room.Rows > 0 {
				ids := make([]tocsin.JobID, room.Rows)
				for i := range ids {
					ids[i] = r.insert(0, 1, 0)
				}
				r.hand(room, r.rows(ids...))
			}
			time.Sleep(300 * time.Millisecond)
		}
		if st := r.Stats(); st.Loaded > 2 {
			t.Errorf("%d rows wait for one slot that takes one a second", st.Loaded)
		}
		room := r.reserve(100)
		if room.Rows > 1 {
			t.Errorf("room for %d more", room.Rows)
		}
		if room.Rows > 0 {
			r.hand(room, nil)
		}
		time.Sleep(time.Minute)
		r.idle()
	})
}

func TestRoomComesLaterWhileOutcomesWait(t *testing.T) {
	policies, sinks := newCalls().policies()
	inBubble(t, 1, policies, sinks, func(r *rig) {
		s := r.servers[0]
		s.mu.Lock()
		s.unsettled += settleBound
		s.mu.Unlock()
		began := time.Now()
		if room := r.reserve(10); room.Rows != 0 || !room.Later || time.Since(began) != streamPatience {
			t.Errorf("%+v after %s, want none, but later", room, time.Since(began))
		}
		time.AfterFunc(streamPatience/2, func() {
			s.mu.Lock()
			s.unsettled -= settleBound
			s.mu.Unlock()
			s.wakeAll()
		})
		began = time.Now()
		room := r.reserve(10)
		if room.Rows == 0 || time.Since(began) != streamPatience/2 {
			t.Errorf("%+v after %s, want some as soon as outcomes are stored", room, time.Since(began))
		}
		r.hand(room, nil)
		r.idle()
	})
}

func TestTheEndOfTheReaderEndsReserve(t *testing.T) {
	policies, sinks := newCalls().policies()
	inBubble(t, 1, policies, sinks, func(r *rig) {
		ctx, cancel := context.WithCancel(r.t.Context())
		cancel()
		s := r.servers[0]
		s.mu.Lock()
		s.unsettled += settleBound
		s.mu.Unlock()
		began := time.Now()
		if room := r.Reserve(ctx, 0, 1, 10); room.Rows != 0 || time.Since(began) != 0 {
			t.Errorf("%+v after %s", room, time.Since(began))
		}
		s.mu.Lock()
		s.unsettled -= settleBound
		s.mu.Unlock()
	})
}

func TestWholeRowsThatAreRefused(t *testing.T) {
	cases := map[string]struct {
		before  func(r *rig) // between Reserve and Take
		room    int
		started int
	}{
		"beyond the room":                {func(*rig) {}, 2, 2},
		"of a table that is not ours":    {func(r *rig) { r.Drop([]int{1}) }, 4, 2},
		"of a type that is paused since": {func(r *rig) { r.SetPolicies(nil) }, 4, 0},
		"of a node that stopped since":   {func(r *rig) { r.stop(); time.Sleep(time.Second) }, 4, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			target := newCalls()
			policies, sinks := target.policies()
			inBubble(t, 1, policies, sinks, func(r *rig) {
				r.noLoad()
				oldest := int64(0)
				var ids []tocsin.JobID
				for i := range 4 {
					ids = append(ids, r.insert(i%2, 1, -time.Duration(i)*time.Second))
				}
				room := r.room(c.room)
				c.before(r)
				refused := r.hand(room, r.rows(ids...))
				time.Sleep(time.Second)
				for _, id := range ids {
					if due := r.store.row(id).Action; target.of(id) == 0 && (oldest == 0 || due < oldest) {
						oldest = due
					}
				}
				if refused != oldest || oldest == 0 {
					t.Errorf("refused %d, want %d", refused, oldest)
				}
				r.SetPolicies(policies)
				if c.started != target.tasks() {
					t.Errorf("%d started, want %d", target.tasks(), c.started)
				}
				r.idle()
			})
		})
	}
}

// What was read before an outcome was stored is no reason to deliver again.
func TestARowIsNotStartedTwice(t *testing.T) {
	cases := map[string]struct {
		took time.Duration
		wait time.Duration // from the first start to the second Take
	}{
		"in delivery":               {5 * time.Second / 4, time.Second},
		"ended since it was read":   {0, time.Second},
		"ended long since, unread":  {0, 9 * time.Second},
		"about to be settled":       {time.Millisecond, time.Millisecond},
		"in delivery for a moment,": {time.Millisecond, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			target := newCalls()
			target.took = c.took
			policies, sinks := target.policies()
			inBubble(t, 1, policies, sinks, func(r *rig) {
				id := r.insert(0, 1, 0)
				rows := r.rows(id)
				stale := r.room(1)
				r.offer(id)
				time.Sleep(c.wait)
				if refused := r.hand(stale, rows); refused != 0 {
					t.Errorf("refused %d", refused)
				}
				time.Sleep(5 * time.Second)
				if target.of(id) != 1 {
					t.Errorf("%d deliveries", target.of(id))
				}
				r.status(id, tocsin.Done)
				r.idle()
			})
		})
	}
}

func TestAQueuedRowStartsOnce(t *testing.T) {
	target := newCalls()
	policies, sinks := target.policies()
	inBubble(t, 1, policies, sinks, func(r *rig) {
		r.noLoad()
		r.store.skew.Store(-60_000) // so that the queue leaves it alone
		id := r.insert(0, 1, 0)
		r.offer(id)
		room, rows := r.room(1), r.rows(id)
		r.hand(room, rows)
		r.hand(r.room(1), rows)
		time.Sleep(5 * time.Second)
		if target.of(id) != 1 {
			t.Errorf("%d deliveries", target.of(id))
		}
		r.idle()
	})
}

// A row that failed waits for its next attempt, whatever an older read says.
func TestARetriedRowIsNotStartedEarly(t *testing.T) {
	target := newCalls()
	target.answer(errors.New("busy"))
	policies, sinks := target.policies() // retries after 3 s
	inBubble(t, 1, policies, sinks, func(r *rig) {
		id := r.insert(0, 1, 0)
		stale, rows := r.room(1), r.rows(id)
		r.offer(id)
		time.Sleep(time.Second)
		r.hand(stale, rows)
		time.Sleep(time.Second)
		if row := r.store.row(id); target.of(id) != 1 || row.Attempts != 1 {
			t.Errorf("%d deliveries, %d attempts", target.of(id), row.Attempts)
		}
		target.answer(nil)
		time.Sleep(2 * time.Second)
		if target.of(id) != 2 {
			t.Errorf("%d deliveries, want the second after 3 s", target.of(id))
		}
		r.status(id, tocsin.Done)
		r.idle()
	})
}

// A row that was forgotten while a read was under way may be due again: it is
// looked at once more, so that nothing waits for the next full peek.
func TestARowThatEndedAndIsDueAgainIsNotLost(t *testing.T) {
	cases := map[string]func(r *rig, c *calls, id tocsin.JobID){
		"retried after long": func(r *rig, c *calls, id tocsin.JobID) {
			c.answer(tocsin.RetryIn(15*time.Second, errors.New("busy")))
			r.offer(id)
			time.Sleep(16 * time.Second)
			c.answer(nil)
		},
		"its table was given away and came back": func(r *rig, c *calls, id tocsin.JobID) {
			r.SetPolicies(nil) // so that it is held
			r.Drop([]int{0})
			r.servers[0].lanes[1].queue.Take(duequeue.Entry{JobID: id, Type: 1})
			r.servers[0].lanes[1].queue.Done(id)
			policies, _ := c.policies()
			r.SetPolicies(policies)
			r.Admit([]int{0}, "me", false)
		},
	}
	for name, end := range cases {
		t.Run(name, func(t *testing.T) {
			target := newCalls()
			policies, sinks := target.policies()
			inBubble(t, 1, policies, sinks, func(r *rig) {
				id := r.insert(0, 1, 0)
				other := r.room(1) // a read that takes its time
				end(r, target, id)
				r.hand(r.room(1), r.rows(id))
				time.Sleep(time.Second)
				r.status(id, tocsin.Done)
				r.hand(other, nil)
				time.Sleep(time.Second)
				r.idle()
			})
		})
	}
}

func TestWholeRowsAreClaimedWhereTheyMustBe(t *testing.T) {
	strict := policy("order.close", 1)
	strict.Strict = true
	cases := map[string]struct {
		policy  biztype.Policy
		overdue time.Duration
		lease   bool
		claims  int
	}{
		"a plain row":                 {policy("order.close", 1), 0, true, 0},
		"of a strict type":            {strict, 0, true, 1},
		"that a sweeper may look at":  {policy("order.close", 1), time.Hour, true, 1},
		"whose lease is not provable": {policy("order.close", 1), 0, false, 1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			target := newCalls()
			_, sinks := target.policies()
			adapt := func(cfg *Config) { cfg.LeaseOK = func(string) bool { return c.lease } }
			inBubbleWith(t, sinks, adapt, func(r *rig) {
				r.store.owner = store.Fence{Group: r.cfg.Group, Node: "me"}
				r.SetPolicies([]biztype.Policy{c.policy})
				r.noLoad()
				id := r.insert(0, 1, -c.overdue)
				r.hand(r.room(1), r.rows(id))
				time.Sleep(time.Second)
				r.status(id, tocsin.Done)
				if claims, _ := r.store.counts(store.Stored); claims != c.claims {
					t.Errorf("%d claims, want %d", claims, c.claims)
				}
				r.idle()
			})
		})
	}
}

// Between the read and its end the row changes hands, or is changed: it is
// delivered here only if it is still ours and as it was read.
func TestWholeRowsThatChangeBeforeTheyStart(t *testing.T) {
	cases := map[string]struct {
		change func(r *rig, id tocsin.JobID)
		strict bool
		want   int
	}{
		"a sweeper claims an overdue row": {func(r *rig, id tocsin.JobID) {
			r.store.change(id, func(row *store.Row) { row.Status = tocsin.Claimed })
		}, false, 0},
		"another owner has completed it, and the table is back": {func(r *rig, id tocsin.JobID) {
			r.Drop([]int{0})
			r.store.change(id, func(row *store.Row) { row.Status = tocsin.Done })
			time.Sleep(time.Millisecond)
			r.Admit([]int{0}, "me", false)
		}, false, 0},
		"the lease is lost and another has taken the table": {func(r *rig, _ tocsin.JobID) {
			r.cfg.LeaseOK = func(string) bool { return false }
			r.store.owner.Node = "another"
		}, false, 0},
		"a strict one is put off": {func(r *rig, id tocsin.JobID) {
			r.store.change(id, func(row *store.Row) { row.Action += time.Hour.Milliseconds(); row.Version++ })
		}, true, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			target := newCalls()
			policies, sinks := target.policies()
			policies[0].Strict = c.strict
			inBubbleWith(t, sinks, func(cfg *Config) { cfg.LeaseOK = func(string) bool { return true } }, func(r *rig) {
				r.store.owner = store.Fence{Group: r.cfg.Group, Node: "me"}
				r.SetPolicies(policies)
				id := r.insert(0, 1, -time.Hour)
				asked := time.Now()
				room, rows := r.room(1), r.rows(id)
				c.change(r, id)
				r.Take(r.t.Context(), 0, 1, room, rows, asked)
				time.Sleep(3 * time.Second)
				if target.of(id) != c.want {
					t.Errorf("%d deliveries, want %d", target.of(id), c.want)
				}
				r.idle()
			})
		})
	}
}

func TestRowsTakenWhileTheirTableIsDrained(t *testing.T) {
	target := newCalls()
	target.took = time.Second
	policies, sinks := target.policies()
	inBubble(t, 1, policies, sinks, func(r *rig) {
		var ids []tocsin.JobID
		for range 2 {
			ids = append(ids, r.insert(0, 1, 0))
		}
		r.hand(r.room(2), r.rows(ids...)) // one starts, one waits for the slot
		time.Sleep(time.Millisecond)
		r.Drop([]int{0})
		if err := r.Drain(r.t.Context(), []int{0}); err != nil {
			t.Error(err)
		}
		time.Sleep(3 * time.Second)
		if n := target.tasks(); n != 1 {
			t.Errorf("%d tasks started, want only the first", n)
		}
		r.idle()
	})
}
