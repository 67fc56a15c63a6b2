package store

import (
	"context"
	"maps"
	"slices"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// countColumns are what counts reads, behind the number of the table.
const countColumns = `
    biz_type,
    status,
    COUNT(*),
    MIN(action_time)
FROM {table} FORCE INDEX (idx_due)`

// counts reads all of one table's idx_due: for operators, not for engines.
var counts = prepare(`
SELECT /* tocsin counts */
    {table_no},` + countColumns + `
GROUP BY biz_type, status`)

// someCounts is counts for the first {limit} rows of one status.
var someCounts = prepare(`
SELECT /* tocsin some_counts */
    {table_no},
    biz_type,
    {status},
    COUNT(*),
    MIN(action_time)
FROM (
    SELECT
        biz_type,
        action_time
    FROM {table} FORCE INDEX (idx_due)
    WHERE status = {status}
    ORDER BY action_time
    LIMIT {limit}) AS first_ones
GROUP BY biz_type`)

// liveCounts is counts for rows that are pending, claimed or dead.
var liveCounts = prepare(`
SELECT /* tocsin live_counts */
    {table_no},` + countColumns + `
WHERE status IN (0, 1, 4)
GROUP BY biz_type, status`)

// overdue counts the pending rows of one table up to {until}, the oldest {limit} of them, from idx_due alone. Zero rows:
// there is none.
var overdue = prepare(`
SELECT /* tocsin overdue */
    {table_no},
    biz_type,
    COUNT(*),
    MIN(action_time)
FROM (
    SELECT
        biz_type,
        action_time
    FROM {table} FORCE INDEX (idx_due)
    WHERE status = 0
      AND action_time <= {until}
    ORDER BY action_time
    LIMIT {limit}) AS late
GROUP BY biz_type`)

// Counts says how many rows of each biz type and status the tables hold. It
// reads a whole index of each: for operators and tests, not for engines. A
// table that cannot be read is named in the error and hides no other.
func (s *Store) Counts(ctx context.Context, server int, tables []int) ([]Count, error) {
	all, failed, err := s.count(ctx, server, tables, counts, nil)
	return all, joined(failed, err)
}

// LiveCounts is Counts without the rows that are done or cancelled: it reads the index entries of the others, one by one. A table
// that can't be read is in failed and hides no other; the error is that of the server as a whole.
func (s *Store) LiveCounts(ctx context.Context, server int, tables []int) (all []Count, failed map[int]error, err error) {
	return s.count(ctx, server, tables, liveCounts, nil)
}

// CountsUpTo is Counts of some statuses, which reads at most so many index entries of each status in each table, those with the
// earliest action times. Of the statuses in more, there may be more rows.
func (s *Store) CountsUpTo(ctx context.Context, server int, tables []int, most int, statuses ...tocsin.Status) (all []Count, more []tocsin.Status, err error) {
	var errs []error
	for _, status := range statuses {
		found, failed, err := s.count(ctx, server, tables, someCounts, slots{"status": status, "limit": most})
		all, errs = append(all, found...), append(errs, joined(failed, err))
		rows := map[int]int{}
		for _, c := range found {
			rows[c.Table] += c.Pending + c.Claimed + c.Done + c.Cancelled + c.Dead
			if rows[c.Table] >= most && !slices.Contains(more, status) {
				more = append(more, status)
			}
		}
		if mysql.Unanswered(err) {
			break // nor are the next ones answered
		}
	}
	return all, more, Join(errs...)
}

// count runs a statement that counts rows by biz type and status, which may take long.
func (s *Store) count(ctx context.Context, server int, tables []int, st statement, in slots) (all []Count, failed map[int]error, err error) {
	type part struct {
		table    int
		typeCode uint64
		status   tocsin.Status
		rows     int
		earliest int64
	}
	parts, failed, err := across(mysql.Slow(ctx), s, s.servers[server], tables, question[part]{
		verb: "count", statement: st, in: in,
		scan: into(func(p *part) []any {
			return []any{&p.table, &p.typeCode, &p.status, &p.rows, (*instant)(&p.earliest)}
		}),
	})
	type group struct {
		table    int
		typeCode uint64
	}
	index := make(map[group]int)
	for _, p := range parts {
		i, known := index[group{p.table, p.typeCode}]
		if !known {
			i, all = len(all), append(all, Count{Table: p.table, Type: p.typeCode})
			index[group{p.table, p.typeCode}] = i
		}
		c := &all[i]
		switch p.status {
		case tocsin.Pending:
			c.Pending, c.Oldest = p.rows, p.earliest
		case tocsin.Claimed:
			c.Claimed = p.rows
		case tocsin.Done:
			c.Done = p.rows
		case tocsin.Cancelled:
			c.Cancelled = p.rows
		case tocsin.Dead:
			c.Dead = p.rows
		}
	}
	return all, failed, err
}

// deaths counts the rows of one table that became dead between two instants, the latest {limit} of them, from idx_due
// alone. Zero rows: there is none.
var deaths = prepare(`
SELECT /* tocsin deaths */
    {table_no},
    biz_type,
    COUNT(*),
    MAX(job_id)
FROM (
    SELECT
        biz_type,
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
}

// Deaths counts rows that became dead, by table and biz type. A table that can't be read is named in the error and hides no
// other.
func (s *Store) Deaths(ctx context.Context, q DeathsQuery) ([]Deaths, error) {
	all, failed, err := across(ctx, s, s.servers[q.Server], q.Tables, question[Deaths]{
		verb: "count dead rows of", statement: deaths,
		in:   slots{"from": instant(q.From), "until": instant(q.Until), "types": q.Types, "limit": q.Limit},
		scan: into(func(d *Deaths) []any { return []any{&d.Table, &d.Type, &d.Rows, &d.Job} }),
	})
	return all, joined(failed, err)
}

// LatestKey returns the task of a biz_id and biz type whose dedup_key begins with the prefix and is the highest of those;
// nil: there is none. Cancelled tasks have no key.
func (s *Store) LatestKey(ctx context.Context, bizID, typeCode uint64, prefix string) (*Row, error) {
	tables := []int{s.layout.TableOf(bizID)}
	sv := s.servers[s.ServerOf(tables[0])]
	latest := question[Row]{
		statement: latestKey, in: slots{"biz_id": bizID, "type": typeCode}, scan: s.scanRow,
		args: []any{[]byte(prefix), append([]byte(prefix), 0xff)},
	}
	found, err := latest.ask(ctx, s.gated(sv), s.databasesIn(tables), tables, s.ofTable)
	if len(found) == 0 {
		return nil, s.wrap(err, "look for tasks in", sv, tables[0])
	}
	return &found[0], nil
}

// Late counts the pending rows of one table and biz type that should have been delivered.
type Late struct {
	Table  int
	Type   uint64
	Rows   int
	Oldest int64 // action time of the oldest
}

// Overdue counts the pending rows with an action time up to until: of each table at most limit, the oldest ones. It asks
// first which tables have any, so that few index entries are read where all is well. A table that can't be read is in
// failed and hides no other; the error is that of the server as a whole.
func (s *Store) Overdue(ctx context.Context, server int, tables []int, until int64, limit int) (all []Late, failed map[int]error, err error) {
	sv, refused := s.servers[server], make(map[int]error)
	tables = s.allowed(sv, tables, func(table int, err error) { refused[table] = s.wrap(err, "count overdue rows of", sv, table) })
	tables = s.holding(ctx, sv, PeekQuery{Tables: tables, Until: until})
	all, failed, err = across(ctx, s, sv, tables, question[Late]{
		verb: "count overdue rows of", statement: overdue, in: slots{"until": instant(until), "limit": limit},
		scan: into(func(l *Late) []any { return []any{&l.Table, &l.Type, &l.Rows, (*instant)(&l.Oldest)} }),
	})
	maps.Copy(failed, refused)
	return all, failed, err
}
