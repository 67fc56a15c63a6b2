package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/duequeue"
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

// oldBells counts the next bells of one database, {limit} at most, and gives
// the id of their last. By primary key.
var oldBells = prepare(`
SELECT /* tocsin old_bells */
    COUNT(*),
    IFNULL(MAX(id), 0)
FROM (
    SELECT id
    FROM {database}.doorbell
    WHERE id > {after}
    ORDER BY id
    LIMIT {limit}
) AS oldest`)

// purgeBells deletes a range of one database's bells but the last of it, by
// primary key, as far as the tasks they rang for were due before {before}.
var purgeBells = prepare(`
DELETE /* tocsin purge_bells */ {database}.doorbell
FROM {database}.doorbell FORCE INDEX (PRIMARY)
WHERE id > {after}
  AND id < {last}
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
// start anew. It gives how many it deleted, and where to go on: 0 where the rest
// is younger.
func (s *Store) PurgeBells(ctx context.Context, server, database int, after uint64, before int64, limit int) (removed int, next uint64, err error) {
	sv, seen := s.servers[server], 0
	in := slots{"after": after, "before": instant(before), "limit": limit}
	fill := s.ofDatabase(database, in)
	err = s.gated(sv)(ctx, []int{database}, oldBells.name, oldBells.render(nil, fill), scanOne(&seen, &next))
	if err == nil && seen > 1 {
		in["last"] = next
		removed, err = s.change(ctx, database, purgeBells, fill)
	}
	if err != nil {
		return 0, 0, s.wrap(err, "purge bells of "+s.layout.Database(database), sv)
	}
	if seen < limit || removed < seen-1 {
		return removed, 0, nil
	}
	return removed, next - 1, nil
}

// DatabasesOf gives the numbers of a server's databases, ascending. The caller
// may keep the slice.
func (s *Store) DatabasesOf(server int) []int { return slices.Clone(s.servers[server].Databases) }
