package assign

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// A node that registers does not plan at once, since others may be registering too. Until it plans, it is a newcomer:
// the plan counts it, so nobody takes the free tables that are meant for it, but nobody gives up a table that it would
// not take yet.
//
// After an outage of etcd a node pauses for up to a TTL, since the others may have to return to their tables first. It
// is then a newcomer that announces its pause, so free tables that the plan gives it go to others meanwhile
// (PlanMeanwhile). If another node has gone on planning, the outage hit this node alone, and its pause is short.

// revoking is how long after its TTL etcd may take to end a lease.
const revoking = 2 * time.Second

// comeForward tells the others that this node takes at once what they give up for it. It waits while a former life of this
// node seems to live still: its tables are free within a TTL or little more, and then none of the others' need to move.
func (s *session) comeForward(ctx context.Context, v view) error {
	record := s.record
	record.Pausing, record.Newcomer = false, false
	if end := s.began.Add(s.lease.lasts + revoking); s.record.Newcomer && v.hasElder(s.id) && time.Now().Before(end) {
		s.wake(end)
		record.Newcomer = true
	}
	return s.publish(ctx, record)
}

// publish writes the record if its Pausing or Newcomer has changed.
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

// hasElder reports whether another incarnation of the node's name is registered that may be a former life whose lease
// has not run out. A second process of that name would have answered this one's registration by writing its key: see
// answerTwins.
func (v view) hasElder(id string) bool {
	for other, n := range v.nodes {
		if other != id && nameOf(other) == nameOf(id) && !n.record.Leaving && !n.record.Newcomer && n.mod < v.nodes[id].created {
			return true
		}
	}
	return false
}

// answerTwins writes this node's key again if a process of the same name has registered since the last write. That
// shows the other process that this one lives, so there is no former life whose tables will soon be free.
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

// pausing returns the other nodes that pause. A leaving node is not counted: it gives up its tables even so.
func (v view) pausing(id string) map[string]bool {
	idle := make(map[string]bool)
	for other, n := range v.nodes {
		if other != id && n.record.Pausing && !n.record.Leaving {
			idle[other] = true
		}
	}
	return idle
}

// afterOutage returns when the node's pause after an outage of etcd ends: after a TTL, or a second if another node
// has gone on planning. If its lease outlived the outage, the node looks for such nodes only after that second, as the
// others may notice the outage later.
func (s *session) afterOutage(v view) time.Time {
	over, late := s.outage.last()
	if over.IsZero() {
		return over
	}
	early, now := over.Add(returnPause), time.Now()
	if v.goesOn(s.id) && (!late || !now.Before(early)) {
		s.alone = over // remembered, as that node may leave before the pause ends
	}
	switch {
	case s.alone == over:
		return early
	case now.Before(early):
		s.wake(early)
	}
	return over.Add(s.lease.lasts)
}

// nameOf is a node's id without its incarnation.
func nameOf(id string) string { return id[:max(0, len(id)-1-incarnationLen)] }

// awaits reports whether the table is to stay with its owner for now, as who should have it would not take it yet.
func (s *session) awaits(v view, target string) bool {
	return target != s.id && v.nodes[target].record.Newcomer
}
