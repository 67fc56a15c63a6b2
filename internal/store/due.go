package store

import (
	"context"
	"database/sql"
	"maps"
	"slices"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// due reads whole rows of one table and biz type in order of the due index, from
// one place on: its three ranges are those of peekAfter. As nothing looks at the
// rows again before they start, the server's own clock decides too: it may have
// been set back since {until} was taken from it.
var due = prepare(`
(SELECT /* tocsin due */
    {table_no},` + rowColumns + `
FROM {table} FORCE INDEX (idx_due)
WHERE status = 0
  AND biz_type = {type}
  AND action_time <= {until}
  AND action_time <= UTC_TIMESTAMP(3)
  AND (action_time > {due}
    OR (action_time = {due} AND biz_type = {type} AND job_id > {job_id}))
ORDER BY action_time, biz_type, job_id
LIMIT {limit})`)

// Place is how far the due rows of one table are read: up to and with this
// action time, and of that up to and with this job_id.
type Place struct {
	Table int
	Due   int64 // Unix ms
	JobID tocsin.JobID
}

// DueQuery asks one server for whole rows of one biz type, of several tables
// each from its place on.
type DueQuery struct {
	Server int
	Type   uint64  // number of the biz type
	From   []Place // at most 64, of different tables
	Until  int64   // upper bound of action_time, inclusive; a lower bound of the server's clock, or rows would come that are not due
	Limit  int     // rows per table
}

// DuePage is what was found. Rows are grouped by table, and in order of
// (action_time, job_id) within each.
type DuePage struct {
	Rows    []Row            // of Due
	Entries []duequeue.Entry // of DueIDs
	More    []Place          // where to go on in the tables whose page came back full
	Failed  map[int]error    // by table number: what could not be read, or be trusted; nil if all is well
}

// Due reads pending rows that are due, whole, by the due index and in one round
// trip: where many are overdue that spares reading their ids first. What fails
// is reported as Peek does.
func (s *Store) Due(ctx context.Context, q DueQuery) (DuePage, error) {
	var page DuePage
	ctx, sv := mysql.Slow(ctx), s.servers[q.Server]
	err := apart(q.From, func(from []Place) error {
		return s.due(ctx, sv, q, from, &page)
	}, func(from Place, err error) {
		addFailed(&page.Failed, from.Table, s.wrap(err, "read due rows of", sv, from.Table))
	})
	if err != nil {
		return page, s.wrap(err, "read due rows of", sv, tablesOfPlaces(q.From)...)
	}
	return page, nil
}

// due adds what one statement finds to the page, or nothing if it fails.
func (s *Store) due(ctx context.Context, sv *server, q DueQuery, from []Place, page *DuePage) error {
	d := dueRows{store: s, limit: q.Limit, table: -1, rows: slices.Grow(page.Rows, min(len(from)*q.Limit, maxIDs))}
	if err := s.readTables(ctx, sv, tablesOfPlaces(from), due.name, s.dueText(q, from), d.scan); err != nil {
		return err
	}
	page.Rows = d.rows
	page.More = append(page.More, d.more...)
	for _, bad := range d.misplaced {
		addFailed(&page.Failed, bad.table, s.wrap(bad, "read due rows of", sv, bad.table))
	}
	return nil
}

func (s *Store) dueText(q DueQuery, from []Place) (b []byte) {
	b = make([]byte, 0, len(from)*600)
	for i, place := range from {
		if i > 0 {
			b = append(b, unionAll...)
		}
		b = due.render(b, s.ofTable(place.Table, slots{
			"type": q.Type, "until": instant(q.Until), "due": instant(place.Due), "job_id": place.JobID, "limit": q.Limit,
		}))
	}
	return b
}

// dueRows collects the rows of one statement, which come table by table.
type dueRows struct {
	store     *Store
	limit     int
	table     int // under way
	count     int // its rows so far
	rows      []Row
	more      []Place
	misplaced []misplaced
	raw       rawRow
	to        []any // where a row is scanned to
}

func (d *dueRows) scan(_ int, rows *sql.Rows) error {
	var table int
	d.rows = append(d.rows, Row{})
	row := &d.rows[len(d.rows)-1]
	d.to = d.raw.into(append(d.to[:0], &table), row)
	if err := rows.Scan(d.to...); err != nil {
		return err
	}
	d.raw.finish(row)
	row.Table = d.store.names[table]
	if table != d.table {
		d.table, d.count = table, 0
	}
	if d.count++; d.count == d.limit {
		d.more = append(d.more, Place{Table: table, Due: row.Action, JobID: row.JobID})
	}
	if row.JobID.Table() != table {
		d.misplaced = append(d.misplaced, misplaced{table, row.entry()})
		d.rows = d.rows[:len(d.rows)-1]
	}
	return nil
}

func tablesOfPlaces(places []Place) []int {
	tables := make([]int, len(places))
	for i, p := range places {
		tables[i] = p.Table
	}
	return tables
}

// dueIDs reads what due does from idx_due alone.
var dueIDs = prepare(`
(SELECT /* tocsin due_ids */
    {table_no},
    job_id,
    biz_type,
    action_time
FROM {table} FORCE INDEX (idx_due)
WHERE status = 0
  AND biz_type = {type}
  AND action_time <= {until}
  AND (action_time > {due}
    OR (action_time = {due} AND biz_type = {type} AND job_id > {job_id}))
ORDER BY action_time, biz_type, job_id
LIMIT {limit})`)

// DueIDs is Due for the ids of rows, which are read again when they are claimed.
func (s *Store) DueIDs(ctx context.Context, q DueQuery) (DuePage, error) {
	var page DuePage
	ctx, sv := mysql.Slow(ctx), s.servers[q.Server]
	from := make(map[int]Place, len(q.From))
	for _, place := range q.From {
		from[place.Table] = place
	}
	text := func(b []byte, table int) []byte {
		place := from[table]
		return dueIDs.render(b, s.ofTable(table, slots{
			"type": q.Type, "until": instant(q.Until), "due": instant(place.Due), "job_id": place.JobID, "limit": q.Limit,
		}))
	}
	tables := slices.Sorted(maps.Keys(from))
	rows, failed, err := across(ctx, s, sv, tables, question[peeked]{verb: "read what is due in", statement: dueIDs, text: text, scan: scanPeeked})
	page.Failed = failed
	count := make(map[int]int)
	for _, r := range rows {
		if count[r.table]++; count[r.table] == q.Limit {
			page.More = append(page.More, Place{Table: r.table, Due: r.entry.Due, JobID: r.entry.JobID})
		}
		if r.entry.JobID.Table() != r.table {
			addFailed(&page.Failed, r.table, s.wrap(misplaced(r), "read due rows of", sv, r.table))
			continue
		}
		page.Entries = append(page.Entries, r.entry)
	}
	return page, err
}
