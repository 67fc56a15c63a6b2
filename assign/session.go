package assign

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// dropTimeout bounds one Drop: a holder claims what it can't finish, which takes seconds. What is stuck on a sick server is
// tried again; the other tables must not wait for it.
const dropTimeout = 5 * time.Second

// session is one incarnation: from its registration until it has left or its lease is lost. Its unguarded state belongs
// to the goroutine that calls run.
type session struct {
	*Assign
	log    zerolog.Logger
	id     string
	lease  *lease
	began  time.Time // this incarnation
	record nodeRecord
	writer writer
	mirror *mirror
	pause  pause

	held    map[int]int64       // tables the holder may have -> revision that created the key
	doomed  map[int]int64       // keys to be deleted -> that revision; such a key is never started on again, as a delete may be under way
	refused map[int]refusal     // tables the holder could not take lately
	apart   misses              // those of the last plan
	orphans map[string]orphan   // keys without a node
	missed  map[sight]time.Time // what nodes can't reach and others can, and since when
	live    map[string]bool     // nodes of the last view that were not leaving
	stuck   bool                // the last drop left something
	wrote   int64               // revision of our last write: an older view is not planned on
	differs string              // types warned of last
	next    time.Time           // when to look again though nothing changed; zero: never
}

func newSession(a *Assign, l *lease) *session {
	id, keys := a.ID(), spaceOf(a.cfg.Cluster, a.cfg.Group)
	s := &session{
		Assign:  a,
		log:     a.cfg.Logger.With().Str("node", id).Str("group", a.cfg.Group).Logger(),
		id:      id,
		lease:   l,
		began:   time.Now(),
		record:  nodeRecord{NodeInfo: a.cfg.Info, Weight: a.cfg.Weight, Newcomer: true},
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

// run owns the node's share until ctx ends, and then leaves, or until the lease is lost (errLost): then the tables are
// loose, and the next incarnation's.
func (s *session) run(ctx context.Context) error {
	life, end := context.WithCancelCause(context.WithoutCancel(ctx)) // the lease outlives ctx: it is renewed while we leave
	var wg sync.WaitGroup
	s.lease.doubt = func() { wg.Go(func() { s.loosen(ctx) }) }
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
	switch {
	case errors.Is(lost, errLost) && ctx.Err() == nil:
		s.loosen(ctx)
		for table := range s.held {
			s.loose[table] = true
		}
		s.revoke(ctx)
		return lost
	case lost != nil:
		return s.abandon(ctx, lost)
	}
	s.revoke(ctx)
	s.log.Info().Msg("left the group")
	return nil
}

// loosen has the holder claim what is in delivery, before another node can have the tables.
func (s *session) loosen(ctx context.Context) {
	s.log.Warn().Msg("the lease can't be proven: going on in claim mode")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.TTL/2)
	defer cancel()
	if err := s.holder.Loosen(ctx, s.id); err != nil {
		s.log.Warn().Err(err).Msg("some of what is in delivery is not claimed and may be delivered again")
	}
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
		s.log.Warn().Err(err).Msg("reading all keys anew")
		sleep(ctx, s.cfg.TTL/20)
	}
}

// leave tells the others to plan without this node, and drops all tables. Where some are stuck it frees the others.
func (s *session) leave(life context.Context) error {
	s.record.Leaving = true
	ctx, cancel := context.WithTimeout(life, s.cfg.TTL/5)
	defer cancel()
	if err := s.writer.announce(ctx, s.record); err != nil {
		s.log.Warn().Err(err).Msg("leaving unannounced")
	}
	s.leaveParts(life)
	all := maps.Clone(s.held)
	dropped := s.drop(life, s.kept())
	for end := time.Now().Add(s.cfg.LeaveTimeout); dropped != nil && life.Err() == nil && time.Now().Before(end); {
		if err := s.free(life, all); err != nil {
			s.log.Warn().Err(err).Msg("dropped tables wait for those that are stuck")
		}
		sleep(life, s.cfg.TTL/10)
		dropped = s.drop(life, s.kept())
	}
	return dropped
}

// abandon drops all tables after the lease was lost, or leaving failed, for a reason. It tries until it succeeds or, once
// ctx has ended, one last time. The keys are left to the lease until the tables are dropped.
func (s *session) abandon(ctx context.Context, reason error) error {
	for {
		stopping := ctx.Err() != nil
		err := s.drop(context.WithoutCancel(ctx), s.kept())
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

// drop has the holder give up tables. Those that it could not stay held; the error says why.
func (s *session) drop(ctx context.Context, tables []int) error {
	if len(tables) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, dropTimeout)
	defer cancel()
	err := s.holder.Drop(ctx, tables)
	asked := make(map[int]int64, len(tables))
	for _, table := range tables {
		asked[table] = s.held[table]
	}
	stuck := refusedBy(err, asked)
	maps.DeleteFunc(stuck, func(table int, _ int64) bool { return s.apart.missed(s.id, table) })
	if len(stuck) == 0 && err != nil {
		s.log.Warn().Err(err).Msg("giving up tables that other nodes reach: what is not settled here is delivered again there")
		err = nil
	}
	for _, table := range tables {
		if _, still := stuck[table]; !still {
			delete(s.held, table)
			delete(s.loose, table)
			s.metrics.givenUp.Inc()
		}
	}
	s.count()
	if err != nil {
		return fmt.Errorf("drop %d tables: %w", len(tables), err)
	}
	return nil
}

// free deletes the keys of those of the tables that the holder has not.
func (s *session) free(ctx context.Context, tables map[int]int64) error {
	dropped := make(map[int]int64, len(tables))
	for table, rev := range tables {
		if _, held := s.held[table]; !held {
			dropped[table] = rev
		}
	}
	rev, err := s.writer.free(ctx, dropped)
	s.wrote = max(s.wrote, rev)
	if err == nil && len(dropped) > 0 {
		s.log.Info().Int("tables", len(dropped)).Msg("gave up tables")
	}
	return err
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
func (s *session) count() { s.owned.Store(int64(len(s.kept()))) }

// isMine reports whether a key is under our lease.
func (s *session) isMine(lease clientv3.LeaseID) bool { return lease == s.lease.id }
