package sink

import (
	"context"
	"slices"
	"sync"
)

// Room bounds what the sinks of a maker have under way at once, messages for instance. A sink takes more only while it leaves at least as
// much to the others. So if the broker answers one of them no more, it holds half in the end, a second one a quarter, and others go on.
// Those who wait for room get it in turn. Safe for concurrent use.
type Room struct {
	mu      sync.Mutex
	left    int
	waiting []*waiter // in the order of their calls
}

// Share is what one sink holds of a Room. Safe for concurrent use.
type Share struct {
	room *Room
	held int // guarded by room.mu
}

// waiter is a Take that waits.
type waiter struct {
	share *Share
	most  int
	got   chan int // has room for what it gets
}

// NewRoom returns room for n.
func NewRoom(n int) *Room { return &Room{left: n} }

// Share returns the share of one sink.
func (r *Room) Share() *Share { return &Share{room: r} }

// Take waits until the share may have more, and returns how much of most it has got. 0: ctx has ended.
func (s *Share) Take(ctx context.Context, most int) int {
	s.room.mu.Lock()
	n := s.more(most)
	w := &waiter{s, most, make(chan int, 1)}
	if n == 0 {
		s.room.waiting = append(s.room.waiting, w)
	}
	s.room.mu.Unlock()
	if n > 0 {
		return n
	}
	select {
	case n = <-w.got:
		return n
	case <-ctx.Done():
	}
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	if i := slices.Index(s.room.waiting, w); i >= 0 {
		s.room.waiting = slices.Delete(s.room.waiting, i, i+1)
		return 0
	}
	return <-w.got
}

// Give gives back n of what was taken.
func (s *Share) Give(n int) {
	r := s.room
	r.mu.Lock()
	defer r.mu.Unlock()
	s.held, r.left = s.held-n, r.left+n
	r.waiting = slices.DeleteFunc(r.waiting, func(w *waiter) bool {
		n := w.share.more(w.most)
		if n > 0 {
			w.got <- n
		}
		return n > 0
	})
}

// more takes what the share may have, at most some. Called under room.mu.
func (s *Share) more(most int) int {
	n := max(min(most, (s.room.left-s.held+1)/2), 0)
	s.held, s.room.left = s.held+n, s.room.left-n
	return n
}
