// Package relaytest has the tests of a relay that are the same for outboxes on all kinds of servers, Conform, and the shop that
// they and others use: a business database with an outbox, and the databases of its tasks.
package relaytest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/outbox"
)

// Moody moves rows into memory, and meets all that can happen at random. Its ledger is that of Move.
type Moody struct {
	*client.Client // for the notes of what is settled

	mu     sync.Mutex
	rand   *rand.Rand
	whole  bool                    // all rows are written
	ledger map[outbox.Key]bool     // what was moved
	moved  map[uint64][]outbox.Key // by biz_id, in this order
	fates  map[outbox.Fate]int
}

// Upkeep does nothing.
func (m *Moody) Upkeep(context.Context, string, int, func(context.Context, []outbox.Key) (map[outbox.Key]bool, error)) error {
	return nil
}

// Move keeps the order of the rows, and moves none behind one of the same biz_id that is refused, as that of a client does.
func (m *Moody) Move(ctx context.Context, _ string, rows []outbox.Row) []outbox.Result {
	_ = loop.Wait(ctx, time.Duration(rand.IntN(20))*time.Millisecond) // rows queue up meanwhile
	m.mu.Lock()
	defer m.mu.Unlock()
	results := make([]outbox.Result, len(rows))
	if !m.kind() && m.rand.IntN(10) == 0 { // the database is away
		for i := range results {
			results[i] = outbox.Result{Fate: outbox.Failed, Err: mysql.ErrInvalidConn}
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

// kind reports whether all rows are moved from now on: all is written, and each fate has come up.
func (m *Moody) kind() bool { return m.whole && len(m.fates) == 5 }

// life is how long a relay lives: once all is written long enough to move rows on a busy machine, too.
func (m *Moody) life() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.whole {
		return 5 * time.Second
	}
	return 300 * time.Millisecond
}

func (m *Moody) move(row outbox.Row, held map[uint64]bool) outbox.Result {
	fate := outbox.Moved
	if n := m.rand.IntN(40); !m.kind() && n < 5 {
		fate = outbox.Fate(n)
	}
	switch {
	case m.ledger[row.Key]:
		return outbox.Result{}
	case held[row.BizID]:
		fate = outbox.Failed
	case fate == outbox.Moved:
		m.ledger[row.Key] = true
		m.moved[row.BizID] = append(m.moved[row.BizID], row.Key)
		return outbox.Result{}
	}
	held[row.BizID] = true
	return outbox.Result{Fate: fate, Err: errors.New("not now")}
}

// random lets two relays be active at once and crash again and again, while transactions commit and roll back and rows
// meet everything that can happen. Each row must be moved once, and those of one biz_id in the order of their ids.
func random(t *testing.T, on Site, s *Shop) {
	seed := rand.Uint64()
	m := &Moody{
		Client: client.MoverOf(s.Client), rand: rand.New(rand.NewPCG(seed, 1)), ledger: map[outbox.Key]bool{}, moved: map[uint64][]outbox.Key{},
		fates: map[outbox.Fate]int{},
	}
	t.Logf("seed %d", seed)
	by := Relaying{Whole: 50 * time.Millisecond, GapAge: 100 * time.Millisecond, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	for range 2 { // both active
		s.Run(func(ctx context.Context) {
			for ctx.Err() == nil {
				turn, end := context.WithTimeout(ctx, m.life()) // as if it crashed
				on.Turn(turn, s, by, m)
				end()
			}
		})
	}
	written := write(t, s)
	m.mu.Lock()
	m.whole = true
	m.mu.Unlock()
	operator := s.Outbox()
	s.Await("all rows to be moved", func() bool {
		if _, err := operator.Retry(t.Context(), nil, true); err != nil {
			t.Fatal(err)
		}
		return s.Number("SELECT COUNT(*) FROM {outbox}") == 0
	})
	m.check(t, written)
}

// check compares what was moved with what was written, by biz_id.
func (m *Moody) check(t *testing.T, written map[uint64]int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for bizID, n := range written {
		moved := m.moved[bizID]
		if len(moved) != n || !slices.IsSortedFunc(moved, func(a, b outbox.Key) int { return int(a.ID) - int(b.ID) }) {
			t.Errorf("biz_id %d: %d rows were written, and %d moved: %v", bizID, n, len(moved), moved)
		}
	}
	if len(m.fates) != 5 {
		t.Errorf("not all fates came up: %v", m.fates)
	}
}

// write lets several writers commit and roll back, each for biz_ids of its own, in transactions that stay open for a
// while. It returns how many rows of each biz_id are committed.
func write(t *testing.T, s *Shop) map[uint64]int {
	var mu sync.Mutex
	written := map[uint64]int{}
	var all sync.WaitGroup
	for writer := range uint64(6) {
		all.Go(func() {
			for n := range 120 {
				bizID := 10*writer + uint64(n%7) + 1
				rows, err := s.write(t.Context(), bizID, n%9 == 0)
				if err != nil {
					t.Error(err)
					return
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

// write returns how many rows a transaction has committed.
func (s *Shop) write(ctx context.Context, bizID uint64, rollback bool) (int, error) {
	tx, err := s.DB.Begin()
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // after the commit it does nothing
	rows := rand.IntN(3) + 1
	for n := range rows {
		if rand.IntN(2) == 0 { // moved alone
			_, err = s.Client.CancelTx(ctx, tx, CloseOrder.Of(bizID))
		} else {
			_, err = s.Client.AddTx(ctx, tx, CloseOrder.New(bizID, fmt.Sprint(n), tocsin.In(time.Hour)))
		}
		if err != nil {
			return 0, err
		}
	}
	_ = loop.Wait(ctx, time.Duration(rand.IntN(8))*time.Millisecond)
	if rollback {
		return 0, nil
	}
	return rows, tx.Commit()
}
