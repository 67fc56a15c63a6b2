package assign

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/internal/store"
)

// Time-outs and pauses that do not depend on the TTL: the work takes as long under a short lease.
const (
	etcdTimeout  = 5 * time.Second        // of one transaction in etcd
	readTimeout  = 10 * time.Second       // of a read of all keys, which may be megabytes
	partTimeout  = 2 * time.Second        // for telling etcd that a node leaves: it must not wait long if etcd is away
	takeTimeout  = 5 * time.Second        // of one Take: it writes owner rows
	dropTimeout  = 5 * time.Second        // of one Drop or Loosen: a holder claims what it can't finish. What is stuck on a sick server is tried again; the other tables must not wait for it
	rereadPause  = 500 * time.Millisecond // before all keys are read anew
	epochPause   = 500 * time.Millisecond // for another node, which may have reserved an epoch and be registering
	failurePause = time.Second            // before something that failed is tried again
	returnPause  = time.Second            // for other nodes to notice the end of an outage: they try to connect twice a second
	missPause    = 5 * time.Second        // for all nodes to notice that a server is down: they look at it every 2 s and wait for 4 s
)

// session is one incarnation: from its registration until it has left or its lease is lost. Its unguarded state belongs
// to the goroutine that calls run.
type session struct {
	*Assign
	log    *slog.Logger
	id     string
	lease  *lease
	began  time.Time // this incarnation
	record nodeRecord
	writer writer
	mirror *mirror
	pause  time.Time // nothing is planned until then: several nodes may come or vanish together
	outage outage
	hands  *hands

	held    map[int]int64       // tables the holder may have -> revision that created the key
	doomed  map[int]int64       // keys to be deleted -> that revision; such a key is never started on again, as a delete may be under way
	refused map[int]refusal     // tables the holder could not take lately
	apart   misses              // those of the last plan
	orphans map[string]orphan   // keys without a node
	missed  map[sight]time.Time // what nodes can't reach and others can, and since when
	live    map[string]bool     // nodes of the last view that were not leaving
	stuck   map[int]time.Time   // tables that the holder could not drop lately -> when to ask again
	wrote   int64               // revision of our last write: an older view is not planned on
	lost    map[int]bool        // tables whose keys vanished while they were ours: see own
	alone   time.Time           // end of the last outage that hit this node alone
	differs string              // types warned of last
	moves   moves               // of tables that are not logged yet
	duties  []Duty              // for other owners, as last passed to Config.StandIn
	next    time.Time           // when to look again though nothing changed; zero: never
	leaveBy time.Time           // end of the leave time-out; zero: the session has not begun to leave
}

// newSession begins an incarnation; outage: etcd was away before.
func newSession(a *Assign, l *lease, outage bool) *session {
	id, keys := a.ID(), spaceOf(a.cfg.Cluster, a.cfg.Group)
	s := &session{
		Assign:  a,
		log:     a.cfg.Logger.With("node", id, "group", a.cfg.Group),
		id:      id,
		lease:   l,
		began:   time.Now(),
		record:  nodeRecord{NodeInfo: a.infoNow(), Identity: a.identity(), Weight: a.cfg.Weight, Newcomer: true, Pausing: outage},
		writer:  writer{client: a.cfg.Client, cluster: a.cfg.Cluster, space: keys, id: id, lease: l.id, timeout: etcdTimeout},
		mirror:  &mirror{client: a.cfg.Client, space: keys, tables: a.cfg.Tables, timeout: readTimeout, changed: make(chan struct{}, 1)},
		held:    make(map[int]int64),
		doomed:  make(map[int]int64),
		refused: make(map[int]refusal),
		orphans: make(map[string]orphan),
		stuck:   make(map[int]time.Time),
		lost:    make(map[int]bool),
	}
	if outage {
		s.outage.end(false)
	}
	l.metrics = a.metrics
	l.outage = func() { s.outage.end(true); a.look() }
	l.doubt, l.proven = func(bool, error) {}, a.look
	published := s.record.Identity
	l.renewed = func() {
		if now := a.identity(); now != published {
			published = now
			a.look()
		}
	}
	return s
}

