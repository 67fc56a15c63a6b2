package store

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
)

// relayed reads rows of one database's ledger of outboxes that name a task, from one key on. Parameters: outbox, outbox, id,
// outbox, id, created of that key. Primary key.
var relayed = prepare(`
SELECT /* tocsin audit relayed */
    outbox,
    id,
    CAST(created AS CHAR),
    job_id,
    gmt_create,
    TIMESTAMPDIFF(MICROSECOND, gmt_create, UTC_TIMESTAMP(6))
FROM {database}.relayed FORCE INDEX (PRIMARY)
WHERE (outbox > ?
    OR (outbox = ? AND id > ?)
    OR (outbox = ? AND id = ? AND created > CAST(? AS DATETIME(6))))
  AND job_id > 0
ORDER BY outbox, id, created
LIMIT {limit}`)

// noted finds which rows of an outbox stand in one database's ledger. Parameter: outbox. Primary key.
var noted = prepare(`
SELECT /* tocsin audit noted */
    id,
    CAST(created AS CHAR)
FROM {database}.relayed FORCE INDEX (PRIMARY)
WHERE outbox = ?
  AND id IN ({ids})`)

// RelayedKey names a row of the ledger. The zero key is before all.
type RelayedKey struct {
	Outbox  string // its identity
	ID      uint64
	Created string // as the server writes it, six digits of the second
}

// Relayed is a row of the ledger: JobID was added by that row of an outbox.
type Relayed struct {
	RelayedKey
	JobID tocsin.JobID
	Moved time.Time     // by the server's clock
	Age   time.Duration // since then
}

// Relayed reads the ledger of one database behind a key, in order, at most limit rows.
func (s *Store) Relayed(ctx context.Context, database int, after RelayedKey, limit int) ([]Relayed, error) {
	if after.Created == "" {
		after.Created = "0001-01-01"
	}
	all, err := inDatabase(ctx, s, database, question[Relayed]{
		statement: relayed, in: slots{"limit": limit},
		scan: into(func(r *Relayed) []any {
			return []any{&r.Outbox, &r.ID, &r.Created, &r.JobID, &r.Moved, (*micros)(&r.Age)}
		}),
		args: []any{after.Outbox, after.Outbox, after.ID, after.Outbox, after.ID, after.Created},
	})
	return all, s.wrapTable(err, "read the ledger", database, "relayed")
}

// Noted returns which rows of an outbox stand in the ledger of one database. Keys are of one outbox.
func (s *Store) Noted(ctx context.Context, database int, keys []RelayedKey) (map[RelayedKey]bool, error) {
	there := map[RelayedKey]bool{}
	for some := range slices.Chunk(keys, maxIDs) {
		ids := make([]uint64, len(some))
		for i, key := range some {
			ids[i] = key.ID
		}
		found, err := inDatabase(ctx, s, database, question[RelayedKey]{
			statement: noted, in: slots{"ids": ids}, args: []any{some[0].Outbox},
			scan: into(func(key *RelayedKey) []any { return []any{&key.ID, &key.Created} }),
		})
		if err != nil {
			return nil, s.wrapTable(err, "read the ledger", database, "relayed")
		}
		for _, key := range found {
			key.Outbox = some[0].Outbox
			there[key] = true
		}
	}
	return there, nil
}

// ledgers counts the rows in the ledger of a database by outbox, with the notes of its relays, whose outbox is its identity and a
// word more. Primary key, all of it.
var ledgers = prepare(`(SELECT /* tocsin ledgers */
    SUBSTRING_INDEX(outbox, ' ', 1) AS identity,
    COUNT(*),
    MAX(gmt_create),
    TIMESTAMPDIFF(SECOND, MAX(gmt_create), UTC_TIMESTAMP(3))
FROM {database}.relayed FORCE INDEX (PRIMARY)
GROUP BY identity)`)

// forgetOutbox deletes rows of an outbox from the ledger of a database, with the notes. Parameters: identity, twice; limit.
// Primary key.
var forgetOutbox = prepare(`DELETE /* tocsin forget outbox */ FROM {database}.relayed
WHERE outbox IN (?, CONCAT(?, ' settled'))
ORDER BY outbox, id, created
LIMIT ?`)

// Ledger is what stands in ledgers of one outbox.
type Ledger struct {
	Identity string        `json:"identity"`
	Rows     int           `json:"rows"`
	Last     time.Time     `json:"last"` // when the newest was written
	Age      time.Duration `json:"-"`    // since then
}

// Ledgers counts the rows in the ledgers of one server by outbox, for each database. Databases that can't be read are named in the error.
func (s *Store) Ledgers(ctx context.Context, server int) ([]Ledger, error) {
	sv := s.servers[server]
	all, err := everyDatabase(ctx, s, sv, question[Ledger]{
		statement: ledgers,
		scan: func(rows *sql.Rows) (l Ledger, err error) {
			err = rows.Scan(&l.Identity, &l.Rows, &l.Last, &l.Age)
			l.Age *= time.Second
			return l, err
		},
	})
	return all, errors.Join(err, sv.refused().missing())
}

// ForgetOutbox deletes the rows of an outbox from the ledgers of one server, and returns how many. It deletes none while one of the
// databases must not be used.
func (s *Store) ForgetOutbox(ctx context.Context, server int, identity string) (forgotten int, err error) {
	sv := s.servers[server]
	refused := sv.refused()
	if err := refused.missing(); err != nil {
		return 0, err
	}
	for _, database := range refused.without(sv.Databases) {
		for n := maxIDs; n == maxIDs; forgotten += n {
			if n, err = s.change(ctx, database, forgetOutbox, s.ofDatabase(database, nil), identity, identity, maxIDs); err != nil {
				return forgotten, s.wrapTable(err, "forget an outbox", database, "relayed")
			}
		}
	}
	return forgotten, nil
}
