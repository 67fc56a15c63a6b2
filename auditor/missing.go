package auditor

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
)

// bizIDsAtOnce bounds the biz_ids in hand.
const bizIDsAtOnce = 10_000

// Missing says which biz_ids have no task.
type Missing struct {
	Type   string
	Asked  int      // biz_ids, each time it was named
	BizIDs []uint64 // without a task of the type, whatever its status; ascending, each once
	Unread int      // of tables that could not be read: nothing is known of them
	Took   time.Duration
}

// Against looks for a task of the named biz type for each biz_id, and gives
// those that have none: never added, or purged. The first error of bizIDs ends
// it. The error joins those of servers and tables that could not be read; the
// answer is good for the others.
func (a *Auditor) Against(ctx context.Context, name string, bizIDs iter.Seq2[uint64, error]) (Missing, error) {
	start := time.Now()
	i := slices.IndexFunc(a.cfg.Policies, func(p biztype.Policy) bool { return p.Name == name })
	if i < 0 {
		return Missing{}, fmt.Errorf("unknown biz type %q: `tocsin biz list` names those that are applied", name)
	}
	s := &search{
		Auditor: a, typeCode: a.cfg.Policies[i].Number, missing: Missing{Type: name},
		down: make([]error, len(a.cfg.Servers)), failed: map[int]error{},
	}
	var hand []uint64
	for bizID, err := range bizIDs {
		if err != nil {
			return s.missing, err
		}
		if hand = append(hand, bizID); len(hand) == bizIDsAtOnce {
			s.look(ctx, hand)
			hand = hand[:0]
		}
	}
	s.look(ctx, hand)
	slices.Sort(s.missing.BizIDs)
	s.missing.BizIDs = slices.Compact(s.missing.BizIDs)
	s.missing.Took = time.Since(start)
	return s.missing, errors.Join(append(s.down, slices.Collect(maps.Values(s.failed))...)...)
}

// search is one Against under way.
type search struct {
	*Auditor
	typeCode uint64

	mu      sync.Mutex
	missing Missing
	down    []error       // by server: asked no more; each written by its own goroutine
	failed  map[int]error // by table
}

// look asks all servers for their share of the biz_ids.
func (s *search) look(ctx context.Context, bizIDs []uint64) {
	s.missing.Asked += len(bizIDs)
	shares := make([][]uint64, len(s.cfg.Servers))
	for _, bizID := range bizIDs {
		server := s.cfg.ServerOf(s.cfg.Layout.TableOf(bizID))
		shares[server] = append(shares[server], bizID)
	}
	var all sync.WaitGroup
	for server, share := range shares {
		if len(share) > 0 {
			all.Go(func() { s.ask(ctx, server, share) })
		}
	}
	all.Wait()
}

func (s *search) ask(ctx context.Context, server int, share []uint64) {
	lacking, failed, err := s.lacking(ctx, server, share)
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
		if failed[s.cfg.Layout.TableOf(bizID)] != nil {
			s.missing.Unread++
		}
	}
}

// lacking asks a server, unless it failed before.
func (s *search) lacking(ctx context.Context, server int, share []uint64) (lacking []uint64, failed map[int]error, err error) {
	if err := s.down[server]; err != nil {
		return nil, nil, err
	}
	return s.cfg.Tables.Lacking(ctx, server, s.typeCode, share)
}
