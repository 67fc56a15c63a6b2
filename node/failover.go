package node

import (
	"context"
	"sync"
	"time"
)

// runFailovers handles moves of servers to other addresses, until ctx ends. A replica that was promoted may lack
// the last writes of the primary: owner rows may name former owners again. So between a move and
// a new fence nothing is started on ownership:
//
//	move: the store's clock stops --> tables parked --> clock goes on --> owner rows written --> tables taken up
//
// Overdue rows of these tables are claimed first, as after a crash of an owner.
func (h *holder) runFailovers(ctx context.Context) {
	var servers sync.WaitGroup
	for server := range h.store.Servers() {
		if h.store.Moved(server) != nil {
			servers.Go(func() { h.followMoves(ctx, server) })
		}
	}
	servers.Wait()
}

func (h *holder) followMoves(ctx context.Context, server int) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.store.Moved(server):
		}
		term := h.store.Term(server)
		h.fenceAnew(server)
		h.store.Resume(server, term)
		timed, cancel := context.WithTimeout(ctx, time.Second)
		_, _ = h.store.Measure(timed, server) // makes rows due again soon; else the next load or survey reads the clock
		cancel()
	}
}
