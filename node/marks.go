package node

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin/internal/layoutrow"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/store"
)

const (
	beatTimeout = 2 * time.Second  // for one server: a slow one must not hold up the others
	keepEvery   = 20 * time.Second // between two looks at the marks in etcd
	keepTimeout = 5 * time.Second
)

// marks raises the marks of the databases, by which an older copy of one is recognised, and keeps them in etcd. Use it
// from one goroutine, except wrong.
type marks struct {
	store *store.Store
	keep  func(ctx context.Context, identity string, known map[int]int64) (map[int]int64, error) // in etcd; nil: nowhere
	log   *slog.Logger
	limit loop.LogLimit
	kept  time.Time // last look at etcd

	changed chan struct{} // 1 slot: databases turned wrong
}

// run raises marks until ctx ends.
func (m *marks) run(ctx context.Context) {
	tick := time.NewTicker(layoutrow.MarkEvery)
	defer tick.Stop()
	m.beat(ctx)
	for {
		if time.Since(m.kept) >= keepEvery {
			m.exchange(ctx, m.store.Marks())
		}
		select {
		case <-ctx.Done():
			return
		case <-m.changed:
			m.each(ctx, m.store.HoldOlder)
		case <-tick.C:
			m.beat(ctx)
		}
	}
}

// wrong tells run that databases turned wrong. It does not wait.
func (m *marks) wrong() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

func (m *marks) beat(ctx context.Context) { m.each(ctx, m.store.Beat) }

// each does something on all servers at once.
func (m *marks) each(ctx context.Context, do func(context.Context, int) error) {
	var servers sync.WaitGroup
	for server, name := range m.store.Servers() {
		servers.Go(func() {
			timed, cancel := context.WithTimeout(ctx, beatTimeout)
			defer cancel()
			if err := do(timed, server); beatFault(err) && ctx.Err() == nil {
				m.limit.Of(m.log, fmt.Sprint("beat ", name)).Warn("marks can't be raised: an older copy of these databases might not be recognised",
					"error", err, "server", name)
			}
		})
	}
	servers.Wait()
}

// beatFault reports whether an error will not pass by itself. Others report a server that does not answer.
func beatFault(err error) bool {
	class := mysql.ClassOf(err)
	return err != nil && class != mysql.Canceled && class != mysql.Contended && !class.OfServer()
}

// exchange keeps marks in etcd, and learns those that other nodes kept there. Databases that prove to be older copies
// are refused when it returns.
func (m *marks) exchange(ctx context.Context, known map[int]int64) {
	identity := m.store.Identity()
	if m.keep == nil || identity == "" {
		return
	}
	timed, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	kept, err := m.keep(timed, identity, known)
	if err != nil && ctx.Err() != nil {
		return
	}
	if err != nil {
		m.limit.Of(m.log, "keep").Warn("the marks of the databases can't be kept in etcd", "error", err)
		return
	}
	if len(known) > 0 {
		m.kept = time.Now()
	}
	m.store.Remember(timed, identity, kept)
}
