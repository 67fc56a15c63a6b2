package assign

import (
	"context"
	"errors"
	"time"
)

// reconcile brings what the node has into line with the plan, whenever a key changes or a wait is over, until ctx ends
// (nil) or life does (its cause).
func (s *session) reconcile(ctx, life context.Context) error {
	both, cancel := context.WithCancel(life)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-life.Done():
			return context.Cause(life)
		case <-s.mirror.changed:
		case <-s.nudge:
		case <-s.hands.news:
		case <-timer.C:
		}
		if both.Err() != nil {
			continue // something else was ready too
		}
		s.next = time.Time{}
		_, failed := s.hear(both)
		if err := errors.Join(failed, s.round(both)); err != nil && both.Err() == nil {
			if errors.Is(err, errLost) {
				return err
			}
			s.limit.Of(s.log, "follow").Warn("could not follow the plan, trying again", "error", err)
			s.wake(time.Now().Add(failurePause))
		}
		s.endClaiming()
		s.noteMoves()
		timer.Stop()
		if !s.next.IsZero() {
			timer.Reset(time.Until(s.next))
		}
	}
}

// wake asks for a round at a time, if none is due earlier.
func (s *session) wake(at time.Time) {
	if s.next.IsZero() || at.Before(s.next) {
		s.next = at
	}
}

// round looks once at all keys and does what follows. What it writes is seen by a later round, which goes on from there:
// the keys are the only state, so a write whose answer was lost needs no care.
func (s *session) round(ctx context.Context) error {
	v := s.mirror.snapshot()
	if v.rev == 0 {
		return nil // nothing read yet
	}
	fresh := v.rev >= s.wrote // the view holds our own last write; if not, its event will wake us
	if fresh {
		if err := s.restore(ctx, v); err != nil {
			return err // where etcd has ended the lease, all tables go loose, and none is dropped
		}
	}
	if err := s.tell(ctx); err != nil {
		return err
	}
	s.dropLost(v)
	if !fresh {
		return nil
	}
	owners := v.owners()
	s.noteUnowned(owners)
	s.noteOthers(v)
	s.compareHandlers(v)
	s.standIn(v.duties(owners)[s.id])
	s.compareIdentities(v)
	s.noteDrain(v)
	if err := s.sweepOrphans(ctx, v.orphans(owners)); err != nil {
		return err
	}
	s.dropReplaced(owners)
	failed := errors.Join(s.hearRefused(ctx), s.answerTwins(ctx, v))
	paused := s.paused(v)
	if v.settle {
		return errors.Join(failed, s.giveBack(ctx, s.doomed)) // nothing is taken or started until the end of the key wakes us
	}
	if paused {
		if time.Now().Before(s.afterOutage(v)) {
			record := s.record
			record.Pausing, record.Newcomer = true, true
			failed = errors.Join(failed, s.publish(ctx, record))
		}
		return errors.Join(failed, s.carryOut(ctx, v, s.own(v, s.staying(owners))))
	}
	clear(s.lost)
	s.metrics.plans.Inc()
	failed = errors.Join(failed, s.comeForward(ctx, v))
	return errors.Join(failed, s.carryOut(ctx, v, PlanMeanwhile(v.members(), s.staying(owners), s.settledMisses(v), v.pausing(s.id))))
}

// dropLost drops tables whose keys are not those that we hold: somebody deleted or overwrote them.
func (s *session) dropLost(v view) {
	var lost []int
	for table, rev := range s.held {
		if key := v.tables[table]; (!s.isMine(key.lease) || key.created != rev) && !s.hands.moving[table] {
			lost = append(lost, table)
		}
	}
	for table, rev := range s.doomed {
		if v.tables[table].created != rev {
			delete(s.doomed, table)
		}
	}
	if len(lost) == 0 {
		return
	}
	for _, table := range lost {
		s.lost[table] = true
	}
	s.limit.Of(s.log, "keys gone").Warn("keys of own tables are gone, dropping the tables", "tables", len(lost))
	s.letGo(lost)
}

// noteUnowned counts the tables without an owner, for metrics.
func (s *session) noteUnowned(owners []string) {
	n := 0
	for _, owner := range owners {
		if owner == "" {
			n++
		}
	}
	s.unowned.Store(int64(n))
}

// dropReplaced drops loose tables that another node has now: its owner row ends our claims there.
func (s *session) dropReplaced(owners []string) {
	var replaced []int
	for _, table := range sortedKeys(s.loose) {
		if owner := owners[table]; owner != "" && owner != s.id {
			replaced = append(replaced, table)
		}
	}
	s.letGo(replaced)
}

