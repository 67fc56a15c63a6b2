package assign

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// dropTimeout bounds one Drop. It is a last resort: a holder claims what it can't finish, which takes seconds.
const dropTimeout = time.Minute

// session is one incarnation: from its registration until it has left or its lease is lost. Its unguarded state belongs
// to the goroutine that calls run.
type session struct {
	*Assign
	log    zerolog.Logger
	id     string
	lease  *lease
	record nodeRecord
	writer writer
	mirror *mirror
	pause  pause

	held    map[int]int64     // tables the holder may have -> revision that created the key
	doomed  map[int]int64     // keys to be deleted -> that revision; such a key is never started on again, as a delete may be under way
	refused map[int]refusal   // tables the holder could not take lately
	orphans map[string]orphan // keys without a node
	live    map[string]bool   // nodes of the last view that were not leaving
	wrote   int64             // revision of our last write: an older view is not planned on
	differs string            // types warned of last
	next    time.Time         // when to look again though nothing changed; zero: never
}

func newSession(a *Assign, l *lease) *session {
	id, keys := a.ID(), spaceOf(a.cfg.Cluster, a.cfg.Group)
	s := &session{
		Assign:  a,
		log:     a.cfg.Logger.With().Str("node", id).Str("group", a.cfg.Group).Logger(),
		id:      id,
		lease:   l,
		record:  nodeRecord{NodeInfo: a.cfg.Info, Weight: a.cfg.Weight},
		writer:  writer{client: a.cfg.Client, space: keys, id: id, lease: l.id, timeout: a.cfg.TTL / 2},
		mirror:  newMirror(a.cfg.Client, keys, a.cfg.Tables, a.cfg.TTL),
		held:    make(map[int]int64),
		doomed:  make(map[int]int64),
		refused: make(map[int]refusal),
		orphans: make(map[string]orphan),
	}
	l.metrics = a.metrics
	l.outage = func() { s.pause.extend(s.lease.ttl) }
	return s
}

// settle delays the first plan: others may be registering too, all of them for a whole TTL after an outage.
func (s *session) settle(outage bool) {
	s.pause.extend(s.cfg.ReplanDelay)
	if outage {
		s.pause.extend(s.lease.ttl)
	}
}

// run owns the node's share until ctx ends, and then leaves, or until the lease is lost (errLost), and then drops all.
func (s *session) run(ctx context.Context) error {
	life, end := context.WithCancelCause(context.WithoutCancel(ctx)) // the lease outlives ctx: it is renewed while we leave
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.lease.keep(life); err != nil {
			s.trust.end()
			end(err)
		}
	})
	wg.Go(func() { s.follow(life) })
	lost := s.reconcile(ctx, life)
	if lost == nil {
		lost = s.leave(life)
	}
	end(nil)
	wg.Wait()
	s.trust.end()
	s.wanted.Store(0)
	if lost != nil {
		return s.abandon(ctx, lost)
	}
	s.revoke(ctx)
	s.log.Info().Msg("left the group")
	return nil
}

// follow keeps the mirror up to date until ctx ends.
func (s *session) follow(ctx context.Context) {
	for ctx.Err() == nil {
		err := s.mirror.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		s.log.Warn().Err(err).Msg("reading all keys anew")
		sleep(ctx, s.cfg.TTL/20)
	}
}

// leave tells the others to plan without this node, and drops all tables.
func (s *session) leave(life context.Context) error {
	s.record.Leaving = true
	ctx, cancel := context.WithTimeout(life, s.cfg.TTL/5)
	defer cancel()
	if err := s.writer.update(ctx, s.record); err != nil {
		s.log.Warn().Err(err).Msg("leaving unannounced")
	}
	return s.drop(life, sortedKeys(s.held))
}

// abandon drops all tables after the lease was lost, or leaving failed, for a reason. It tries until it succeeds or, once
// ctx has ended, one last time. The keys are left to the lease until the tables are dropped.
func (s *session) abandon(ctx context.Context, reason error) error {
	for {
		stopping := ctx.Err() != nil
		err := s.drop(context.WithoutCancel(ctx), sortedKeys(s.held))
		switch {
		case err == nil && stopping:
			s.revoke(ctx)
			return nil
		case err == nil:
			s.revoke(ctx)
			return reason
		case stopping:
			return fmt.Errorf("leave the group %s: %w", s.cfg.Group, err)
		}
		s.log.Warn().Err(err).Msg("could not drop the tables, trying again")
		sleep(ctx, s.cfg.TTL/10)
	}
}

// drop has the holder give up tables.
func (s *session) drop(ctx context.Context, tables []int) error {
	if len(tables) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, dropTimeout)
	defer cancel()
	if err := s.holder.Drop(ctx, tables); err != nil {
		return fmt.Errorf("drop %d tables: %w", len(tables), err)
	}
	for _, table := range tables {
		delete(s.held, table)
	}
	s.metrics.givenUp.Add(float64(len(tables)))
	s.count()
	return nil
}

// revoke frees all keys at once. If it fails they run out with the lease.
func (s *session) revoke(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.TTL/5)
	defer cancel()
	if err := s.lease.revoke(ctx); err != nil {
		s.log.Warn().Err(err).Msg("the keys stay until the lease runs out")
	}
}

// count publishes how many tables the holder has.
func (s *session) count() { s.owned.Store(int64(len(s.held))) }

// isMine reports whether a key is under our lease.
func (s *session) isMine(lease clientv3.LeaseID) bool { return lease == s.lease.id }