// registerKept registers, and renews the lease meanwhile: a server that hangs may hold it up for longer than a TTL.
func (s *session) registerKept(ctx context.Context, rows store.OwnerRevisions) error {
	registering, end := context.WithCancel(ctx)
	var keeper sync.WaitGroup
	defer keeper.Wait()
	defer end()
	keeper.Go(func() { _ = s.lease.keep(registering) }) // an ended lease fails the registration
	return s.register(ctx, rows)
}

// register creates the node's key, and in the same transaction begins a new epoch if etcd has forgotten owners.
func (s *session) register(ctx context.Context, rows store.OwnerRevisions) error {
	if s.cfg.OwnerRows == nil {
		return s.writer.register(ctx, s.record, s.draining, nil)
	}
	e, err := s.wantEpoch(ctx, rows)
	if err != nil {
		return err
	}
	ops, err := s.epochOps(ctx, e)
	if err != nil {
		return err
	}
	if err := s.writer.register(ctx, s.record, s.draining, ops, e.guard(s.writer.space)); err != nil {
		return err
	}
	s.noteEpoch(e)
	return nil
}

// run owns the node's share until ctx ends, and then leaves, or until the lease is lost (errLost): then the tables are
// loose, and the next incarnation's.
func (s *session) run(ctx context.Context) error {
	life, end := context.WithCancelCause(context.WithoutCancel(ctx)) // the lease outlives ctx: it is renewed while we leave
	var wg sync.WaitGroup
	s.hands = newHands(life, s.holder)
	s.lease.doubt = func(first bool, why error) {
		s.unproven(why)
		if first {
			wg.Go(func() { s.loosen(ctx) })
		}
	}
	wg.Go(func() {
		if err := s.lease.keep(life); err != nil {
			s.trust.end()
			end(err)
		}
	})
	wg.Go(func() { s.follow(life) })
	lost := s.reconcile(ctx, life)
	s.standIn(nil)
	if lost == nil {
		lost = s.leave(life)
	}
	end(nil)
	wg.Wait()
	s.trust.end()
	s.wanted.Store(0)
	goesOn := errors.Is(lost, errLost) && ctx.Err() == nil
	if goesOn {
		s.unproven(lost)
		s.loosen(ctx) // first of all: others may have the tables soon
	}
	s.hands.close()
	_, _ = s.hear(life) // which has ended: what was asked is booked, and nothing is written any more
	switch {
	case goesOn:
		for table := range s.held {
			s.loose[table] = true
		}
		s.revoke(ctx)
		return lost
	case lost != nil:
		return s.abandon(ctx)
	}
	s.revoke(ctx)
	s.log.Info("left the group")
	return nil
}

// unproven notes the beginning of claim mode, and logs why it lasts.
func (s *session) unproven(why error) {
	now := time.Now()
	s.claiming.CompareAndSwap(nil, &now)
	s.limit.Of(s.log, "claim mode").Warn("the lease can't be proven: going on in claim mode", "error", why)
}

// loosen has the holder claim what is in delivery, before another node can have the tables.
func (s *session) loosen(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTimeout)
	defer cancel()
	if err := s.holder.Loosen(ctx, s.id); err != nil {
		s.limit.Of(s.log, "loosen").Warn("some of what is in delivery is not claimed and may be delivered again", "error", err)
	}
}

// endClaiming logs the end of claim mode: the lease is proven, and no table is left of an incarnation that lost its
// lease.
func (s *session) endClaiming() {
	since := s.claiming.Load()
	if since == nil || !s.LeaseOK() || len(s.loose) > 0 {
		return
	}
	s.claiming.Store(nil)
	s.limit.Of(s.log, "claim mode ended").Info("claim mode has ended: the lease is proven",
		"lasted", time.Since(*since).Round(time.Millisecond).String())
}

