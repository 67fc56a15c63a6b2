package assign

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// part is how many tables are given up at a time. A table is without anybody who looks at it from the drop of its part
// until its next owner has started: that must not grow with the number of tables that move.
const part = 200

// portion gives the tables that are given up now; the others stay in use until those have been dropped and their keys
// deleted. What was begun before goes on. Those with something in delivery hold up no others. All servers have their share
// of a part, so that none has to show its next owners all of it at once.
func (s *session) portion(away map[int]int64) map[int]int64 {
	room, some := part-s.hands.quick, make(map[int]int64)
	for _, table := range s.inTurn(sortedKeys(away)) {
		if _, doomed := s.doomed[table]; doomed {
			some[table] = away[table]
		} else if room > 0 && s.hands.free(hand{s.cfg.ServerOf(table), true}) {
			room--
			some[table] = away[table]
		}
	}
	return some
}

// inTurn orders tables so that each server's come in turn.
func (s *session) inTurn(tables []int) []int {
	turn, seen := make(map[int]int, len(tables)), make(map[int]int)
	for _, table := range tables {
		server := s.cfg.ServerOf(table)
		turn[table] = seen[server]
		seen[server]++
	}
	slices.SortStableFunc(tables, func(a, b int) int { return cmp.Compare(turn[a], turn[b]) })
	return tables
}

// giveBack asks the holder to drop the tables that it has, and deletes the keys of the others at once.
func (s *session) giveBack(ctx context.Context, tables map[int]int64) error {
	var held []int
	for table, rev := range tables {
		s.doomed[table] = rev
		if _, ok := s.held[table]; ok {
			held = append(held, table)
		}
	}
	s.letGo(held)
	return s.free(ctx, tables)
}

// letGo has the holder drop tables, but for those that it is asked about already, and those that were stuck just now.
func (s *session) letGo(tables []int) {
	now, by := time.Now(), make(map[int]map[int]int64)
	for _, table := range tables {
		if s.hands.moving[table] {
			continue
		}
		if until := s.stuck[table]; now.Before(until) {
			s.wake(until)
			continue
		}
		put(by, s.cfg.ServerOf(table), table, s.held[table])
	}
	for server, some := range by {
		if s.hands.free(hand{server, true}) {
			s.hands.drop(server, some)
		}
	}
}

// start gives the holder tables whose keys are ours. Those that it can't take are given back.
func (s *session) start(v view, tables map[int]int64) {
	by := make(map[int]map[int]int64)
	for table, rev := range tables {
		put(by, s.cfg.ServerOf(table), table, rev)
	}
	for server, some := range by {
		if !s.hands.free(hand{server, false}) {
			continue
		}
		for table, rev := range some {
			delete(s.loose, table)
			s.held[table] = rev // from now on: nobody knows how far it came where it fails
		}
		s.hands.take(server, some, v.ownerRevisions(some), takeTimeout)
	}
	s.count()
}

// put adds to a map of maps.
func put(by map[int]map[int]int64, key, table int, rev int64) {
	if by[key] == nil {
		by[key] = make(map[int]int64)
	}
	by[key][table] = rev
}

// hear books what the holder has answered, and deletes the keys of what it has dropped. stuck tells of tables that it could
// not drop, failed of keys that could not be deleted.
func (s *session) hear(ctx context.Context) (stuck, failed error) {
	for _, a := range s.hands.heard() {
		if !a.drops {
			failed = errors.Join(failed, s.took(ctx, a))
			continue
		}
		stuck = errors.Join(stuck, s.dropped(a.tables, a.err))
		failed = errors.Join(failed, s.free(ctx, s.condemned(a.tables)))
	}
	if stuck != nil {
		s.limit.Of(s.log, "stuck").Warn("could not give up some tables, trying again", "error", stuck)
	}
	return stuck, failed
}

// condemned gives those of the tables whose keys are to be deleted, and their revisions.
func (s *session) condemned(tables map[int]int64) map[int]int64 {
	doomed := make(map[int]int64, len(tables))
	for table := range tables {
		if rev, is := s.doomed[table]; is {
			doomed[table] = rev
		}
	}
	return doomed
}

