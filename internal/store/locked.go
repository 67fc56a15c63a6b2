package store

import (
	"context"
	"database/sql"
	"slices"

	"github.com/tocsinhq/tocsin"
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

// Locked tells which of the rows other transactions have locked, without waiting for them. A row that is gone is not locked. A table that
// is locked as a whole is waited for for a second.
func (s *Store) Locked(ctx context.Context, server int, ids []tocsin.JobID) (Locks, error) {
	sv := s.servers[server]
	locks := Locks{Rows: make(map[tocsin.JobID]bool), Tables: make(map[int]error)}
	fail := func(part idsOf, err error) {
		locks.Tables[part.table] = s.wrap(err, "look for locks in", sv, part.table)
	}
	for chunk := range slices.Chunk(sortIDs(ids), maxIDs) {
		failed := func(id tocsin.JobID) bool { return locks.Tables[id.Table()] != nil }
		chunk = slices.DeleteFunc(chunk, failed) // to meet its lock again costs another second
		unlocked := make(map[tocsin.JobID]bool, len(chunk))
		err := apart(byTable(chunk), func(parts []idsOf) error {
			return s.readIDs(ctx, s.gated(sv), free, parts, func(rows *sql.Rows) error {
				var id tocsin.JobID
				err := rows.Scan(&id)
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
