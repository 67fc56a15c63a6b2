package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
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

// existing reads which job_ids of one table have a row, whatever its status.
var existing = prepare(`
(SELECT /* tocsin existing */
    job_id
FROM {table} FORCE INDEX (PRIMARY)
WHERE job_id IN ({ids}))`)

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
func (s *Store) Relayed(ctx context.Context, server, database int, after RelayedKey, limit int) ([]Relayed, error) {
	sv := s.servers[server]
	text := relayed.render(nil, func(b []byte, slot string) []byte {
		if slot == "limit" {
			return appendInt(b, limit)
		}
		return s.fillDatabase(b, slot, database)
	})
	if after.Created == "" {
		after.Created = "0001-01-01"
	}
	var all []Relayed
	err := s.gated(sv)(ctx, []int{database}, relayed.name, text, func(_ int, found *sql.Rows) error {
		var r Relayed
		var age int64
		err := found.Scan(&r.Outbox, &r.ID, &r.Created, &r.JobID, &r.Moved, &age)
		r.Age = time.Duration(age) * time.Microsecond
		all = append(all, r)
		return err
	}, after.Outbox, after.Outbox, after.ID, after.Outbox, after.ID, after.Created)
	return all, s.ofLedger(err, sv, database)
}

// Noted returns which rows of an outbox stand in the ledger of one database. Keys are of one outbox.
func (s *Store) Noted(ctx context.Context, server, database int, keys []RelayedKey) (map[RelayedKey]bool, error) {
	sv, there := s.servers[server], map[RelayedKey]bool{}
	for some := range slices.Chunk(keys, maxIDs) {
		ids := make([]string, len(some))
		for i, key := range some {
			ids[i] = strconv.FormatUint(key.ID, 10)
		}
		text := noted.render(nil, func(b []byte, slot string) []byte {
			if slot == "ids" {
				return append(b, strings.Join(ids, ",")...)
			}
			return s.fillDatabase(b, slot, database)
		})
		err := s.gated(sv)(ctx, []int{database}, noted.name, text, func(_ int, found *sql.Rows) error {
			key := RelayedKey{Outbox: some[0].Outbox}
			err := found.Scan(&key.ID, &key.Created)
			there[key] = true
			return err
		}, some[0].Outbox)
		if err != nil {
			return nil, s.ofLedger(err, sv, database)
		}
	}
	return there, nil
}

func (s *Store) ofLedger(err error, sv *server, database int) error {
	if err == nil {
		return nil
	}
	return s.wrap(fmt.Errorf("%s.relayed: %w", s.layout.Database(database), err), "read the ledger", sv)
}

// Absent returns those of the job_ids, all of one server's tables, that have no row, in no order. A table that does not
// exist has none. Of tables that can't be read it says nothing; they are named in failed. The error is that of the server
// as a whole.
func (s *Store) Absent(ctx context.Context, server int, ids []tocsin.JobID) (absent []tocsin.JobID, failed map[int]error, err error) {
	sv := s.servers[server]
	failed = make(map[int]error)
	known := slices.DeleteFunc(sortIDs(ids), func(id tocsin.JobID) bool {
		odd := id.Table() >= s.layout.Total()
		if odd {
			absent = append(absent, id)
		}
		return odd
	})
	for chunk := range slices.Chunk(known, maxIDs) {
		for group := range slices.Chunk(byTable(chunk), maxTables) {
			err := apart(group, func(parts []idsOf) error {
				lacking, err := s.absentGroup(ctx, sv, parts)
				absent = append(absent, lacking...)
				return err
			}, func(part idsOf, err error) {
				failed[part.table] = s.wrap(err, "look for tasks in", sv, part.table)
			})
			if err != nil {
				return absent, failed, s.wrap(err, "look for tasks", sv)
			}
		}
	}
	return absent, failed, nil
}

// absentGroup answers for all the tables, or returns an error.
func (s *Store) absentGroup(ctx context.Context, sv *server, parts []idsOf) ([]tocsin.JobID, error) {
	var text []byte
	var absent []tocsin.JobID
	for i, part := range parts {
		if i > 0 {
			text = append(text, unionAll...)
		}
		text = existing.render(text, s.fill(part))
		absent = append(absent, part.ids...)
	}
	has := map[tocsin.JobID]bool{}
	err := s.readTables(ctx, sv, tablesOf(parts), existing.name, text, func(_ int, found *sql.Rows) error {
		var id tocsin.JobID
		err := found.Scan(&id)
		has[id] = true
		return err
	})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(absent, func(id tocsin.JobID) bool { return has[id] }), nil
}

// ledgers counts the rows in the ledger of a database by outbox, with the notes of its relays, whose outbox is its identity and a
// word more. Primary key, all of it.
const ledgers = `SELECT /* tocsin ledgers */
    SUBSTRING_INDEX(outbox, ' ', 1) AS identity,
    COUNT(*),
    MAX(gmt_create),
    TIMESTAMPDIFF(SECOND, MAX(gmt_create), UTC_TIMESTAMP(3))
FROM {database}.relayed FORCE INDEX (PRIMARY)
GROUP BY identity`

// forgetOutbox deletes rows of an outbox from the ledger of a database, with the notes. Parameters: identity, twice; limit.
// Primary key.
const forgetOutbox = `DELETE /* tocsin forget outbox */ FROM {database}.relayed
WHERE outbox IN (?, CONCAT(?, ' settled'))
ORDER BY outbox, id, created
LIMIT ?`

// Ledger is what stands in ledgers of one outbox.
type Ledger struct {
	Identity string        `json:"identity"`
	Rows     int           `json:"rows"`
	Last     time.Time     `json:"last"` // when the newest was written
	Age      time.Duration `json:"-"`    // since then
}

// Ledgers counts the rows in the ledgers of one server by outbox, for each database.
func (s *Store) Ledgers(ctx context.Context, server int) ([]Ledger, error) {
	return Gather(ctx, s, server, s.Databases(server, wideSchema), "ledgers", ledgers, func(rows *sql.Rows) (l Ledger, err error) {
		var age int64
		err = rows.Scan(&l.Identity, &l.Rows, &l.Last, &age)
		l.Age = time.Duration(age) * time.Second
		return l, err
	})
}

// ForgetOutbox deletes the rows of an outbox from the ledgers of one server, and returns how many.
func (s *Store) ForgetOutbox(ctx context.Context, server int, identity string) (forgotten int, err error) {
	for _, database := range s.Databases(server, wideSchema) {
		query := strings.Replace(forgetOutbox, "{database}", s.layout.Database(database), 1)
		for n := int64(maxIDs); n == maxIDs; forgotten += int(n) {
			err := s.Transact(ctx, database, func(conn *sql.Conn) error {
				res, err := conn.ExecContext(ctx, query, identity, identity, maxIDs)
				if err == nil {
					n, err = res.RowsAffected()
				}
				return err
			})
			if err != nil {
				return forgotten, s.ofLedger(err, s.servers[server], database)
			}
		}
	}
	return forgotten, nil
}
