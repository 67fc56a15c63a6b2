package upkeep

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/store"
)

// bizIDsAtOnce bounds the biz_ids in hand.
const bizIDsAtOnce = 10_000

// Missing is the answer of Against: which biz_ids have no task.
type Missing struct {
	Type   string
	Asked  int      // biz_ids, each time it was named
	BizIDs []uint64 // without a task of the type, whatever its status; ascending, each once
	Unread int      // of tables that could not be read: nothing is known of them
	Took   time.Duration
}

// Against looks for a task of the named biz type for each biz_id, and returns those that have none: never added, or purged. The
// first error of bizIDs ends it. The error joins those of servers and tables that could not be read; the answer is good for
// the others.
func Against(ctx context.Context, s *store.Store, policies []biztype.Policy, name string, bizIDs iter.Seq2[uint64, error]) (Missing, error) {
	start := time.Now()
	i := slices.IndexFunc(policies, func(p biztype.Policy) bool { return p.Name == name })
	if i < 0 {
		return Missing{}, fmt.Errorf("unknown biz type %q: `tocsin biz list` names those that are applied", name)
	}
	search := &search{
		store: s, typeCode: policies[i].Number, missing: Missing{Type: name},
		down: make([]error, len(s.Servers())), failed: map[int]error{},
	}
	var hand []uint64
	for bizID, err := range bizIDs {
		if err != nil {
			return search.missing, err
		}
		if hand = append(hand, bizID); len(hand) == bizIDsAtOnce {
			search.look(ctx, hand)
			hand = hand[:0]
		}
	}
	search.look(ctx, hand)
	missing := search.missing
	slices.Sort(missing.BizIDs)
	missing.BizIDs = slices.Compact(missing.BizIDs)
	missing.Took = time.Since(start)
	return missing, errors.Join(append(search.down, slices.Collect(maps.Values(search.failed))...)...)
}

// search is one Against under way.
type search struct {
	store    *store.Store
	typeCode uint64

	mu      sync.Mutex
	missing Missing
	down    []error       // by server: asked no more; each written by its own goroutine
	failed  map[int]error // by table
}

// look asks all servers for their share of the biz_ids.
func (s *search) look(ctx context.Context, bizIDs []uint64) {
	s.missing.Asked += len(bizIDs)
	shares := make([][]uint64, len(s.down))
	for _, bizID := range bizIDs {
		server := s.store.ServerOf(s.store.Layout().TableOf(bizID))
		shares[server] = append(shares[server], bizID)
	}
	store.EachServer(len(shares), func(server int) {
		if len(shares[server]) > 0 {
			s.ask(ctx, server, shares[server])
		}
	})
}

// ask asks a server, unless it failed before.
func (s *search) ask(ctx context.Context, server int, share []uint64) {
	var lacking []uint64
	var failed map[int]error
	err := s.down[server]
	if err == nil {
		lacking, failed, err = s.store.Lacking(ctx, server, s.typeCode, share)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.down[server] = err
		s.missing.Unread += len(share)
		return
	}
	s.missing.BizIDs = append(s.missing.BizIDs, lacking...)
	maps.Copy(s.failed, failed)
	for _, bizID := range share {
		if failed[s.store.Layout().TableOf(bizID)] != nil {
			s.missing.Unread++
		}
	}
}
