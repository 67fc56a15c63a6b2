package bench

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"
)

// Bounds of the raw reads.
const (
	readRows   = 2000
	readsAtMin = time.Second / 2
	readsAtMax = 5 * time.Second
)

// reads is the raw bound of lateness: single rows read by their keys at the rate
// of the run, for a part of its duration. It returns how long each took, sorted.
func (s *site) reads(ctx context.Context) ([]time.Duration, error) {
	tables := s.rows.next(readRows)
	for _, p := range s.packets(tables, packetRows) {
		if err := s.insert(ctx, p, at(far)); err != nil {
			return nil, err
		}
	}
	all := slices.Concat(tables...)
	span := min(max(s.opts.Duration/4, readsAtMin), readsAtMax)
	took := make([]time.Duration, int(span.Seconds()*s.opts.Rate)+1)
	err := paced(ctx, len(took), s.opts.Rate, func(ctx context.Context, i int) error {
		id := all[i%len(all)].id
		query := s.text(oneSQL, id.Table()) + strconv.FormatUint(uint64(id), 10)
		sent := time.Now()
		err := s.readOne(ctx, s.store.ServerOf(id.Table()), query)
		took[i] = time.Since(sent)
		return err
	})
	slices.Sort(took)
	return took, err
}

func (s *site) readOne(ctx context.Context, server int, query string) (err error) {
	rows, err := s.pools[server].DB.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	var r fullRow
	for rows.Next() {
		if err := r.scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
