package node

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

const (
	reachEvery   = 2 * time.Second // between two looks at a server
	reachTimeout = 4 * time.Second // of one
	reachTries   = 2               // looks in a row that must fail: a restart of a connection is no loss of sight
)

// sites is what reach asks of the store.
type sites interface {
	Servers() []string
	DatabasesOf(server int) []int
	Retired(ctx context.Context, server int) ([]int, error)
}

// reach follows which databases this node can use: those whose server answers, and
// that have not moved to another one. It tells the assignment of the others, so
// that nodes which can use them take their tables.
type reach struct {
	sites  sites
	report func(databases []int) // called with what is out of reach, ascending, when it changes
	log    zerolog.Logger

	mu   sync.Mutex
	away map[int][]int // by server: databases out of reach
}

func newReach(s sites, log zerolog.Logger, report func([]int)) *reach {
	return &reach{sites: s, report: report, log: log, away: make(map[int][]int)}
}

// run looks until ctx ends, at all servers at once.
func (r *reach) run(ctx context.Context) {
	var wg sync.WaitGroup
	for server := range r.sites.Servers() {
		wg.Go(func() { r.follow(ctx, server) })
	}
	wg.Wait()
}

// follow looks at one server.
func (r *reach) follow(ctx context.Context, server int) {
	tick := time.NewTicker(reachEvery)
	defer tick.Stop()
	for failed := 0; ; {
		away, down := r.look(ctx, server)
		switch {
		case ctx.Err() != nil:
			return
		case !down:
			failed = 0
			r.note(server, away)
		default:
			if failed++; failed == reachTries {
				r.note(server, r.sites.DatabasesOf(server))
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look gives the databases that have moved away from a server, or that it is
// down. A database that is sick in another way is not out of reach: it would be
// so for everybody.
func (r *reach) look(ctx context.Context, server int) (moved []int, down bool) {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	moved, err := r.sites.Retired(ctx, server)
	class := mysql.ClassOf(err)
	return moved, class == mysql.Lost || class == mysql.Canceled
}

// note keeps what is out of reach on a server, and reports all if it is new.
func (r *reach) note(server int, databases []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Equal(r.away[server], databases) {
		return
	}
	r.away[server] = slices.Clone(databases)
	var all []int
	for _, some := range r.away {
		all = append(all, some...)
	}
	slices.Sort(all)
	r.log.Warn().Ints("databases", all).Msg("databases out of reach: their tables go to nodes that reach them")
	r.report(all)
}
