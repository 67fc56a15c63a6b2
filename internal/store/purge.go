package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// purge deletes rows of one table, status and biz type, by primary key, that are
// still as Peek found them: settled before {before}. A DELETE takes no index
// hint in its short form. Fewer rows than ids: some were redriven, or purged by
// another.
var purge = prepare(`
DELETE /* tocsin purge */ {table}
FROM {table} FORCE INDEX (PRIMARY)
WHERE job_id IN ({ids})
  AND status = {status}
  AND biz_type = {type}
  AND action_time < {before};`)

// oldBells reads the next bells of one database, {limit} at most, and whether the
// tasks they rang for were due before {before}. By primary key.
var oldBells = prepare(`
SELECT /* tocsin old_bells */
    id,
    action_time < {before}
FROM {database}.doorbell FORCE INDEX (PRIMARY)
WHERE id > {after}
ORDER BY id
LIMIT {limit}`)

// purgeBells deletes bells of one database, by primary key, whose tasks were due
// before {before}. A range of ids would wait for bells between them that are not
// committed yet.
var purgeBells = prepare(`
DELETE /* tocsin purge_bells */ {database}.doorbell
FROM {database}.doorbell FORCE INDEX (PRIMARY)
WHERE id IN ({ids})
  AND action_time < {before};`)

var errNotFinal = errors.New("only done, cancelled and dead tasks may be purged")

// Purge deletes rows of one status, done, cancelled or dead, that Peek found and
// that were settled before an instant, at most 500 in one transaction, and gives
// their number by biz type. A row that is another's by now, or settled later, is
// left. On an error nothing is deleted; a lock that another transaction holds is
// waited for for a second.
func (s *Store) Purge(ctx context.Context, server int, status tocsin.Status, before int64, rows []duequeue.Entry) (map[uint64]int, error) {
	sv := s.servers[server]
	if !status.Final() {
		return nil, fmt.Errorf("purge %s tasks on %s: %w", status, sv.Name, errNotFinal)
	}
	for _, e := range rows {
		if err := s.refuse(server, e.JobID.Table()); err != nil {
			return nil, fmt.Errorf("purge job_id %s on %s: %w", e.JobID, sv.Name, err)
		}
	}
	parts := byTableAndType(rows[:min(len(rows), maxIDs)])
	if len(parts) == 0 {
		return nil, nil
	}
	var text []byte
	tables := make([]int, len(parts))
	for i, part := range parts {
		tables[i] = part.table
		text = purge.render(text, s.ofTable(part.table, slots{"ids": part.ids, "status": status, "type": part.typeCode, "before": instant(before)}))
	}
	removed := make(map[uint64]int)
	err := s.transact(ctx, sv, tables, func(conn *sql.Conn) error {
		counts, err := s.write(ctx, conn, purge.name, text)
		clear(removed)
		for i, n := range counts {
			removed[parts[i].typeCode] += int(n)
		}
		return err
	})
	if err != nil {
		return nil, s.wrap(err, fmt.Sprintf("purge %d rows of", len(rows)), sv, parts[0].table)
	}
	return removed, nil
}

// typedIDs are ids of one table and biz type, ascending.
type typedIDs struct {
	table    int
	typeCode uint64
	ids      []tocsin.JobID
}

// byTableAndType sorts rows into those of each table and biz type.
func byTableAndType(rows []duequeue.Entry) (parts []typedIDs) {
	sorted := slices.SortedFunc(slices.Values(rows), func(a, b duequeue.Entry) int {
		return cmp.Or(cmp.Compare(a.JobID.Table(), b.JobID.Table()), cmp.Compare(a.Type, b.Type), cmp.Compare(a.JobID, b.JobID))
	})
	for _, e := range sorted {
		last := len(parts) - 1
		if last < 0 || parts[last].table != e.JobID.Table() || parts[last].typeCode != e.Type {
			parts = append(parts, typedIDs{table: e.JobID.Table(), typeCode: e.Type})
			last++
		}
		parts[last].ids = append(parts[last].ids, e.JobID)
	}
	return parts
}

// PurgeBells looks at the next bells of one database behind the id after, limit
// of them, and deletes those that rang for what was due before an instant. A
// bell rings for what is due within the horizon, so that is its age. The newest
// bell stays, so that the highest id never falls, which would make every node
// start anew. It gives how many it deleted, and where to go on: 0 if these were the
// last bells, or none of them was old. Young ones may stand among old ones.
func (s *Store) PurgeBells(ctx context.Context, server, database int, after uint64, before int64, limit int) (removed int, next uint64, err error) {
	sv, seen, ids := s.servers[server], 0, []uint64(nil)
	in := slots{"after": after, "before": instant(before), "limit": limit}
	fill, old := s.ofDatabase(database, in), false
	err = s.gated(sv)(ctx, []int{database}, oldBells.name, oldBells.render(nil, fill), func(_ int, rows *sql.Rows) error {
		if old { // the bell before, and it is not the newest
			ids = append(ids, next)
		}
		seen++
		return rows.Scan(&next, &old)
	})
	if err == nil && len(ids) > 0 {
		in["ids"] = ids
		removed, err = s.change(ctx, database, purgeBells, fill)
	}
	if err != nil {
		return 0, 0, s.wrap(err, "purge bells of "+s.layout.Database(database), sv)
	}
	if seen < limit || len(ids) == 0 && !old {
		return removed, 0, nil
	}
	return removed, next - 1, nil
}