// own is the plan while it is too early to plan. Every owner keeps its tables, and this node takes again those of its
// own that are free: loose tables, so that tables stay as spread as before the outage, and tables whose keys vanished.
func (s *session) own(v view, owners []string) []string {
	for table, key := range v.tables {
		_, doomed := s.doomed[table]
		if s.isMine(key.lease) && !doomed || key.created == 0 && (s.loose[table] || s.lost[table]) {
			owners[table] = s.id // also if the key of this node is gone
		}
	}
	return owners
}

// restore writes our own node's key if somebody deleted or overwrote it.
func (s *session) restore(ctx context.Context, v view) error {
	key := v.nodes[s.id]
	if s.isMine(key.lease) {
		return nil
	}
	s.limit.Of(s.log, "key gone").Warn("the node's key is gone, writing it again")
	return s.writer.restore(ctx, s.record, key.mod)
}

// sweepOrphans deletes keys that have had no node behind them for a TTL. Until then their node may come back to them.
func (s *session) sweepOrphans(ctx context.Context, found map[string]int64) error {
	now, due := time.Now(), make(map[string]int64)
	for key, mod := range found {
		if s.orphans[key].mod != mod {
			s.orphans[key] = orphan{mod: mod, since: now}
		}
		if end := s.orphans[key].since.Add(s.lease.lasts); now.Before(end) {
			s.wake(end)
		} else {
			due[key] = mod
		}
	}
	for key := range s.orphans {
		if _, still := found[key]; !still {
			delete(s.orphans, key)
		}
	}
	if len(due) == 0 {
		return nil
	}
	s.limit.Of(s.log, "orphans").Warn("removing keys that no node stands behind", "keys", len(due))
	return s.writer.sweep(ctx, due)
}

// paused reports whether it is too early to plan. A node that vanished without leaving starts a short pause, as others may
// vanish with it.
func (s *session) paused(v view) bool {
	live := make(map[string]bool, len(v.nodes))
	for _, m := range v.members() {
		live[m.ID] = m.Weight > 0
	}
	var vanished []string
	for id, counted := range s.live {
		if _, still := live[id]; counted && !still {
			vanished = append(vanished, id)
		}
	}
	if len(vanished) > 0 {
		s.log.Info("nodes have vanished", "vanished", vanished)
		s.pause = time.Now().Add(s.cfg.ReplanDelay)
	}
	s.live = live
	s.peers.Store(int64(len(live)))
	end := s.pause
	if long := s.afterOutage(v); long.After(end) {
		end = long
	}
	if !time.Now().Before(end) {
		return false
	}
	s.wake(end)
	return true
}

// carryOut does our part of a plan: give up, start on keys that are ours, take keys that are free.
func (s *session) carryOut(ctx context.Context, v view, target []string) error {
	away, start, take := s.divide(v, target)
	failed := s.giveBack(ctx, s.portion(away))
	s.start(v, start)
	rev, err := s.writer.take(ctx, take)
	s.wrote = max(s.wrote, rev)
	return errors.Join(failed, err)
}

// staying leaves out of the owners what this node is about to give up. Its keys go one server after the other; a plan that
// took the rest for ours meanwhile would have us give up others instead.
func (s *session) staying(owners []string) []string {
	for table := range s.doomed {
		if owners[table] == s.id {
			owners[table] = ""
		}
	}
	return owners
}

// divide sorts out our tables: away are keys of ours to be given back, start are keys of ours that the holder has not
// been given, take are free tables that should be ours.
func (s *session) divide(v view, target []string) (away, start map[int]int64, take []int) {
	away, start = make(map[int]int64), make(map[int]int64)
	wanted, now := 0, time.Now()
	for table, key := range v.tables {
		want := target[table] == s.id
		if want {
			wanted++
		}
		stays := want && s.acceptable(table, now) || s.awaits(v, target[table])
		_, held := s.held[table]
		_, doomed := s.doomed[table]
		switch mine := s.isMine(key.lease); {
		case mine && (doomed || !stays):
			away[table] = key.created
		case mine && !held:
			start[table] = key.created
		case want && stays && key.created == 0:
			take = append(take, table)
		}
	}
	s.wanted.Store(int64(wanted))
	return away, start, take
}

// acceptable reports whether the holder did not refuse the table just now.
func (s *session) acceptable(table int, now time.Time) bool {
	r, refused := s.refused[table]
	if !refused || !now.Before(r.until) {
		return true
	}
	s.wake(r.until)
	return false
}
