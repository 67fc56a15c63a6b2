package node

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin/health"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/wait"
	"github.com/tocsinhq/tocsin/store"
)

const (
	writesEvery = time.Second      // between two looks
	nodesFirst  = 10 * time.Second // nodes send outcomes again at most 1.5 s apart; the rest is for those that have many
)

var errNodesFirst = errors.New("the server takes writes again: nodes first settle what they have delivered")

// writes watches for a sweep which servers take writes. While one takes none, nodes still deliver what is due there, and
// the outcomes wait: these tasks look overdue. When the server takes writes again, a sweep must not claim them before the
// nodes have settled them, or they are delivered twice.
type writes struct {
	store *store.Store

	mu      sync.Mutex
	refused []refused // by server
}

// refused is what the last look at a server found.
type refused struct {
	why  error     // nil: it takes writes
	last time.Time // it was refused; zero: never
}

func newWrites(s *store.Store) *writes {
	return &writes{store: s, refused: make([]refused, len(s.Servers()))}
}

// run looks at every server at intervals, until ctx ends.
func (w *writes) run(ctx context.Context) {
	var servers sync.WaitGroup
	for server := range w.refused {
		servers.Go(func() {
			for more := true; more; more = wait.For(ctx, writesEvery) == nil {
				w.look(ctx, server)
			}
		})
	}
	servers.Wait()
}

func (w *writes) look(ctx context.Context, server int) {
	timed, cancel := context.WithTimeout(ctx, health.HangsAfter)
	defer cancel()
	why := w.store.TakesWrites(timed, server)
	if mysql.ClassOf(why) == mysql.Canceled { // it hangs, and so do claims; or the sweep uses all connections
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	r := &w.refused[server]
	if r.why = why; why != nil {
		r.last = time.Now()
	}
}

// refusal returns why a server takes no writes.
func (w *writes) refusal(server int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused[server].why
}

// mayClaim returns why a sweep must not claim on a server now.
func (w *writes) mayClaim(server int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch r := w.refused[server]; {
	case r.why != nil:
		return r.why
	case !r.last.IsZero() && time.Since(r.last) < nodesFirst:
		return errNodesFirst
	}
	return nil
}
