package relay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/outboxrow"
)

// moody moves rows into memory, and meets all that can happen at random. Its ledger is that of Move.
type moody struct {
	tasks
	mu     sync.Mutex
	rand   *rand.Rand
	kind   bool                       // from now on, all rows are moved
	ledger map[outboxrow.Key]bool     // what was moved
	moved  map[uint64][]outboxrow.Key // by biz_id, in this order
	fates  map[outboxrow.Fate]int
}

// Move keeps the order of the rows, and moves none behind one of the same biz_id that is refused, as Client.Move does.
func (m *moody) Move(_ context.Context, _ string, rows []outboxrow.Row) []outboxrow.Result {
	time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond) // rows queue up meanwhile
	m.mu.Lock()
	defer m.mu.Unlock()
	results := make([]outboxrow.Result, len(rows))
	if !m.kind && m.rand.IntN(10) == 0 { // the database is away
		for i := range results {
			results[i] = outboxrow.Result{Fate: outboxrow.Failed, Err: mysql.ErrInvalidConn}
		}
		return results
	}
	held := map[uint64]bool{}
	for i, row := range rows {
		results[i] = m.move(row, held)
		m.fates[results[i].Fate]++
	}
	return results
}

func (m *moody) move(row outboxrow.Row, held map[uint64]bool) outboxrow.Result {
	fate := outboxrow.Moved
	if n := m.rand.IntN(40); !m.kind && n < 5 {
		fate = outboxrow.Fate(n)
	}
	switch {
	case m.ledger[row.Key]:
		return outboxrow.Result{}
	case held[row.BizID]:
		fate = outboxrow.Failed
	case fate == outboxrow.Moved:
		m.ledger[row.Key] = true
		m.moved[row.BizID] = append(m.moved[row.BizID], row.Key)
		return outboxrow.Result{}
	}
	held[row.BizID] = true
	return outboxrow.Result{Fate: fate, Err: errors.New("not now")}
}

// Whatever happens to rows, and however transactions end, each row is moved once, and those of one biz_id in the order of
// their ids.
func TestOrderWhateverHappens(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	seed := rand.Uint64()
	m := &moody{
		tasks: s.client, rand: rand.New(rand.NewPCG(seed, 1)), ledger: map[outboxrow.Key]bool{}, moved: map[uint64][]outboxrow.Key{},
		fates: map[outboxrow.Fate]int{},
	}
	t.Logf("seed %d", seed)
	for range 2 { // both active
		cfg := s.config()
		cfg.Whole, cfg.gapAge = 50*time.Millisecond, 100*time.Millisecond
		r, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		l := &line{Relay: r, outbox: s.outbox(), tasks: m, gauges: r.metrics.of("shop")}
		s.run(func(ctx context.Context) {
			for ctx.Err() == nil {
				session, err := l.outbox.Session(ctx)
				if err != nil {
					continue
				}
				turn, end := context.WithTimeout(ctx, 300*time.Millisecond) // as if it crashed
				_ = newTurn(l, session).run(turn)
				end()
				session.Close()
			}
		})
	}
	written := m.write(s)
	m.mu.Lock()
	m.kind = true
	m.mu.Unlock()
	operator := s.outbox()
	s.await("the outbox to be empty", func() bool {
		_, err := operator.Retry(t.Context(), nil, true)
		return err == nil && s.number("SELECT COUNT(*) FROM {outbox}") == 0
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	for bizID, n := range written {
		moved := m.moved[bizID]
		if len(moved) != n || !slices.IsSortedFunc(moved, func(a, b outboxrow.Key) int { return int(a.ID) - int(b.ID) }) {
			t.Errorf("biz_id %d: %d rows were written, and %d moved", bizID, n, len(moved))
			for i := range moved[1:] {
				if moved[i+1].ID < moved[i].ID {
					t.Errorf("row %d was moved after %d", moved[i+1].ID, moved[i].ID)
				}
			}
		}
	}
	if len(m.fates) != 5 {
		t.Errorf("not all fates came up: %v", m.fates)
	}
}

// write lets several writers commit and roll back, each for biz_ids of its own, in transactions that stay open for a
// while. It returns how many rows of each biz_id are committed.
func (m *moody) write(s *shop) map[uint64]int {
	var mu sync.Mutex
	written := map[uint64]int{}
	var all sync.WaitGroup
	for writer := range uint64(6) {
		all.Go(func() {
			for n := range 120 {
				bizID := 10*writer + uint64(n%7) + 1
				tx, err := s.db.Begin()
				if err != nil {
					s.tb.Error(err)
					return
				}
				rows := rand.IntN(3) + 1
				for range rows {
					err := s.addTx(tx, bizID, fmt.Sprint(n), tocsin.In(day))
					if rand.IntN(2) == 0 && err == nil { // moved alone
						_, err = tx.Exec(s.fill("UPDATE {outbox} SET op = 'cancel' WHERE id = LAST_INSERT_ID()"))
					}
					if err != nil {
						s.tb.Error(err)
					}
				}
				time.Sleep(time.Duration(rand.IntN(8)) * time.Millisecond)
				if n%9 == 0 {
					_ = tx.Rollback()
					continue
				}
				if err := tx.Commit(); err != nil {
					s.tb.Error(err)
				}
				mu.Lock()
				written[bizID] += rows
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return written
}
