package assign

import (
	"context"
	"errors"
	"slices"
	"time"
)

// part is how many tables are given up at a time. A table is without anybody who looks at it from the drop of its part
// until its next owner has started: that must not grow with the number of tables that move.
const part = 200

// portion gives the tables that are given up now; the others stay in use until the next round. Those that were dropped
// before, or are stuck, come last. Where some are stuck there are no more parts: each of them would wait for its own.
func (s *session) portion(away map[int]int64) map[int]int64 {
	var news []int
	for table := range away {
		if _, doomed := s.doomed[table]; !doomed {
			news = append(news, table)
		}
	}
	if len(news) <= part && len(news) == len(away) || len(news) == 0 || s.stuck {
		return away
	}
	slices.Sort(news)
	s.wake(time.Now())
	return pick(away, news[:min(part, len(news))])
}

func pick(all map[int]int64, tables []int) map[int]int64 {
	some := make(map[int]int64, len(tables))
	for _, table := range tables {
		some[table] = all[table]
	}
	return some
}

// giveBack drops tables and deletes their keys. What can't be dropped yet holds up no other.
func (s *session) giveBack(ctx context.Context, tables map[int]int64) error {
	if len(tables) == 0 {
		return nil
	}
	var held []int
	for table, rev := range tables {
		s.doomed[table] = rev
		if _, ok := s.held[table]; ok {
			held = append(held, table)
		}
	}
	dropped := s.drop(ctx, held)
	s.stuck = dropped != nil
	return errors.Join(dropped, s.free(ctx, tables))
}

// leaveParts gives up all tables but the last part, whose keys go with the lease. It ends early where something is stuck.
func (s *session) leaveParts(ctx context.Context) {
	for tables := sortedKeys(s.held); len(tables) > part; tables = tables[part:] {
		if err := s.giveBack(ctx, pick(s.held, tables[:part])); err != nil {
			s.log.Warn().Err(err).Msg("could not give up some tables, giving up all others at once")
			return
		}
	}
}
