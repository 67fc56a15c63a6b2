package node

import (
	"context"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin/store"
)

// failovers handles moves of servers to other addresses. A replica that was promoted may lack
// the last writes of the primary: owner rows may name former owners again. So between a move and
// a new fence nothing is started on ownership:
//
//	move: the store's clock stops --> tables parked --> clock goes on --> owner rows written --> tables taken up
//
// Overdue rows of these tables are claimed first, as after a crash of an owner.
type failovers struct {
	store  *store.Store
	holder *holder
}

// run handles moves until ctx ends.
func (f failovers) run(ctx context.Context) {
	var servers sync.WaitGroup
	for server := range f.store.Servers() {
		if f.store.Moved(server) != nil {
			servers.Go(func() { f.follow(ctx, server) })
		}
	}
	servers.Wait()
}

func (f failovers) follow(ctx context.Context, server int) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.store.Moved(server):
		}
		term := f.store.Term(server)
		f.holder.fenceAnew(server)
		f.store.Resume(server, term)
		f.readClock(ctx, server)
	}
}

// readClock makes rows due again soon. If it fails, the next load or survey reads the clock.
func (f failovers) readClock(ctx context.Context, server int) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, _ = f.store.Measure(ctx, server)
}
