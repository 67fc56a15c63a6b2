package store

import (
	"context"
	"maps"
	"slices"

	"github.com/tocsinhq/tocsin"
)

// having reads which biz_ids of one table have a task of a biz type, of any
// status, from uk_biz alone.
var having = prepare(`
(SELECT /* tocsin having */ DISTINCT
    biz_id
FROM {table} FORCE INDEX (uk_biz)
WHERE biz_id IN ({ids})
  AND biz_type = {type})`)

// existing reads which job_ids of one table have a row, whatever its status.
var existing = prepare(`
(SELECT /* tocsin existing */
    job_id
FROM {table} FORCE INDEX (PRIMARY)
WHERE job_id IN ({ids}))`)

// Lacking gives those of the biz_ids, all of one server's tables, that have no
// task of the biz type, whatever its status, in no order. Of tables that cannot
// be read it says nothing; they are named in failed. The error is that of the
// server as a whole.
func (s *Store) Lacking(ctx context.Context, server int, typeCode uint64, bizIDs []uint64) (lacking []uint64, failed map[int]error, err error) {
	return absent(ctx, s, s.servers[server], having, slots{"type": typeCode}, bizIDs, s.layout.TableOf)
}

// Absent returns those of the job_ids, all of one server's tables, that have no row, in no order. A table that does not
// exist has none. Of tables that can't be read it says nothing; they are named in failed. The error is that of the server
// as a whole.
func (s *Store) Absent(ctx context.Context, server int, ids []tocsin.JobID) (lacking []tocsin.JobID, failed map[int]error, err error) {
	odd := func(id tocsin.JobID) bool { return id.Table() >= s.layout.Total() }
	known := slices.DeleteFunc(sortIDs(ids), odd)
	lacking, failed, err = absent(ctx, s, s.servers[server], existing, slots{}, known, tocsin.JobID.Table)
	return append(slices.DeleteFunc(sortIDs(ids), func(id tocsin.JobID) bool { return !odd(id) }), lacking...), failed, err
}

// absent returns those of the ids that a statement, which takes the {ids} of one table, does not find.
func absent[N ~uint64](ctx context.Context, s *Store, sv *server, st statement, in slots, ids []N, tableOf func(N) int) (lacking []N, failed map[int]error, err error) {
	failed = make(map[int]error)
	for chunk := range slices.Chunk(ids, maxIDs) {
		byTable := make(map[int][]N)
		for _, id := range chunk {
			byTable[tableOf(id)] = append(byTable[tableOf(id)], id)
		}
		in["ids"] = byTable
		found, unread, err := across(ctx, s, sv, slices.Sorted(maps.Keys(byTable)), question[N]{
			verb: "look for tasks in", statement: st, in: in, scan: into(func(id *N) []any { return []any{id} }),
		})
		maps.Copy(failed, unread)
		if err != nil {
			return lacking, failed, err
		}
		has := make(map[N]bool, len(found))
		for _, id := range found {
			has[id] = true
		}
		lacking = append(lacking, slices.DeleteFunc(slices.Clone(chunk), func(id N) bool { return has[id] || failed[tableOf(id)] != nil })...)
	}
	return lacking, failed, nil
}
