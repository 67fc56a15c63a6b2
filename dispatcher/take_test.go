package dispatcher

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/store"
)

// What Take does with rows: each starts once, when it is due, and where it may.

func TestWholeRowsThatAreRefused(t *testing.T) {
	cases := map[string]struct {
		before  func(r *rig) // between Reserve and Take
		room    int
		started int
	}{
		"beyond the room":                {func(*rig) {}, 2, 2},
		"of a table that is not ours":    {func(r *rig) { r.Set([]int{1}, nil) }, 4, 2},
		"of a type that is paused since": {func(r *rig) { r.SetPolicies(nil) }, 4, 0},
		"of a node that stopped since":   {func(r *rig) { r.stop(); pass(time.Second) }, 4, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			target := newCalls(nil)
			target.inBubble(t, func(r *rig) {
				r.failOn("load", errLost) // what starts was read whole
				var ids, want, got []tocsin.JobID
				for i := range 4 {
					ids = append(ids, r.insert(i%2, 1, -time.Duration(i)*time.Second))
				}
				room := r.room(c.room)
				c.before(r)
				for _, e := range r.hand(room, r.rows(ids...)) {
					got = append(got, e.JobID)
				}
				pass(time.Second)
				for _, id := range ids {
					if target.of(id) == 0 {
						want = append(want, id)
					}
				}
				if !slices.Equal(got, want) || len(want) == 0 {
					t.Errorf("refused %d, want %d", got, want)
				}
				r.SetPolicies([]biztype.Policy{oneSlot()})
				if n, _ := target.seen(); n != c.started {
					t.Errorf("%d started, want %d", n, c.started)
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
		"in delivery":              {5 * time.Second / 4, time.Second},
		"ended since it was read":  {0, time.Second},
		"ended long since, unread": {0, 9 * time.Second},
		"about to be settled":      {time.Millisecond, time.Millisecond},
		"in delivery for a moment": {time.Millisecond, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			target := newCalls(ends(c.took, nil))
			target.inBubble(t, func(r *rig) {
				id := r.insert(0, 1, 0)
				rows := r.rows(id)
				stale := r.room(1)
				r.offer(id)
				pass(c.wait)
				if refused := r.hand(stale, rows); len(refused) != 0 {
					t.Errorf("refused %v", refused)
				}
				pass(5 * time.Second)
				if target.of(id) != 1 {
					t.Errorf("%d deliveries", target.of(id))
				}
				r.status(id, tocsin.Done)
				r.idle()
			})
		})
	}
}

// A row that was forgotten while a read was under way may be due again: it is
// looked at once more, so that nothing waits for the next full peek.
func TestARowThatEndedAndIsDueAgainIsNotLost(t *testing.T) {
	cases := map[string]func(r *rig, c *calls, id tocsin.JobID){
		"retried after long": func(r *rig, c *calls, id tocsin.JobID) {
			c.answers(ends(0, tocsin.RetryIn(15*time.Second, errors.New("busy"))))
			r.offer(id)
			time.Sleep(16 * time.Second)
			c.answers(nil)
		},
		"its table was given away and came back": func(r *rig, c *calls, id tocsin.JobID) {
			r.SetPolicies(nil) // so that it is held
			r.Set([]int{0}, nil)
			r.servers[0].lanes[1].queue.Take(duequeue.Entry{JobID: id, Type: 1})
			r.servers[0].lanes[1].queue.Done(id)
			r.SetPolicies([]biztype.Policy{oneSlot()})
			r.Set([]int{0}, &duequeue.Access{Owner: "me"})
		},
	}
	for name, end := range cases {
		t.Run(name, func(t *testing.T) {
			target := newCalls(nil)
			target.inBubble(t, func(r *rig) {
				id := r.insert(0, 1, 0)
				other := r.room(1) // a read that takes its time
				end(r, target, id)
				r.hand(r.room(1), r.rows(id))
				pass(time.Second)
				r.status(id, tocsin.Done)
				r.hand(other, nil)
				pass(time.Second)
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
			r.Set([]int{0}, nil)
			r.store.change(id, func(row *store.Row) { row.Status = tocsin.Done })
			time.Sleep(time.Millisecond)
			r.Set([]int{0}, &duequeue.Access{Owner: "me"})
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
			target := newCalls(nil)
			p := oneSlot()
			p.Strict = c.strict
			adapt := func(cfg *Config) { cfg.LeaseOK = func(string) bool { return true } }
			inBubbleWith(t, p, handler(target.deliver), adapt, func(r *rig) {
				r.store.owner = store.Fence{Group: r.cfg.Group, Node: "me"}
				id := r.insert(0, 1, -time.Hour)
				asked := time.Now()
				room, rows := r.room(1), r.rows(id)
				c.change(r, id)
				r.Take(r.t.Context(), 0, 1, room, rows, asked)
				pass(3 * time.Second)
				if target.of(id) != c.want {
					t.Errorf("%d deliveries, want %d", target.of(id), c.want)
				}
				r.idle()
			})
		})
	}
}
