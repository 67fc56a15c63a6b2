package dispatcher

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/store"
)

// oneSlot is a policy with one slot.
func oneSlot() biztype.Policy {
	p := policy("order.close", 1)
	p.Concurrency = 1
	return p
}

// reserve is Reserve of type 1, once everything else has come to rest.
func (r *rig) reserve(most int) duequeue.Room {
	synctest.Wait()
	return r.Reserve(0, 1, most)
}

// inserts stores n rows that are due now, in all tables.
func (r *rig) inserts(n int) []tocsin.JobID {
	ids := make([]tocsin.JobID, n)
	for i := range ids {
		ids[i] = r.insert(i%rigTables, 1, 0)
	}
	return ids
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
func (r *rig) hand(room duequeue.Room, rows []store.Row) (refused []duequeue.Entry) {
	return r.Take(r.t.Context(), 0, 1, room, rows, time.Now())
}

// loadAhead has type 1 load n rows beyond its free slots, as a lane does that was quick for a while.
func (r *rig) loadAhead(n int) {
	r.servers[0].mu.Lock()
	defer r.servers[0].mu.Unlock()
	r.servers[0].lanes[1].ahead = n
}

// room reserves room for n rows in a lane that loads as many ahead.
func (r *rig) room(n int) duequeue.Room {
	r.t.Helper()
	r.loadAhead(n)
	room := r.reserve(n)
	if room.Rows != n {
		r.t.Fatalf("room for %d rows, want %d", room.Rows, n)
	}
	return room
}

// idle fails the test if something is left under way.
func (r *rig) idle() {
	r.t.Helper()
	if st := r.Stats(); st.Queued+st.Loaded+st.Open+st.Unsettled != 0 || st.PayloadBytes != 0 {
		r.t.Errorf("left: %+v", st)
	}
	s := r.servers[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.order {
		if known := l.queue.Known(); known != 0 {
			r.t.Errorf("%d tasks are still known", known)
		}
		if l.held != 0 {
			r.t.Errorf("%d rows are held", l.held)
		}
	}
}

// Their payloads count like those of loaded rows, from the moment that there is room for them.
func TestWholeRowsStartWithoutALoad(t *testing.T) {
	newCalls(nil).inBubble(t, func(r *rig) {
		r.failOn("load", errLost)
		ids := r.inserts(20)
		room := r.room(len(ids))
		if n := r.Stats().PayloadBytes; n < int64(room.Rows) {
			t.Errorf("%d bytes for %d rows", n, room.Rows)
		}
		if refused := r.hand(room, r.rows(ids...)); len(refused) != 0 {
			t.Errorf("refused %v", refused)
		}
		pass(time.Second)
		for _, id := range ids {
			r.status(id, tocsin.Done)
		}
		r.idle()
	})
}

// Also while another reads, with room of its own.
func TestRoomGrowsWhileTheLaneIsQuick(t *testing.T) {
	for name, others := range map[string]int{"alone": 0, "beside another": 1} {
		t.Run(name, func(t *testing.T) {
			newCalls(nil).inBubble(t, func(r *rig) {
				r.failOn("load", errLost)
				r.hand(r.room(4), nil)
				other, first := r.reserve(others), r.reserve(1000)
				r.hand(first, r.rows(r.inserts(first.Rows)...))
				for range 12 {
					pass(10 * time.Millisecond)
					room := r.reserve(1000)
					r.hand(room, r.rows(r.inserts(room.Rows)...))
				}
				pass(time.Second)
				room := r.reserve(1000)
				if first.Rows == 0 || first.Rows > 10 || room.Rows != 1000 {
					t.Errorf("room for %d rows at first and %d in the end", first.Rows, room.Rows)
				}
				r.hand(room, nil)
				r.hand(other, nil)
				r.idle()
			})
		})
	}
}

func TestRoomThatIsNotUsedDoesNotGrow(t *testing.T) {
	newCalls(nil).inBubble(t, func(r *rig) {
		first := r.reserve(1000)
		r.hand(first, nil)
		for range 12 {
			room := r.reserve(1000)
			if room.Rows != first.Rows {
				t.Fatalf("room for %d rows at first, for %d after nothing was found", first.Rows, room.Rows)
			}
			r.hand(room, nil)
		}
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
			newCalls(nil).inBubble(t, func(r *rig) {
				prepare(r)
				if room := r.reserve(10); room.Rows != 0 || room.Wait != 0 {
					t.Errorf("%+v, want none", room)
				}
			})
		})
	}
}

func TestASlowLaneHasNoRoom(t *testing.T) {
	newCalls(ends(time.Second, nil)).inBubble(t, func(r *rig) {
		for range 40 {
			if room := r.reserve(100); room.Rows > 0 {
				r.hand(room, r.rows(r.inserts(room.Rows)...))
			}
			pass(300 * time.Millisecond)
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
		pass(time.Minute)
		r.idle()
	})
}

// Who found no room is told when there is some.
func TestRoomComesAgain(t *testing.T) {
	for name, c := range map[string]struct{ before, after func(*rig, *calls) }{
		"outcomes wait": {
			func(r *rig, _ *calls) { r.servers[0].settler.unsettled.Add(settleBound) },
			func(r *rig, _ *calls) {
				r.servers[0].settler.unsettled.Add(-settleBound)
				signal(r.servers[0].wake)
			},
		},
		"the type is paused": {
			func(r *rig, _ *calls) { r.SetPolicies(nil) },
			func(r *rig, _ *calls) { r.SetPolicies([]biztype.Policy{oneSlot()}) },
		},
		"all slots are taken": {
			func(r *rig, c *calls) {
				c.answers(ends(time.Second, nil))
				for room := r.reserve(1); room.Rows > 0; room = r.reserve(1) {
					r.hand(room, r.rows(r.inserts(1)...))
				}
			},
			func(*rig, *calls) { pass(10 * time.Second) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			calls := newCalls(nil)
			var woken atomic.Int32
			adapt := func(c *Config) { c.Woken = func(int) { woken.Add(1) } }
			inBubbleWith(t, oneSlot(), handler(calls.deliver), adapt, func(r *rig) {
				pass(time.Millisecond)
				c.before(r, calls)
				if room := r.reserve(10); room.Rows != 0 {
					t.Fatalf("%+v, want none", room)
				}
				woken.Store(0)
				c.after(r, calls)
				room := r.reserve(10)
				if room.Rows == 0 || woken.Load() == 0 {
					t.Errorf("%+v, woken %d times", room, woken.Load())
				}
				r.hand(room, nil)
				pass(time.Second)
				r.idle()
			})
		})
	}
}
