package dispatcher

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/store"
)

// key is one biz_id of one biz type, of which a policy may let only so many tasks be in delivery at once, in the order of
// their times (tocsin.Policy.PerKey). What all processes keep to is the claim of each row, which the database grants in turn.
// What is noted here spares claims that would be refused, and has the next rows looked up when their turn comes: rows that
// wait are not kept in memory, however many there are.
type key struct {
	lane *lane
	store.Key
}

func keyOf(t *task) key { return key{t.lane, store.Key{Table: t.table(), BizID: t.row.BizID}} }

// keyState is what is known of a key with rows in hand, or with a look to come.
type keyState struct {
	held int  // rows that are about to be claimed, in delivery, or wait to be settled
	more bool // others wait for their turn
	vain int  // looks and claims since one was granted, or a row that was claimed has ended; at most vainLooks
}

// perKey is how many rows of one key may be in delivery; 0: any number.
func (l *lane) perKey() int { return l.kind.rule.Load().policy.PerKey }

// takeTurns returns the tasks whose keys have room in this process, of each key the first ones, and those that wait. These
// leave the queue. Called under s.mu.
func (s *server) takeTurns(tasks []*task) (taken, waiting []*task) {
	if !slices.ContainsFunc(tasks, func(t *task) bool { return t.lane.perKey() > 0 }) {
		return tasks, nil
	}
	slices.SortFunc(tasks, func(a, b *task) int {
		return cmp.Or(cmp.Compare(a.row.Action, b.row.Action), cmp.Compare(a.row.JobID, b.row.JobID))
	})
	for _, t := range tasks {
		most, k := t.lane.perKey(), keyOf(t)
		if most == 0 {
			taken = append(taken, t)
			continue
		}
		st := s.stateOf(k)
		if st.held >= most {
			st.more = true
			t.acquit()
			t.lane.held--
			t.lane.queue.Done(t.row.JobID)
			s.d.metrics.droppedTurn.Inc()
			waiting = append(waiting, t)
			continue
		}
		st.held++
		t.keyed = true
		delete(s.lookups, k)
		taken = append(taken, t)
	}
	return taken, waiting
}

// stateOf finds or makes the state of a key. Called under s.mu.
func (s *server) stateOf(k key) *keyState {
	st := s.keys[k]
	if st == nil {
		st = &keyState{}
		s.keys[k] = st
	}
	return st
}

// leaveKey notes that a row of the key has ended, or is not claimed. Called under s.mu.
func (s *server) leaveKey(k key, claimed bool) {
	st := s.keys[k]
	if st.held--; claimed {
		st.vain = 0 // another one's turn has come
	}
	switch {
	case st.more:
		s.lookAt(k, st)
	case st.held == 0:
		delete(s.keys, k)
	}
}

// lookAt has the key looked at: at once, or after fruitless looks later. Called under s.mu.
func (s *server) lookAt(k key, st *keyState) {
	wait := time.Duration(0)
	if st.vain > 0 {
		wait = min(firstLook<<(st.vain-1), lastLook)
	}
	s.lookups[k] = time.Now().Add(wait)
	signal(s.looks)
}

// granted notes that it was the turn of tasks.
func (s *server) granted(tasks []*task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range tasks {
		if t.keyed {
			s.keys[keyOf(t)].vain = 0
		}
	}
}

// refused lets go of tasks that a claim did not get. Of a key it may not have been their turn.
func (s *server) refused(tasks map[tocsin.JobID]*task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range tasks {
		if t.keyed {
			st := s.keys[keyOf(t)]
			st.more, st.vain = true, min(st.vain+1, vainLooks)
		}
		t.acquit()
	}
}

// letGo lets go of a task that is not claimed, and of its payload.
func (s *server) letGo(t *task) {
	s.mu.Lock()
	t.acquit()
	s.mu.Unlock()
	s.d.dropPayloads(t)
}

// looksToCome counts the keys of the lane that have no row in hand and will be looked at. Called under s.mu.
func (l *lane) looksToCome() (n int) {
	if l.perKey() == 0 {
		return 0
	}
	for k, st := range l.server.keys {
		if k.lane == l && st.held == 0 {
			n++
		}
	}
	return n
}

// runKeys looks up whose turn it is, until ctx ends.
func (s *server) runKeys(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		due, wait := s.dueLooks()
		for l, keys := range due {
			s.lookUp(ctx, l, keys)
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-s.looks:
		case <-timer.C:
		}
	}
}

// dueLooks takes the keys to look at now, and returns how long the next one has to wait.
func (s *server) dueLooks() (due map[*lane][]key, wait time.Duration) {
	now := time.Now()
	wait = time.Hour
	due = make(map[*lane][]key)
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, at := range s.lookups {
		if k.lane.rests() && !(k.lane.paused() && s.d.cfg.ClaimAll) { // a sweep does not wait for the end of a pause
			wait = min(wait, recheck)
			continue
		}
		if until := s.known(k.Table).avoidUntil; until.After(at) { // it is locked: its keys would hold up those of other tables
			at = until
		}
		if at.After(now) {
			wait = min(wait, at.Sub(now))
			continue
		}
		delete(s.lookups, k)
		s.keys[k].more = false
		due[k.lane] = append(due[k.lane], k)
	}
	return due, wait
}

// lookUp queues the rows whose turn it is.
func (s *server) lookUp(ctx context.Context, l *lane, keys []key) {
	q := store.TurnQuery{Server: s.index, Type: l.kind.number, PerKey: max(l.perKey(), 1), Until: s.now()}
	if s.d.cfg.ClaimAll {
		q.Until -= ceilMilli(l.kind.rule.Load().sweptAfter)
	}
	for _, k := range keys {
		q.Keys = append(q.Keys, k.Key)
	}
	turns, err := s.d.cfg.Store.Turns(ctx, q)
	if err != nil {
		s.d.metrics.failed("turn", err)
	}
	s.mu.Lock()
	for _, k := range keys {
		t := turns[k.Key]
		if t.Err != nil {
			s.d.metrics.failed("turn", t.Err)
		}
		for _, e := range s.looked(k, t, err != nil || t.Err != nil) {
			if s.guest(k.Table) {
				e.Due = max(e.Due, q.Until) + guestDelay.Milliseconds()
			}
			if !s.strange(k.Table, e.Type) {
				l.bringForward(e)
			}
		}
	}
	s.mu.Unlock()
	signal(s.wake)
}

// looked returns the rows of a key that are to be queued. A key of which nothing waits, or whose turn did not come for long,
// is forgotten. So is, in a sweep, one whose rows others deliver. Called under s.mu.
func (s *server) looked(k key, t store.Turn, failed bool) []duequeue.Entry {
	st := s.stateOf(k)
	some := failed || len(t.Next) > 0 || len(t.Claimed) > 0 && !s.d.cfg.ClaimAll
	if !some || k.lane.paused() && s.d.cfg.ClaimAll || !s.admitted(k.Table) || st.held == 0 && st.vain >= vainLooks {
		if delete(s.lookups, k); st.held == 0 {
			delete(s.keys, k)
		}
		return nil
	}
	if st.more = true; st.held == 0 {
		st.vain++
		s.lookAt(k, st)
	}
	return t.Next
}
