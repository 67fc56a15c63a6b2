package store

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// free reads the ids of rows that no other transaction has locked.
var free = prepare(`
SELECT /* tocsin free */
    job_id
FROM {table} FORCE INDEX (PRIMARY)
WHERE job_id IN ({ids})
FOR UPDATE SKIP LOCKED`)

// Locks is what other transactions held a moment ago.
type Locks struct {
	Rows   map[tocsin.JobID]bool
	Tables map[int]error // that could not be read, as they are locked as a whole or have a fault of their own
}

// waitersAtOnce bounds the connections of a server that wait for tables that are locked as a whole, of all calls of Locked.
const waitersAtOnce = 3

// Locked tells which of the rows other transactions have locked, without waiting for them. A row that is gone is not locked. Tables that
// are locked as a whole are waited for for a second, a few of them at the same time.
func (s *Store) Locked(ctx context.Context, server int, ids []tocsin.JobID) (Locks, error) {
	sv := s.servers[server]
	locks := Locks{Rows: make(map[tocsin.JobID]bool), Tables: make(map[int]error)}
	fail := func(part idsOf, err error) {
		locks.Tables[part.table] = s.wrap(err, "look for locks in", sv, part.table)
	}
	for chunk := range slices.Chunk(sortIDs(ids), maxIDs) {
		failed := func(id tocsin.JobID) bool { return locks.Tables[id.Table()] != nil }
		chunk = slices.DeleteFunc(chunk, failed) // to meet its lock again costs another second
		var mu sync.Mutex
		unlocked := make(map[tocsin.JobID]bool, len(chunk))
		err := apartBy(sideBySide[idsOf](sv.waiters), byTable(chunk), func(parts []idsOf) error {
			return s.readIDs(ctx, s.gated(sv), free, parts, func(rows *sql.Rows) error {
				var id tocsin.JobID
				err := rows.Scan(&id)
				mu.Lock()
				defer mu.Unlock()
				unlocked[id] = true
				return err
			})
		}, fail)
		if err != nil {
			return locks, s.wrap(err, "look for locks", sv)
		}
		rest := slices.DeleteFunc(chunk, func(id tocsin.JobID) bool { return unlocked[id] || failed(id) })
		there := make(map[tocsin.JobID]found, len(rest))
		err = apart(byTable(rest), func(parts []idsOf) error { return s.findRows(ctx, s.gated(sv), parts, there) }, fail)
		if err != nil {
			return locks, s.wrap(err, "look for locks", sv)
		}
		for id := range there {
			locks.Rows[id] = true
		}
	}
	return locks, nil
}

// sideBySide is each for a do that may be called concurrently, since each call may wait for a lock, as far as slots are free. fail is
// not called concurrently.
func sideBySide[T any](slots chan struct{}) func(group []T, do func([]T) error, fail func(T, error)) error {
	return func(group []T, do func([]T) error, fail func(T, error)) error {
		var g errgroup.Group
		var mu sync.Mutex
		var ended atomic.Bool // by a fault of the server
		for i := range group {
			slots <- struct{}{}
			g.Go(func() error {
				defer func() { <-slots }()
				if ended.Load() {
					return nil
				}
				err := do(group[i : i+1])
				if !local(err) {
					ended.Store(err != nil)
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				fail(group[i], err)
				return nil
			})
		}
		return g.Wait()
	}
}

// around runs do on sorted rows of one server. If other transactions hold some of them, do runs again without these; if a table has a fault of
// its own, do runs on each table alone. fail is told of each table that has such rows or such a fault. do must leave nothing behind if it fails.
// The error is a fault of the server, which ends the work.
func (s *Store) around(ctx context.Context, server int, ids []tocsin.JobID, do func([]idsOf) error, fail func(table int, err error)) error {
	parts := byTable(ids)
	if len(parts) == 0 {
		return nil
	}
	err := do(parts)
	switch contended := mysql.ClassOf(err) == mysql.Contended; {
	case err == nil || !local(err):
		return err
	case !contended && len(parts) == 1:
		fail(parts[0].table, err)
		return nil
	case !contended:
		for _, part := range parts {
			if err := s.around(ctx, server, part.ids, do, fail); err != nil {
				return err
			}
		}
		return nil
	}
	locks, err := s.Locked(ctx, server, ids)
	if err != nil {
		return err
	}
	for table, err := range locks.Tables {
		fail(table, err)
	}
	for _, part := range byTable(sortIDs(slices.Collect(maps.Keys(locks.Rows)))) {
		fail(part.table, heldErr(part.ids))
	}
	rest := slices.DeleteFunc(slices.Clone(ids), func(id tocsin.JobID) bool { return locks.Rows[id] || locks.Tables[id.Table()] != nil })
	return apart(byTable(rest), do, func(part idsOf, err error) { fail(part.table, err) })
}

// heldErr is the error of rows that other transactions hold.
func heldErr(ids []tocsin.JobID) error {
	return fmt.Errorf("%d rows, job_id %s the first: %w", len(ids), ids[0], mysql.ErrLocked)
}
