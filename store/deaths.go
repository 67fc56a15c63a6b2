package store

import (
	"context"
	"database/sql"
	"slices"
	"strconv"
	"time"

	"github.com/tocsinhq/tocsin"
)

// deaths counts the rows of one table that became dead between two instants, the latest {limit} of them, from idx_due
// alone. Zero rows: there is none.
var deaths = prepare(`
SELECT /* tocsin deaths */
    {table_no},
    biz_type,
    COUNT(*),
    MAX(job_id),
    MAX(action_time)
FROM (
    SELECT
        biz_type,
        action_time,
        job_id
    FROM {table} FORCE INDEX (idx_due)
    WHERE status = 4
      AND action_time > {from}
      AND action_time <= {until}
      AND biz_type IN ({types})
    ORDER BY action_time DESC
    LIMIT {limit}) AS dead
GROUP BY biz_type`)

// latestKey reads the task of a biz_id and biz type with the highest dedup_key between its arguments, the first included.
// From uk_biz. No row: there is none.
var latestKey = prepare(`
SELECT /* tocsin latest_key */` + rowColumns + `
FROM {table} FORCE INDEX (uk_biz)
WHERE biz_id = {biz_id}
  AND biz_type = {type}
  AND dedup_key >= ?
  AND dedup_key < ?
ORDER BY dedup_key DESC
LIMIT 1`)

// DeathsQuery asks one server which rows of some of its tables became dead.
type DeathsQuery struct {
	Server int
	Tables []int
	Types  []uint64 // numbers of biz types
	From   int64    // exclusive
	Until  int64    // inclusive
	Limit  int      // rows of a table that are counted, the latest ones
}

// Deaths counts the rows of one table and biz type that became dead.
type Deaths struct {
	Table int
	Type  uint64
	Rows  int
	Job   tocsin.JobID // one of them
	Last  int64        // when the latest became dead
}

// Deaths counts rows that became dead, by table and biz type. A table that can't be read is in failed and hides no other;
// the error is that of the server as a whole.
func (s *Store) Deaths(ctx context.Context, q DeathsQuery) (all []Deaths, failed map[int]error, err error) {
	sv := s.servers[q.Server]
	failed = make(map[int]error)
	fail := func(table int, err error) { failed[table] = s.wrap(err, "count dead rows of", sv, table) }
	for group := range slices.Chunk(s.allowed(sv, q.Tables, fail), maxTables) {
		err := apart(group, func(tables []int) error {
			found, err := s.deaths(ctx, sv, tables, q)
			all = append(all, found...)
			return err
		}, fail)
		if err != nil {
			return all, failed, s.wrap(err, "count dead rows of", sv, group...)
		}
	}
	return all, failed, nil
}

// deaths returns the counts of all the tables, or none and an error.
func (s *Store) deaths(ctx context.Context, sv *server, tables []int, q DeathsQuery) (all []Deaths, err error) {
	var text []byte
	for i, table := range tables {
		if i > 0 {
			text = append(text, unionAll...)
		}
		text = deaths.render(text, func(b []byte, slot string) []byte {
			switch slot {
			case "table_no":
				return appendInt(b, table)
			case "table":
				return append(b, s.names[table]...)
			case "from":
				return appendTime(b, q.From)
			case "until":
				return appendTime(b, q.Until)
			case "types":
				return appendTypes(b, q.Types)
			}
			return appendInt(b, q.Limit)
		})
	}
	err = s.readTables(ctx, sv, tables, deaths.name, text, func(_ int, rows *sql.Rows) error {
		var d Deaths
		var last time.Time
		err := rows.Scan(&d.Table, &d.Type, &d.Rows, &d.Job, &last)
		d.Last = last.UnixMilli()
		all = append(all, d)
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// LatestKey returns the task of a biz_id and biz type whose dedup_key begins with the prefix and is the highest of those;
// nil: there is none. Cancelled tasks have no key.
func (s *Store) LatestKey(ctx context.Context, bizID, typeCode uint64, prefix string) (found *Row, err error) {
	table := s.layout.TableOf(bizID)
	sv := s.servers[s.ServerOf(table)]
	text := latestKey.render(nil, func(b []byte, slot string) []byte {
		switch slot {
		case "table":
			return append(b, s.names[table]...)
		case "biz_id":
			return strconv.AppendUint(b, bizID, 10)
		case "type":
			return strconv.AppendUint(b, typeCode, 10)
		}
		return s.appendLater(b, table)
	})
	err = s.readTables(ctx, sv, []int{table}, latestKey.name, text, func(_ int, rows *sql.Rows) error {
		found = &Row{}
		return s.scan(found, rows)
	}, []byte(prefix), append([]byte(prefix), 0xff))
	if err != nil {
		return nil, s.wrap(err, "look for tasks in", sv, table)
	}
	return found, nil
}