// kept gives all tables that the holder has, loose ones included.
func (s *session) kept() []int {
	all := maps.Clone(s.held)
	for table := range s.loose {
		all[table] = 0
	}
	return sortedKeys(all)
}

// follow keeps the mirror up to date until ctx ends.
func (s *session) follow(ctx context.Context) {
	for ctx.Err() == nil {
		err := s.mirror.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		s.limit.Of(s.log, "read").Warn("reading all keys anew", "error", err)
		_ = loop.Wait(ctx, rereadPause)
	}
}

// leave tells the others to plan without this node, and gives up all tables, in parts, those of each server beside those of
// the others. What is stuck it tries for Config.LeaveTimeout; the error says what that was.
func (s *session) leave(life context.Context) error {
	end := time.NewTimer(s.cfg.LeaveTimeout)
	defer end.Stop()
	s.leaveBy = time.Now().Add(s.cfg.LeaveTimeout)
	s.announce(life)
	frees, keep := context.WithCancel(life)
	defer keep()
	for {
		s.next = time.Time{}
		stuck, failed := s.hear(frees)
		failed = errors.Join(failed, s.giveBack(frees, s.portion(s.held)))
		if failed != nil && frees.Err() == nil {
			s.log.Warn("the keys of tables that were given up stay until the lease ends", "error", failed)
			keep() // no part is to wait for etcd any more
		}
		s.letGo(sortedKeys(s.loose))
		if len(s.kept()) == 0 {
			s.tellMoves()
			return nil
		}
		if err := s.awaitHands(life, end.C); err != nil {
			return errors.Join(err, stuck)
		}
	}
}

// announce tells the others to plan without this node. That it leaves says all that a drain does.
func (s *session) announce(life context.Context) {
	s.record.Leaving = true
	ctx, cancel := context.WithTimeout(life, partTimeout)
	defer cancel()
	if _, err := s.writer.update(ctx, s.record, clientv3.OpDelete(s.writer.space.drain(s.id))); err != nil {
		s.log.Warn("leaving unannounced", "error", fmt.Errorf("announce the leaving: %w", err))
	}
}

// awaitHands returns when the holder has answered, or it is time to ask again; with an error where neither is waited for.
func (s *session) awaitHands(life context.Context, end <-chan time.Time) error {
	var again <-chan time.Time
	if !s.next.IsZero() {
		timer := time.NewTimer(time.Until(s.next))
		defer timer.Stop()
		again = timer.C
	}
	select {
	case <-s.hands.news:
	case <-again:
	case <-end:
		return fmt.Errorf("%d tables are not given up after %s", len(s.kept()), s.cfg.LeaveTimeout)
	case <-life.Done():
		return context.Cause(life)
	}
	return nil
}

// abandon drops all tables when the node stops and its lease was lost, or leaving failed, in what is left of the leave time-out.
// The keys are left to the lease until the tables are dropped.
func (s *session) abandon(ctx context.Context) error {
	within := dropTimeout
	if !s.leaveBy.IsZero() {
		within = min(within, max(time.Until(s.leaveBy), quickly))
	}
	if err := s.drop(context.WithoutCancel(ctx), s.kept(), within); err != nil {
		return fmt.Errorf("leave the group %s: %w", s.cfg.Group, err)
	}
	s.revoke(ctx)
	return nil
}

// revoke frees all keys at once. If it fails they run out with the lease.
func (s *session) revoke(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), partTimeout)
	defer cancel()
	if err := s.lease.revoke(ctx); err != nil {
		s.log.Warn("the keys stay until the lease runs out", "error", err)
	}
}

// count publishes how many tables the holder has.
func (s *session) count() { s.owned.Store(int64(len(s.kept()))) }

// isMine reports whether a key is under our lease.
func (s *session) isMine(lease clientv3.LeaseID) bool { return lease == s.lease.id }
