package chaos

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// tick is the pace of all loads.
const tick = 50 * time.Millisecond

// beside does something while work goes on, which ends with it.
func beside(ctx context.Context, work func(context.Context), do func(context.Context) error) error {
	working, end := context.WithCancel(ctx)
	var worked sync.WaitGroup
	worked.Go(func() { work(working) })
	defer worked.Wait()
	defer end()
	return do(ctx)
}

// atRate calls do each tick until ctx ends, with how many are due by then.
func atRate(ctx context.Context, rate float64, do func(n int)) {
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	for due := 0.0; ctx.Err() == nil; {
		select {
		case <-ctx.Done():
		case <-ticks.C:
			due += rate * tick.Seconds()
			do(int(due))
			due -= float64(int(due))
		}
	}
}

// lanes are what a load does side by side, by server.
type lanes []*errgroup.Group

// newLanes makes n lanes. Each does at most limit things at once.
func newLanes(n, limit int) (all lanes) {
	for range n {
		lane := new(errgroup.Group)
		lane.SetLimit(limit)
		all = append(all, lane)
	}
	return all
}

func (l lanes) wait() {
	for _, lane := range l {
		_ = lane.Wait()
	}
}

// lockedSource is a source of random values for several goroutines.
type lockedSource struct {
	mu  sync.Mutex
	pcg *rand.PCG
}

// Uint64 returns the next value.
func (s *lockedSource) Uint64() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pcg.Uint64()
}

// draws returns the random values of one load. Any goroutine may use them.
func draws(seed, load uint64) *rand.Rand {
	return rand.New(&lockedSource{pcg: rand.NewPCG(seed, load)})
}
