package assign

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// A node that registers does not plan at once, as others may be registering too. Until it does, it is a newcomer: the plan
// counts it, so nobody takes the free tables that are its own, but nobody gives up a table to it that it would leave lying.
//
// After an outage of etcd a node pauses for up to a TTL, as the others may have to come back to their tables first. It is a
// newcomer then that says that it pauses: so free tables that the plan gives it go to others meanwhile (PlanMeanwhile).
// Where another node has gone on planning there was no outage but for this node, and the pause is short.

// revoking is how long after its TTL etcd may take to end a lease.
const revoking = 2 * time.Second

// comeForward tells the others that this node takes at once what they give up for it. It waits while a former life of this
// node seems to live still: its tables are free within a TTL or little more, and then none of the others' need to move.
func (s *session) comeForward(ctx context.Context, v view) error {
	record := s.record
	record.Pausing, record.Newcomer = false, false
	if end := s.began.Add(s.lease.ttl + revoking); s.record.Newcomer && v.hasElder(s.id) && time.Now().Before(end) {
		s.wake(end)
		record.Newcomer = true
	}
	return s.publish(ctx, record)
}

// stepBack tells the others that this node takes nothing for now.
func (s *session) stepBack(ctx context.Context) error {
	record := s.record
	record.Pausing, record.Newcomer = true, true
	return s.publish(ctx, record)
}

// publish writes what of the record comeForward and stepBack change, if it changes.
func (s *session) publish(ctx context.Context, record nodeRecord) error {
	if record.Pausing == s.record.Pausing && record.Newcomer == s.record.Newcomer {
		return nil
	}
	return s.put(ctx, record)
}

// put writes the node's record.
func (s *session) put(ctx context.Context, record nodeRecord) error {
	rev, err := s.writer.update(ctx, record)
	if err == nil {
		s.record = record
	}
	s.wrote = max(s.wrote, rev)
	return err
}

// hasElder reports whether another incarnation of the node's name is registered and may be a former life whose lease has not
// run out. A second process of that name answers this one's registration, and so has written its key since: see answerTwins.
func (v view) hasElder(id string) bool {
	for other, n := range v.nodes {
		if other != id && nameOf(other) == nameOf(id) && !n.record.Leaving && !n.record.Newcomer && n.mod < v.nodes[id].created {
			return true
		}
	}
	return false
}

// answerTwins writes this node's key again if a process of the same name has registered since it was written: that this
// one lives shows the other that no tables of a former life will be free for it soon.
func (s *session) answerTwins(ctx context.Context, v view) error {
	own := v.nodes[s.id]
	for id, n := range v.nodes {
		if id != s.id && nameOf(id) == nameOf(s.id) && n.lease != clientv3.NoLease && n.created > own.mod {
			return s.put(ctx, s.record)
		}
	}
	return nil
}

// goesOn reports whether another node has gone on planning.
func (v view) goesOn(id string) bool {
	for other, n := range v.nodes {
		if other != id && n.lease != clientv3.NoLease && !n.record.Newcomer {
			return true
		}
	}
	return false
}

// pausing gives the other nodes that pause. One that leaves gives up its tables all the same.
func (v view) pausing(id string) map[string]bool {
	idle := make(map[string]bool)
	for other, n := range v.nodes {
		if other != id && n.record.Pausing && !n.record.Leaving {
			idle[other] = true
		}
	}
	return idle
}

// afterOutage gives until when the node pauses after an outage of etcd: for a TTL, or a tenth of it where another node has
// gone on planning. A node whose lease has outlived the outage looks for such nodes only then, as they may notice later.
func (s *session) afterOutage(v view) time.Time {
	over, late := s.outage.last()
	if over.IsZero() {
		return over
	}
	early, now := over.Add(s.lease.ttl/10), time.Now()
	if v.goesOn(s.id) && (!late || !now.Before(early)) {
		s.alone = over // that node may leave before the pause ends
	}
	switch {
	case s.alone == over:
		return early
	case now.Before(early):
		s.wake(early)
	}
	return over.Add(s.lease.ttl)
}

// nameOf is a node's id without its incarnation.
func nameOf(id string) string { return id[:max(0, len(id)-1-incarnationLen)] }

// awaits reports whether the table is to stay with its owner for now, as who should have it would not take it yet.
func (s *session) awaits(v view, target string) bool {
	return target != s.id && v.nodes[target].record.Newcomer
}
