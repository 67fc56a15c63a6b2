package assign

import (
	"context"
	"maps"
	"sync"
	"time"
)

// quickly is how long a drop may last before what is in delivery is waited for apart from what is idle.
const quickly = 50 * time.Millisecond

// hand is one of those that ask the holder about tables of a server: to drop them, else to take them.
type hand struct {
	server int
	drops  bool
}

// atOnce is how many requests one hand has under way at most. What is to be taken meanwhile comes in one request; a drop
// that waits for what is in delivery holds up none of what is idle.
func (h hand) atOnce() int {
	if h.drops {
		return 4
	}
	return 1
}

// hands ask the holder beside the rounds, for each server on its own: one that stalls holds up the tables of no other.
// They keep no queue: what they have no room for, a later round brings again. Their methods belong to the goroutine that
// runs the session, which also fetches what the holder has answered.
type hands struct {
	holder Holder
	ctx    context.Context // ends all requests
	busy   map[hand]int    // requests under way
	moving map[int]bool    // tables of these
	quick  int             // tables being dropped of which it is not known yet whether they have something in delivery
	closed bool
	work   sync.WaitGroup
	news   chan struct{} // 1 slot: there are answers

	mu      sync.Mutex
	answers []answered
}

// answered is what the holder said about tables of a request.
type answered struct {
	hand
	tables map[int]int64 // as asked
	err    error
	quick  int  // so many are not in question any more: see hands.quick
	last   bool // the request has ended
}

func newHands(ctx context.Context, h Holder) *hands {
	return &hands{holder: h, ctx: ctx, busy: make(map[hand]int), moving: make(map[int]bool), news: make(chan struct{}, 1)}
}

// free reports whether a hand can do one thing more.
func (h *hands) free(one hand) bool { return !h.closed && h.busy[one] < one.atOnce() }

// take makes the holder take tables of a server (table -> revision that created the key) within a time. revisions are
// those of their owner rows.
func (h *hands) take(server int, tables, revisions map[int]int64, within time.Duration) {
	h.begin(hand{server: server}, tables, func() {
		ctx, cancel := context.WithTimeout(h.ctx, within)
		defer cancel()
		h.say(answered{hand: hand{server: server}, tables: tables, err: h.holder.Take(ctx, revisions), last: true})
	})
}

// drop has the holder drop tables of a server: first what is idle, then, waiting for it, what is in delivery.
func (h *hands) drop(server int, tables map[int]int64) {
	one := hand{server: server, drops: true}
	h.quick += len(tables)
	h.begin(one, tables, func() {
		err := dropWithin(h.ctx, h.holder, tables, quickly)
		busy := refusedBy(err, tables)
		if len(busy) == 0 {
			h.say(answered{hand: one, tables: tables, quick: len(tables), last: true})
			return
		}
		idle := maps.Clone(tables)
		maps.DeleteFunc(idle, func(table int, _ int64) bool { _, is := busy[table]; return is })
		h.say(answered{hand: one, tables: idle, quick: len(tables)})
		h.say(answered{hand: one, tables: busy, err: dropWithin(h.ctx, h.holder, busy, dropTimeout), last: true})
	})
}

func dropWithin(ctx context.Context, h Holder, tables map[int]int64, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return h.Drop(ctx, sortedKeys(tables))
}

func (h *hands) begin(one hand, tables map[int]int64, do func()) {
	h.busy[one]++
	for table := range tables {
		h.moving[table] = true
	}
	h.work.Go(do)
}

// say notes an answer; it is called beside the rounds.
func (h *hands) say(a answered) {
	h.mu.Lock()
	h.answers = append(h.answers, a)
	h.mu.Unlock()
	select {
	case h.news <- struct{}{}:
	default:
	}
}

// heard gives what was answered since the last call.
func (h *hands) heard() []answered {
	h.mu.Lock()
	all := h.answers
	h.answers = nil
	h.mu.Unlock()
	for _, a := range all {
		for table := range a.tables {
			delete(h.moving, table)
		}
		h.quick -= a.quick
		if a.last {
			h.busy[a.hand]--
		}
	}
	return all
}

// close waits until the holder has answered everything, and asks nothing any more.
func (h *hands) close() {
	h.closed = true
	h.work.Wait()
}
