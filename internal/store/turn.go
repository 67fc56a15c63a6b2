package store

import (
	"cmp"
	"context"
	"database/sql"
	"maps"
	"slices"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/duequeue"
)

// itsTurn is the condition of claimable that fewer than {per_key} rows of the row's key are claimed or go before it. It
// locks nothing: a row before this one that another transaction is about to claim is pending or claimed, and counts either
// way. A range of uk_biz, and its rows.
var itsTurn = prepare(`
  AND (SELECT COUNT(*)
       FROM {table} AS k FORCE INDEX (uk_biz)
       WHERE k.biz_id = t.biz_id
         AND k.biz_type = t.biz_type
         AND (k.status = 1
           OR (k.status = 0 AND (k.action_time < t.action_time OR (k.action_time = t.action_time AND k.job_id < t.job_id))))) < {per_key}`)

// turn reads which rows of one key are claimed and, behind these, which are due, in their order. A range of uk_biz, and its
// rows.
var turn = prepare(`
(SELECT /* tocsin turn */
    {table_no},
    biz_id,
    status,
    job_id,
    action_time
FROM {table} FORCE INDEX (uk_biz)
WHERE biz_id = {biz_id}
  AND biz_type = {type}
  AND (status = 1 OR (status = 0 AND action_time <= {until}))
ORDER BY status DESC, action_time, job_id
LIMIT {limit})`)

// Key is a biz_id, in its table.
type Key struct {
	Table int
	BizID uint64
}

// Turn says whose turn it is among the rows of a key.
type Turn struct {
	Claimed []tocsin.JobID   // rows that are claimed
	Next    []duequeue.Entry // rows that are due and may be claimed beside these, in their order
	Err     error            // why the table could not be read; nil if it was
}

// TurnQuery asks one server about keys of one biz type.
type TurnQuery struct {
	Server int
	Type   uint64 // number of the biz type
	Keys   []Key
	PerKey int   // rows of a key that may be claimed at once, at least 1
	Until  int64 // upper bound of action_time, inclusive, Unix ms
}

// Turns reads whose turn it is, up to 64 keys in one round trip. Keys of which nothing is claimed or due are left out. A table that
// can't be read is asked at most twice, whatever the number of its keys. The error is that of the server as a whole.
func (s *Store) Turns(ctx context.Context, q TurnQuery) (map[Key]Turn, error) {
	turns, failed := make(map[Key]Turn), make(map[int]error)
	sv := s.servers[q.Server]
	sorted := slices.SortedFunc(slices.Values(q.Keys), func(a, b Key) int { return cmp.Compare(a.Table, b.Table) })
	for keys := range slices.Chunk(sorted, maxTables) {
		keys = slices.DeleteFunc(keys, func(k Key) bool { return failed[k.Table] != nil }) // to meet its lock again costs another second
		err := apart(tablesOfKeys(keys), func(tables []int) error {
			found := make(map[Key]Turn, len(keys))
			theirs := slices.DeleteFunc(slices.Clone(keys), func(k Key) bool { return !slices.Contains(tables, k.Table) })
			err := s.readTables(ctx, sv, tables, turn.name, s.turnText(q, theirs), func(_ int, rows *sql.Rows) error {
				return scanTurn(rows, q.Type, found)
			})
			if err == nil {
				maps.Copy(turns, found)
			}
			return err
		}, func(table int, err error) { failed[table] = s.wrap(err, "read turns of", sv, table) })
		if err != nil {
			return nil, s.wrap(err, "read turns of", sv, tablesOfKeys(keys)...)
		}
	}
	for _, k := range q.Keys {
		if err := failed[k.Table]; err != nil {
			turns[k] = Turn{Err: err}
		}
	}
	return turns, nil
}

// tablesOfKeys returns the tables of keys that are sorted by these.
func tablesOfKeys(keys []Key) []int {
	tables := make([]int, len(keys))
	for i, k := range keys {
		tables[i] = k.Table
	}
	return slices.Compact(tables)
}

func (s *Store) turnText(q TurnQuery, keys []Key) (b []byte) {
	for i, key := range keys {
		if i > 0 {
			b = append(b, unionAll...)
		}
		b = turn.render(b, s.ofTable(key.Table, slots{"biz_id": key.BizID, "type": q.Type, "until": instant(q.Until), "limit": q.PerKey}))
	}
	return b
}

func scanTurn(rows *sql.Rows, bizType uint64, turns map[Key]Turn) error {
	var key Key
	var status tocsin.Status
	e := duequeue.Entry{Type: bizType}
	if err := rows.Scan(&key.Table, &key.BizID, &status, &e.JobID, (*instant)(&e.Due)); err != nil {
		return err
	}
	t := turns[key]
	if status == tocsin.Claimed {
		t.Claimed = append(t.Claimed, e.JobID)
	} else {
		t.Next = append(t.Next, e)
	}
	turns[key] = t
	return nil
}
