package store

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
)

// expired finds claims of one table that ran out at least 5 s ago: their
// claimers have had the time to settle late. From idx_due alone.
var expired = prepare(`
(SELECT /* tocsin expired */
    {table_no},
    job_id
FROM {table} FORCE INDEX (idx_due)
WHERE status = 1
  AND action_time <= UTC_TIMESTAMP(3) - INTERVAL 5 SECOND
ORDER BY action_time
LIMIT {limit})`)

// nextRunOut finds the claim of one table that runs out first, and how many microseconds its claimer still has, of which it may
// use 5 s to settle late. From idx_due alone.
var nextRunOut = prepare(`
(SELECT /* tocsin next_run_out */
    {table_no},
    TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(3), action_time) + 5000000
FROM {table} FORCE INDEX (idx_due)
WHERE status = 1
ORDER BY action_time
LIMIT 1)`)

// recoverLease, recoverBury and recoverBack end run-out claims of one table; sent in this
// order, each row meets one of them.
var (
	recoverBury = prepare(`
UPDATE /* tocsin recover */ {table} FORCE INDEX (PRIMARY)
SET status = 4,
    crashes = crashes + 1,
    last_error = CONCAT('crashed ', crashes, ' times, last on ', claimed_by),
    action_time = UTC_TIMESTAMP(3),
    gmt_modified = UTC_TIMESTAMP(3)
WHERE job_id IN ({ids})
  AND status = 1
  AND crashes >= {crashes}
  AND action_time <= UTC_TIMESTAMP(3) - INTERVAL 5 SECOND;`)
	recoverBack = prepare(`
UPDATE /* tocsin recover */ {table} FORCE INDEX (PRIMARY)
SET status = 0,
    crashes = crashes + 1,
    claimed_by = '',
    action_time = UTC_TIMESTAMP(3),
    gmt_modified = UTC_TIMESTAMP(3)
WHERE job_id IN ({ids})
  AND status = 1
  AND crashes < {crashes}
  AND action_time <= UTC_TIMESTAMP(3) - INTERVAL 5 SECOND;`)
)

// RecoverAfter is how long after its end a claim can be recovered: its claimer may settle late until then. The statements above have it too.
const RecoverAfter = 5 * time.Second

// MaxCrashes is how many claims of a task may run out before it is buried: it
// seems to kill its process.
const MaxCrashes = 5

// Recover ends claims of the tables whose deadline passed 5 s ago or more, at
// most limit of them (500 at most): the task is pending again, due at once, or dead where
// this was its fifth. The end of a lease is a failed attempt instead. Where it did limit of them, there may be more. A table
// that cannot be read or written, or has rows that another transaction holds, is named
// in the error; all other rows are recovered. The counts stand beside the error.
func (s *Store) Recover(ctx context.Context, server int, tables []int, limit int) (Recovered, error) {
	sv := s.servers[server]
	limit = min(limit, maxIDs)
	var total Recovered
	var errs []error
	fail := func(table int, err error) { errs = append(errs, s.wrap(err, "recover", sv, table)) }
	for group := range slices.Chunk(s.allowed(sv, tables, fail), maxTables) {
		err := apart(group, func(tables []int) error { return s.recoverIn(ctx, server, tables, limit, &total, fail) }, fail)
		if err != nil {
			return total, errors.Join(append(errs, s.wrap(err, "recover", sv, group...))...)
		}
	}
	return total, Join(errs...)
}

// NextRunOut returns in how long the first claim of the tables can be recovered, 0 if it can be now; some is false if there is no
// claim. Tables that can't be read are named in the error, beside the result of the others.
func (s *Store) NextRunOut(ctx context.Context, server int, tables []int) (in time.Duration, some bool, err error) {
	left, failed, err := across(ctx, s, s.servers[server], tables, question[time.Duration]{
		verb: "look for claims in", statement: nextRunOut,
		scan: into(func(left *time.Duration) []any { return []any{new(int), (*micros)(left)} }),
	})
	if len(left) > 0 {
		in, some = max(slices.Min(left), 0), true
	}
	return in, some, joined(failed, err)
}

