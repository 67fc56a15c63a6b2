package bench

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin/internal/wait"
)

// Bounds of the raw reads.
const (
	readRows   = 2000
	readsAtMin = time.Second / 2
	readsAtMax = 5 * time.Second
)

// reads is the raw bound of lateness: single rows read by their keys at the rate
// of the run, for a part of its duration. It gives how long each took, sorted.
func (s *site) reads(ctx context.Context) ([]time.Duration, error) {
	tables := s.rows.next(readRows)
	for _, p := range s.packets(tables) {
		if err := s.insert(ctx, p, at(far)); err != nil {
			return nil, err
		}
	}
	var queries []packetQuery
	for table, rows := range tables {
		for _, r := range rows {
			queries = append(queries, packetQuery{s.store.ServerOf(table), s.text(oneSQL, table) + strconv.FormatUint(uint64(r.id), 10)})
		}
	}
	return s.readPaced(ctx, queries, min(max(s.opts.Duration/4, readsAtMin), readsAtMax))
}

// packetQuery is a query and the server it goes to.
type packetQuery struct {
	server int
	text   string
}

// readPaced sends the queries in turn, at the rate of the run, and times each
// from the moment at which it is sent.
func (s *site) readPaced(ctx context.Context, queries []packetQuery, span time.Duration) ([]time.Duration, error) {
	var mu sync.Mutex
	var took []time.Duration
	begin := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for w := range workers {
		g.Go(func() error {
			var mine []time.Duration
			defer func() { mu.Lock(); took = append(took, mine...); mu.Unlock() }()
			for i := w; ; i += workers {
				due := begin.Add(time.Duration(float64(i) / s.opts.Rate * float64(time.Second)))
				if due.Sub(begin) > span {
					return nil
				}
				if err := wait.Until(ctx, due); err != nil {
					return err
				}
				sent := time.Now()
				if err := s.readOne(ctx, queries[i%len(queries)]); err != nil {
					return err
				}
				mine = append(mine, time.Since(sent))
			}
		})
	}
	err := g.Wait()
	slices.Sort(took)
	return took, err
}

func (s *site) readOne(ctx context.Context, q packetQuery) (err error) {
	rows, err := s.pools[q.server].DB.QueryContext(ctx, q.text)
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