// took books what the holder has taken, and gives back the rest.
func (s *session) took(ctx context.Context, a answered) error {
	failed := refusedBy(a.err, a.tables)
	for table := range a.tables {
		if _, no := failed[table]; !no {
			delete(s.refused, table)
		}
	}
	s.metrics.taken.Add(float64(len(a.tables) - len(failed)))
	s.moves.add(len(a.tables)-len(failed), 0)
	if a.err == nil {
		return nil
	}
	return s.refuse(ctx, a.server, failed, a.err)
}

// refuse gives back a server's tables that the holder could not take, and schedules another try.
func (s *session) refuse(ctx context.Context, server int, failed map[int]int64, reason error) error {
	s.limit.Of(s.log, fmt.Sprint("take ", server)).Warn("could not start on tables, giving them back for now",
		"error", reason, "tables", len(failed))
	s.metrics.takeFailures.Add(float64(len(failed)))
	now := time.Now()
	for table := range failed {
		s.refused[table] = s.refused[table].again(now)
		s.wake(s.refused[table].until)
	}
	suspected := s.suspect(ctx, failed, reason) // before giveBack deletes the keys
	if err := s.giveBack(ctx, failed); err != nil {
		return fmt.Errorf("give back what could not be started: %w", err)
	}
	return suspected
}

// Refuse says that the holder can't go on with tables that it has taken: they are given back as after a Take that refused them.
// Each call replaces what no round has heard yet, so the holder repeats it. It may be called at any time.
func (a *Assign) Refuse(r *Refused) {
	a.unfit.Store(r)
	a.look()
}

// hearRefused gives back tables that the holder has refused after it had taken them.
func (s *session) hearRefused(ctx context.Context) error {
	r := s.unfit.Swap(nil)
	if r == nil {
		return nil
	}
	failed := refusedBy(r, s.held)
	maps.DeleteFunc(failed, func(table int, _ int64) bool { return s.hands.moving[table] })
	if len(failed) == 0 {
		return nil
	}
	return s.refuse(ctx, s.cfg.ServerOf(r.Tables[0]), failed, r)
}

// dropped books what the holder has dropped. Those tables that it could not stay held, and are tried again a little later;
// the error says why.
func (s *session) dropped(tables map[int]int64, err error) error {
	stuck := refusedBy(err, tables)
	maps.DeleteFunc(stuck, func(table int, _ int64) bool { return s.apart.missed(s.id, table) })
	if len(stuck) == 0 && err != nil {
		s.limit.Of(s.log, "apart").Warn("giving up tables that other nodes reach: what is not settled here is delivered again there",
			"error", err)
		err = nil
	}
	again := time.Now().Add(failurePause)
	for table := range tables {
		if _, still := stuck[table]; still {
			s.stuck[table] = again
			s.wake(again)
			continue
		}
		delete(s.held, table)
		delete(s.loose, table)
		delete(s.stuck, table)
		s.metrics.givenUp.Inc()
	}
	s.count()
	if err != nil {
		return fmt.Errorf("drop %d tables: %w", len(tables), err)
	}
	return nil
}

// drop has the holder give up tables, and waits for it. Those that it could not stay held; the error says why.
func (s *session) drop(ctx context.Context, tables []int, within time.Duration) error {
	if len(tables) == 0 {
		return nil
	}
	asked := make(map[int]int64, len(tables))
	for _, table := range tables {
		asked[table] = s.held[table]
	}
	return s.dropped(asked, dropWithin(ctx, s.holder, asked, within))
}

// free deletes the keys of those of the tables that the holder has not.
func (s *session) free(ctx context.Context, tables map[int]int64) error {
	dropped := make(map[int]int64, len(tables))
	for table, rev := range tables {
		if _, held := s.held[table]; !held {
			dropped[table] = rev
		}
	}
	if len(dropped) == 0 {
		return nil
	}
	rev, err := s.writer.free(ctx, dropped)
	s.wrote = max(s.wrote, rev)
	if err == nil {
		maps.DeleteFunc(dropped, func(table int, _ int64) bool { _, never := s.refused[table]; return never })
		s.moves.add(0, len(dropped))
	}
	return err
}

// refusedBy gives those of the tables that the error of a Take or Drop concerns.
func refusedBy(err error, tables map[int]int64) map[int]int64 {
	var some *Refused
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &some):
		return maps.Clone(tables)
	}
	failed := make(map[int]int64)
	for _, table := range some.Tables {
		if rev, ok := tables[table]; ok {
			failed[table] = rev
		}
	}
	return failed
}
