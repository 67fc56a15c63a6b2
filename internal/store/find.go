package store

import (
	"cmp"
	"context"
	"database/sql"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/duequeue"
)

// find reads entries of one table in one status, from idx_due alone. {range} bounds action_time; {behind} and
// {types} are conditions or nothing; {direction} DESC or nothing.
var find = prepare(`
(SELECT /* tocsin find */
    {table_no},
    job_id,
    biz_type,
    action_time
FROM {table} FORCE INDEX (idx_due)
WHERE status = {status}
  AND {range}
  {behind}
  {types}
ORDER BY action_time {direction}, biz_type {direction}, job_id {direction}
LIMIT {limit})`)

// findWithin is how long one find may take.
const findWithin = 5 * time.Second

// ofType and ofTypes are conditions of find and peek. Of several types MySQL would make further ranges, give all of them up, and read
// the index from its first entry on; IS TRUE keeps it from that.
var (
	ofType  = prepare(`AND biz_type IN ({types})`)
	ofTypes = prepare(`AND (biz_type IN ({types})) /*!80000 IS TRUE */`)
)

// among is the condition of some biz types.
func among(types []uint64) []byte {
	st := ofTypes
	if len(types) == 1 {
		st = ofType
	}
	return st.render(nil, slots{"types": types}.fill)
}

// afterEntry and beforeEntry are {behind} an entry that was read before. Like peekAfter they are ranges of idx_due.
var (
	afterEntry = prepare(`AND (action_time > {due}
    OR (action_time = {due} AND biz_type > {type})
    OR (action_time = {due} AND biz_type = {type} AND job_id > {job_id}))`)
	beforeEntry = prepare(`AND (action_time < {due}
    OR (action_time = {due} AND biz_type < {type})
    OR (action_time = {due} AND biz_type = {type} AND job_id < {job_id}))`)
)

// lookSQL reads rows of one table in any status, by primary key.
const lookSQL = `
SELECT /* tocsin look */` + rowColumns + `
FROM {table} FORCE INDEX (PRIMARY)
WHERE job_id IN ({ids})`

// lookBare is look without the columns that may be long.
var (
	look     = prepare(lookSQL)
	lookBare = prepare(strings.NewReplacer("attribute", "''", "headers", "NULL").Replace(lookSQL))
)

// FindQuery asks one server for the entries of all its tables in one status.
type FindQuery struct {
	Server int
	Status tocsin.Status
	Types  []uint64        // numbers of biz types; nil: all, also those that no policy names
	From   int64           // action time, inclusive, Unix ms
	Until  int64           // inclusive
	Latest bool            // the latest action times instead of the earliest
	After  *duequeue.Entry // the last entry of a former page: those that follow it in the order asked for; nil: from the first on
	Limit  int             // entries in all
}

// Find gives the earliest or latest entries of a server, in that order. It asks
// every table: for operators, not for engines. A table that cannot be read is
// named in the error and hides no other.
//
// It reads few entries of each table, and more of those tables alone whose next
// entries may be among the first of all: one entry of each table, and a few times
// Limit. As soon as it has Limit entries it reads none with a time behind theirs.
func (s *Store) Find(ctx context.Context, q FindQuery) ([]duequeue.Entry, error) {
	if q.Limit <= 0 || q.Types != nil && len(q.Types) == 0 {
		return nil, nil
	}
	f := search{FindQuery: q, read: make(map[int]duequeue.Entry), unread: make(map[int]error)}
	tables, read := s.servers[q.Server].tables, 0 // of each of them
	for len(tables) > 0 {
		size := read // a table is read twice as far as before
		if lacking := q.Limit - len(f.first); lacking > 0 {
			size = 2*lacking/len(tables) + 2 // so that few tables have more
		}
		read += size
		var full []int
		for group := range slices.Chunk(tables, maxTables) {
			more, err := f.page(ctx, s, group, min(size, q.Limit))
			if err != nil {
				return f.first, joined(f.unread, err)
			}
			full = append(full, more...)
		}
		tables = slices.DeleteFunc(full, f.past)
	}
	return f.first, joined(f.unread, nil)
}

// search is a Find under way.
type search struct {
	FindQuery
	first  []duequeue.Entry       // of those read so far, in order, Limit at most
	read   map[int]duequeue.Entry // the last entry read, by table
	unread map[int]error          // tables that can't be read
}

// page reads the next entries of some tables, at most size of each, and returns the tables that may have more.
func (f *search) page(ctx context.Context, s *Store, tables []int, size int) (full []int, err error) {
	found, failed, err := across(ctx, s, s.servers[f.Server], tables, question[peeked]{
		verb: "find " + f.Status.String() + " tasks in", statement: find, in: f.slots(size), scan: scanPeeked, within: findWithin,
	})
	maps.Copy(f.unread, failed)
	sizes := make(map[int]int)
	for _, p := range found {
		f.first, f.read[p.table] = append(f.first, p.entry), p.entry
		if sizes[p.table]++; sizes[p.table] == size {
			full = append(full, p.table)
		}
	}
	slices.SortFunc(f.first, f.Compare)
	f.first = f.first[:min(len(f.first), f.Limit)]
	return full, err
}

// last returns the last of the entries that a Find returns, as far as is known; nil: there is room for any.
func (f *search) last() *duequeue.Entry {
	if len(f.first) < f.Limit {
		return nil
	}
	return &f.first[f.Limit-1]
}

// past reports whether the entries of a table that were not read yet come too late.
func (f *search) past(table int) bool {
	last := f.last()
	return last != nil && f.Compare(f.read[table], *last) >= 0
}

// slots are those of the next pages of tables.
func (f *search) slots(size int) slots {
	from, until := f.From, f.Until
	in := slots{"status": f.Status, "behind": f.behind, "types": "", "direction": "", "limit": size}
	if f.Types != nil {
		in["types"] = among(f.Types)
	}
	if f.Latest {
		in["direction"] = "DESC"
	}
	switch last := f.last(); {
	case last == nil:
	case f.Latest:
		from = max(from, last.Due)
	default:
		until = min(until, last.Due)
	}
	in["range"] = peekFrom.render(nil, slots{"from": instant(from), "until": instant(until)}.fill)
	return in
}

// behind leaves out what was read of a table.
func (f *search) behind(table int) []byte {
	after, read := f.read[table]
	switch {
	case read:
	case f.After != nil:
		after = *f.After
	default:
		return nil
	}
	st := afterEntry
	if f.Latest {
		st = beforeEntry
	}
	return st.render(nil, slots{"due": instant(after.Due), "type": after.Type, "job_id": after.JobID}.fill)
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
	return s.look(ctx, server, look, ids)
}

// LookBare is Look without payloads and headers.
func (s *Store) LookBare(ctx context.Context, server int, ids []tocsin.JobID) ([]Row, error) {
	return s.look(ctx, server, lookBare, ids)
}

func (s *Store) look(ctx context.Context, server int, st statement, ids []tocsin.JobID) ([]Row, error) {
	sv := s.servers[server]
	parts := slices.DeleteFunc(byTable(sortIDs(ids)), func(part idsOf) bool { return s.refuse(server, part.table) != nil })
	if len(parts) == 0 {
		return nil, nil
	}
	rows := make([]Row, 0, len(ids))
	err := s.readIDs(ctx, s.gated(sv), st, parts, func(found *sql.Rows) error {
		row, err := s.scanRow(found)
		rows = append(rows, row)
		return err
	})
	if err != nil {
		return nil, s.wrap(err, "look at tasks in", sv, tablesOf(parts)...)
	}
	return rows, nil
}
