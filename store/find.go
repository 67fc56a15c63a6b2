package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/duequeue"
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
(SELECT /* tocsin look */` + rowColumns + `
FROM {table} FORCE INDEX (PRIMARY)
WHERE job_id IN ({ids}))`)

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
	var all []duequeue.Entry
	var errs []error
	fail := func(table int, err error) {
		errs = append(errs, s.wrap(err, "find "+q.Status.String()+" tasks in", sv, table))
	}
	for group := range slices.Chunk(s.allowed(sv, sv.tables, fail), maxTables) {
		err := apart(group, func(tables []int) error {
			found, err := s.findGroup(ctx, sv, tables, q)
			all = q.first(append(all, found...))
			return err
		}, fail)
		if err != nil {
			return all, errors.Join(append(errs, s.wrap(err, "find "+q.Status.String()+" tasks in", sv, group...))...)
		}
	}
	return all, joinOnce(errs)
}

// first sorts the entries as asked and keeps those within the limit.
func (q FindQuery) first(entries []duequeue.Entry) []duequeue.Entry {
	slices.SortFunc(entries, q.Compare)
	return entries[:min(len(entries), max(q.Limit, 0))]
}

// compareEntries gives the order of idx_due.
func compareEntries(a, b duequeue.Entry) int {
	return cmp.Or(cmp.Compare(a.Due, b.Due), cmp.Compare(a.Type, b.Type), cmp.Compare(a.JobID, b.JobID))
}

// findGroup gives the entries of all the tables, or none and an error.
func (s *Store) findGroup(ctx context.Context, sv *server, tables []int, q FindQuery) ([]duequeue.Entry, error) {
	var found []duequeue.Entry
	err := s.readTables(ctx, sv, tables, find.name, s.findText(tables, q), func(_ int, rows *sql.Rows) error {
		var e duequeue.Entry
		var action time.Time
		err := rows.Scan(&e.JobID, &e.Type, &action)
		e.Due = action.UnixMilli()
		found = append(found, e)
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

func (s *Store) findText(tables []int, q FindQuery) (b []byte) {
	for i, table := range tables {
		if i > 0 {
			b = append(b, unionAll...)
		}
		b = find.render(b, func(b []byte, slot string) []byte {
			switch slot {
			case "table":
				return append(b, s.names[table]...)
			case "limit":
				return appendInt(b, q.Limit)
			}
			return q.fill(b, slot)
		})
	}
	return b
}

// fill fills the slots that are the same for all tables of a query.
func (q FindQuery) fill(b []byte, slot string) []byte {
	switch {
	case slot == "status":
		return appendInt(b, int(q.Status))
	case slot == "types" && q.Types != nil:
		return ofTypes.render(b, func(b []byte, _ string) []byte { return appendTypes(b, q.Types) })
	case slot == "after" && q.After != nil && q.Latest:
		return beforeEntry.render(b, q.fillAfter)
	case slot == "after" && q.After != nil:
		return afterEntry.render(b, q.fillAfter)
	case slot == "direction" && q.Latest:
		return append(b, "DESC"...)
	}
	return b
}

func (q FindQuery) fillAfter(b []byte, slot string) []byte {
	switch slot {
	case "action_time":
		return appendTime(b, q.After.Due)
	case "biz_type":
		return strconv.AppendUint(b, q.After.Type, 10)
	}
	return append(b, q.After.JobID.String()...)
}

// Compare is the order of Find, earliest or latest first.
func (q FindQuery) Compare(a, b duequeue.Entry) int {
	if q.Latest {
		a, b = b, a
	}
	return compareEntries(a, b)
}

// appendTypes appends numbers of biz types, or 0, which is none, where there
// are none: an empty list is no SQL.
func appendTypes(b []byte, types []uint64) []byte {
	if len(types) == 0 {
		return append(b, '0')
	}
	return appendList(b, types)
}

// Look reads whole rows by primary key, whatever their status, at most 500.
// Those that are gone are left out.
func (s *Store) Look(ctx context.Context, server int, ids []tocsin.JobID) ([]Row, error) {
	sv := s.servers[server]
	parts := slices.DeleteFunc(byTable(sortIDs(ids)), func(part idsOf) bool { return s.refuse(server, part.table) != nil })
	if len(parts) == 0 {
		return nil, nil
	}
	var text []byte
	for i, part := range parts {
		switch {
		case i%maxTables > 0:
			text = append(text, unionAll...)
		case i > 0:
			text = append(text, ';')
		}
		text = look.render(text, s.fill(part))
	}
	var rows []Row
	err := s.readTables(ctx, sv, tablesOf(parts), look.name, text, func(_ int, found *sql.Rows) error {
		rows = append(rows, Row{})
		return s.scan(&rows[len(rows)-1], found)
	})
	if err != nil {
		return nil, s.wrap(err, "look at tasks in", sv, tablesOf(parts)...)
	}
	return rows, nil
}