// recoverIn recovers claims of some tables, until total has limit of them. Tables that fail hide no claims of the others, however many they have.
func (s *Store) recoverIn(ctx context.Context, server int, tables []int, limit int, total *Recovered, fail func(int, error)) error {
	sv := s.servers[server]
	for {
		most, failed := limit-total.All(), make(map[int]bool)
		ids, err := s.findExpired(ctx, sv, tables, most)
		if err != nil {
			return err
		}
		err = s.around(ctx, server, ids, func(parts []idsOf) error { return s.recoverRows(ctx, sv, parts, total) }, func(table int, err error) {
			failed[table] = true
			fail(table, err)
		})
		if err != nil || len(ids) < most || len(failed) == 0 {
			return err
		}
		tables = slices.DeleteFunc(slices.Clone(tables), func(table int) bool { return failed[table] })
	}
}

// recoverRows adds what one transaction recovers, or nothing if it fails.
func (s *Store) recoverRows(ctx context.Context, sv *server, parts []idsOf, total *Recovered) error {
	var text []byte
	for _, part := range parts {
		fill := s.ofTable(part.table, slots{"ids": part.ids, "crashes": MaxCrashes - 1})
		text = recoverBack.render(recoverBury.render(recoverLease.render(text, fill), fill), fill)
	}
	var counts []int64
	err := s.transact(ctx, sv, tablesOf(parts), func(conn *sql.Conn) (err error) {
		counts, err = s.write(ctx, conn, recoverBack.name, text)
		return err
	})
	if err != nil {
		return err
	}
	for i, n := range counts {
		switch i % 3 {
		case 0:
			total.Leases += int(n)
		case 1:
			total.Buried += int(n)
		default:
			total.Back += int(n)
		}
	}
	return nil
}

// findExpired gives the ids of run-out claims, by table. It locks nothing: the
// update checks again.
func (s *Store) findExpired(ctx context.Context, sv *server, tables []int, limit int) ([]tocsin.JobID, error) {
	type claim struct {
		table int
		id    tocsin.JobID
	}
	if limit <= 0 || len(tables) == 0 {
		return nil, nil
	}
	ask := question[claim]{
		statement: expired, in: slots{"limit": limit}, scan: into(func(c *claim) []any { return []any{&c.table, &c.id} }),
	}
	claims, err := ask.ask(ctx, s.gated(sv), s.databasesIn(tables), tables, s.ofTable)
	var ids []tocsin.JobID
	for _, c := range claims {
		if c.id.Table() == c.table && len(ids) < limit { // a misplaced row is Peek's to report
			ids = append(ids, c.id)
		}
	}
	return sortIDs(ids), err
}

// Prolonged is a claim that is to last longer.
type Prolonged struct {
	JobID   tocsin.JobID
	Version uint32 // as claimed
	By      string // the claimer
	Until   int64  // the new deadline by the server's clock, Unix ms
}

// prolong moves the deadline of a claim that stands. Primary key. Its argument is the claimer. Zero rows: the claim ran out, or the task
// was cancelled.
var prolong = prepare(`
UPDATE /* tocsin prolong */ {table} FORCE INDEX (PRIMARY)
SET action_time = {until},
    gmt_modified = UTC_TIMESTAMP(3)
WHERE job_id = {job_id}
  AND version = {version}
  AND status = 1
  AND action_time < {until}
  AND claimed_by = ?;`)

// Prolong has claims of one server last longer. What is no longer claimed is left as it is: its outcome will say so. Tables that can't be
// written, or have rows that another transaction holds, are named in the error; all other claims last longer.
func (s *Store) Prolong(ctx context.Context, server int, claims []Prolonged) error {
	sv, byID := s.servers[server], make(map[tocsin.JobID]Prolonged, len(claims))
	for _, c := range claims {
		byID[c.JobID] = c
	}
	var errs []error
	err := s.around(ctx, server, sortIDs(slices.Collect(maps.Keys(byID))), func(parts []idsOf) error {
		var text []byte
		var args []any
		for _, part := range parts {
			for _, id := range part.ids {
				c := byID[id]
				text = prolong.render(text, s.ofTable(part.table, slots{"until": instant(c.Until), "version": c.Version, "job_id": id}))
				args = append(args, c.By)
			}
		}
		return s.transact(ctx, sv, tablesOf(parts), func(conn *sql.Conn) error {
			_, err := s.write(ctx, conn, prolong.name, text, args...)
			return err
		})
	}, func(table int, err error) { errs = append(errs, s.wrap(err, "prolong claims in", sv, table)) })
	return Join(append(errs, s.wrap(err, "prolong claims", sv))...)
}
