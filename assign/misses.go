package assign

import (
	"context"
	"slices"
	"time"
)

// Miss says which blocks of tables (see Config.Block) this node can't reach, ascending; none: it reaches all. The others
// are told, and take these tables where they can reach them, after 5 s: by then a server that is down for all is
// missed by all, and no table moves. It may be called at any time, before Run too.
func (a *Assign) Miss(blocks []int) {
	blocks = slices.Clone(blocks)
	a.missing.Store(&blocks)
	a.look()
}

// look requests a round.
func (a *Assign) look() {
	select {
	case a.nudge <- struct{}{}:
	default:
	}
}

// tell publishes which databases this node misses, which biz types it delivers and lacks, and the identity of its
// databases, if its key differs.
func (s *session) tell(ctx context.Context) error {
	if err := s.tellIdentity(ctx); err != nil {
		return err
	}
	missing, info := *s.missing.Load(), s.infoNow()
	apart := !slices.Equal(s.record.Misses, missing)
	if !apart && s.record.told().equal(info.told()) {
		return nil
	}
	record := s.record
	record.NodeInfo, record.Misses, record.Block = info, missing, s.cfg.Block
	if err := s.put(ctx, record); err != nil || !apart {
		return err
	}
	if len(missing) == 0 {
		s.log.Info("other nodes are told that this node can use all databases again")
	} else {
		s.log.Warn("other nodes are told which databases this node can't use", "databases", missing)
	}
	return nil
}

// misses gives what the live nodes can't reach and others can.
func (v view) misses() misses {
	m, members := misses{by: make(map[string]map[int]bool)}, v.members()
	for _, one := range members {
		record := v.nodes[one.ID].record
		if record.Block <= 0 {
			continue
		}
		m.block = record.Block // the same for all: it follows from the layout
		for _, b := range record.Misses {
			if v.reached(members, b) {
				m.add(one.ID, b)
			}
		}
	}
	return m
}

// reached reports whether a node that could take tables reaches the block.
func (v view) reached(members []Member, block int) bool {
	return slices.ContainsFunc(members, func(m Member) bool {
		return m.Weight > 0 && !slices.Contains(v.nodes[m.ID].record.Misses, block)
	})
}

// sight is one block that one node misses.
type sight struct {
	id    string
	block int
}

// settledMisses gives those misses that have stood for missPause. Servers go and come back for the nodes one after
// another: who acted on the first sight of it would move tables that move back a moment later.
func (s *session) settledMisses(v view) misses {
	all, now := v.misses(), time.Now()
	since := make(map[sight]time.Time)
	settled := misses{block: all.block, by: make(map[string]map[int]bool)}
	for id, blocks := range all.by {
		for b := range blocks {
			at, known := s.missed[sight{id, b}]
			if !known {
				at = now
			}
			since[sight{id, b}] = at
			if end := at.Add(missPause); now.Before(end) {
				s.wake(end)
			} else {
				settled.add(id, b)
			}
		}
	}
	s.missed, s.apart = since, settled
	return settled
}