// DatabasesOf gives the numbers of a server's databases, ascending. The caller
// may keep the slice.
func (s *Store) DatabasesOf(server int) []int { return slices.Clone(s.servers[server].Databases) }

// oldRuns looks at the next runs of one database, {limit} at most: the id of the last, whether one of them began before a
// time, how many have {expired}, and whether one did so before the last purge. By primary key.
var oldRuns = prepare(`
SELECT /* tocsin old_runs */
    IFNULL(MAX(run_id), 0),
    IFNULL(MIN(started) < {until}, 0),
    IFNULL(SUM({expired}), 0),
    IFNULL(MAX({late}), 0)
FROM (
    SELECT
        run_id,
        biz_type,
        started
    FROM {database}.run FORCE INDEX (PRIMARY)
    WHERE run_id > {after}
    ORDER BY run_id
    LIMIT {limit}
) AS oldest`)

// purgeRuns deletes those of them that have expired, by primary key.
var purgeRuns = prepare(`
DELETE /* tocsin purge_runs */ {database}.run
FROM {database}.run FORCE INDEX (PRIMARY)
WHERE run_id > {after}
  AND run_id <= {last}
  AND ({expired})`)

// runBounds reads the first and the last run_id. runAfter finds the next run from an id on, and whether it was written before a
// time: runs stand about in the order in which they ended. Primary key.
var (
	runBounds = prepare(`
SELECT /* tocsin run_bounds */
    IFNULL(MIN(run_id), 0),
    IFNULL(MAX(run_id), 0)
FROM {database}.run`)

	runAfter = prepare(`
SELECT /* tocsin run_after */
    run_id,
    started + INTERVAL duration_ms * 1000 MICROSECOND < {until}
FROM {database}.run FORCE INDEX (PRIMARY)
WHERE run_id >= {id}
ORDER BY run_id
LIMIT 1`)
)

// Kept are biz types whose runs are kept if they began at an instant or later.
type Kept struct {
	Types []uint64 // numbers
	Since int64    // Unix ms
}

// LateRuns is how long ago a run has expired that a purge each day would have removed.
const LateRuns = 25 * time.Hour

// RunsPage is which runs a PurgeRuns looks at: the next limit of one database behind a run_id.
type RunsPage struct {
	Server   int
	Database int
	After    uint64
	Limit    int
	Until    int64 // Unix ms: younger ones need not be looked at
}

// PurgedRuns is what a PurgeRuns did.
type PurgedRuns struct {
	Removed int
	Next    uint64 // behind which to go on; 0: nowhere, since what follows is younger than Until
	Late    bool   // one of them had expired for LateRuns
}

// RunsBefore returns a run_id behind which all runs stand that were written at a time or later. It costs a statement for each doubling
// of the runs.
func (s *Store) RunsBefore(ctx context.Context, server, database int, milli int64) (uint64, error) {
	var low, high, id uint64
	read := func(st statement, in slots, dest ...any) error {
		return s.gated(s.servers[server])(ctx, []int{database}, st.name, st.render(nil, s.ofDatabase(database, in)), scanOne(dest...))
	}
	err := read(runBounds, nil, &low, &high)
	for err == nil && low < high {
		var before bool
		middle := low + (high-low)/2
		if err = read(runAfter, slots{"id": middle, "until": instant(milli)}, &id, &before); before {
			low = id + 1
		} else {
			high = middle
		}
	}
	if mysql.ClassOf(err) == mysql.Missing { // tables of an older schema version
		err = nil
	}
	return max(low, 1) - 1, s.wrapTable(err, "purge", database, "run")
}

// PurgeRuns deletes runs of a page that began too early. Runs of types that kept does not name are left. A database without the table
// has none. A dry purge only counts.
func (s *Store) PurgeRuns(ctx context.Context, page RunsPage, kept []Kept, dry bool) (done PurgedRuns, err error) {
	sv, database := s.servers[page.Server], page.Database
	if len(kept) == 0 {
		return done, nil
	}
	var last uint64
	var old bool
	in := slots{
		"after": page.After, "limit": page.Limit, "until": instant(page.Until),
		"expired": appendExpired(nil, kept, 0), "late": appendExpired(nil, kept, LateRuns),
	}
	fill := s.ofDatabase(database, in)
	err = s.gated(sv)(ctx, []int{database}, oldRuns.name, oldRuns.render(nil, fill), scanOne(&last, &old, &done.Removed, &done.Late))
	switch {
	case mysql.ClassOf(err) == mysql.Missing: // tables of an older schema version
		return PurgedRuns{}, nil
	case err != nil:
		return PurgedRuns{}, s.wrapTable(err, "purge", database, "run")
	}
	if old {
		done.Next = last
	}
	if done.Removed > 0 && !dry {
		in["last"] = last
		done.Removed, err = s.change(ctx, database, purgeRuns, fill)
	}
	return done, s.wrapTable(err, "purge", database, "run")
}

// appendExpired appends the condition of runs that are not kept, and were not a while ago.
func appendExpired(b []byte, kept []Kept, ago time.Duration) []byte {
	for i, k := range kept {
		if i > 0 {
			b = append(b, " OR "...)
		}
		b = appendList(append(b, "(biz_type IN ("...), k.Types)
		b = append(appendTime(append(b, ") AND started < "...), k.Since-ago.Milliseconds()), ')')
	}
	return b
}
