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

// find reads entries of one table in one status, from idx_due alone. {types} and {after} are
// conditions or nothing; {direction} DESC or nothing.
var find = prepare(`
(SELECT /* tocsin find */
    job_id,
    biz_type,
    action_time
FROM {table} FORCE INDEX (idx_due)
WHERE status = {status}
  {types}
  {after}
ORDER BY action_time {direction}, biz_type {direction}, job_id {direction}
LIMIT {limit})`)

// ofTypes is the condition of find that may be left out.
var ofTypes = prepare(`AND biz_type IN ({types})`)

// afterEntry and beforeEntry are the condition of find that leaves out what a former page has shown. The first line bounds the
// range of the index.
var (
	afterEntry = prepare(`AND action_time >= {action_time}
  AND (action_time > {action_time} OR biz_type > {biz_type} OR biz_type = {biz_type} AND job_id > {job_id})`)
	beforeEntry = prepare(`AND action_time <= {action_time}
  AND (action_time < {action_time} OR biz_type < {biz_type} OR biz_type = {biz_type} AND job_id < {job_id})`)
)

// look reads rows of one table in any status, by primary key.
var look = prepare(`
SELECT /* tocsin look */` + rowColumns + `
FROM {table} FORCE INDEX (PRIMARY)
WHERE job_id IN ({ids})`)

// FindQuery asks one server for the entries of all its tables in one status.
type FindQuery struct {
	Server int
	Status tocsin.Status
	Types  []uint64        // numbers of biz types; nil: all, also those that no policy names
	Latest bool            // the latest action times instead of the earliest
	After  *duequeue.Entry // the last entry of a former page: those that follow it in the order asked for; nil: from the first on
	Limit  int             // entries in all
}

// Find gives the earliest or latest entries of a server, in that order. It asks
// every table: for operators, not for engines. A table that cannot be read is
// named in the error and hides no other.
func (s *Store) Find(ctx context.Context, q FindQuery) ([]duequeue.Entry, error) {
	sv := s.servers[q.Server]
	ask := question[duequeue.Entry]{
		verb: "find " + q.Status.String() + " tasks in", statement: find, in: q.slots(),
		scan: into(func(e *duequeue.Entry) []any { return []any{&e.JobID, &e.Type, (*instant)(&e.Due)} }),
	}
	var all []duequeue.Entry
	unread := make(map[int]error)
	for group := range slices.Chunk(sv.tables, maxTables) {
		found, failed, err := across(ctx, s, sv, group, ask)
		all = q.first(append(all, found...))
		maps.Copy(unread, failed)
		if err != nil {
			return all, joined(unread, err)
		}
	}
	return all, joined(unread, nil)
}

// first sorts the entries as asked and keeps those within the limit.
func (q FindQuery) first(entries []duequeue.Entry) []duequeue.Entry {
	slices.SortFunc(entries, q.Compare)
	return entries[:min(len(entries), max(q.Limit, 0))]
}

// slots are the same for all tables of a query.
func (q FindQuery) slots() slots {
	in := slots{"status": q.Status, "types": "", "after": "", "direction": "", "limit": q.Limit}
	if q.Types != nil {
		in["types"] = ofTypes.render(nil, slots{"types": q.Types}.fill)
	}
	behind := afterEntry
	if q.Latest {
		behind, in["direction"] = beforeEntry, "DESC"
	}
	if q.After != nil {
		in["after"] = behind.render(nil, slots{"action_time": instant(q.After.Due), "biz_type": q.After.Type, "job_id": q.After.JobID}.fill)
	}
	return in
}

// Compare is the order of Find, earliest or latest first: that of idx_due.
func (q FindQuery) Compare(a, b duequeue.Entry) int {
	if q.Latest {
		a, b = b, a
	}
	return cmp.Or(cmp.Compare(a.Due, b.Due), cmp.Compare(a.Type, b.Type), cmp.Compare(a.JobID, b.JobID))
}

// Look reads whole rows by primary key, whatever their status, at most 500.
// Those that are gone are left out.
func (s *Store) Look(ctx context.Context, server int, ids []tocsin.JobID) ([]Row, error) {
	sv := s.servers[server]
	parts := slices.DeleteFunc(byTable(sortIDs(ids)), func(part idsOf) bool { return s.refuse(server, part.table) != nil })
	if len(parts) == 0 {
		return nil, nil
	}
	rows := make([]Row, 0, len(ids))
	err := s.readIDs(ctx, s.gated(sv), look, parts, func(found *sql.Rows) error {
		row, err := s.scanRow(found)
		rows = append(rows, row)
		return err
	})
	if err != nil {
		return nil, s.wrap(err, "look at tasks in", sv, tablesOf(parts)...)
	}
	return rows, nil
}
