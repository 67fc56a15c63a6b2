package assign

import (
	"context"
	"time"
)

// A node that registers does not plan at once, as others may be registering too. Until it does, it is a newcomer: the plan
// counts it, so nobody takes the free tables that are its own, but nobody gives up a table to it that it would leave lying.

// revoking is how long after its TTL etcd may take to end a lease.
const revoking = 2 * time.Second

// comeForward tells the others that this node takes at once what they give up for it. It waits while a former life of this
// node seems to live still: its tables are free within a TTL or little more, and then none of the others' need to move.
func (s *session) comeForward(ctx context.Context, v view) error {
	if !s.record.Newcomer {
		return nil
	}
	if end := s.began.Add(s.lease.ttl + revoking); v.hasElder(s.id) && time.Now().Before(end) {
		s.wake(end)
		return nil
	}
	s.record.Newcomer = false
	err := s.writer.come(ctx, s.record)
	if err != nil {
		s.record.Newcomer = true
	}
	return err
}

// hasElder reports whether another incarnation of the node's name is registered and not leaving: a former life whose lease
// has not run out, or a second node of the same host.
func (v view) hasElder(id string) bool {
	for other, n := range v.nodes {
		if other != id && nameOf(other) == nameOf(id) && !n.record.Leaving && !n.record.Newcomer {
			return true
		}
	}
	return false
}

// nameOf is a node's id without its incarnation.
func nameOf(id string) string { return id[:max(0, len(id)-1-incarnationLen)] }

// awaits reports whether the table is to stay with its owner for now, as who should have it would not take it yet.
func (s *session) awaits(v view, target string) bool {
	return target != s.id && v.nodes[target].record.Newcomer
}
