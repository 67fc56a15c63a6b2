package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tocsinhq/tocsin/internal/duequeue"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// peek reads entries of one table in order. It is answered from idx_due alone,
// without a sort. {range} bounds action_time; {types} is a condition or
// nothing. Zero rows: nothing due there, or
// of a final {status}, nothing settled then.
var peek = prepare(`
(SELECT /* tocsin peek */
    {table_no},
    job_id,
    biz_type,
    action_time
FROM {table} FORCE INDEX (idx_due)
WHERE status = {status}
  AND {range}
  {types}
ORDER BY action_time, biz_type, job_id
LIMIT {limit})`)

// peekFrom, peekUntil and peekAfter are the parts of {range}. peekAfter is
// written so that the servers read it as three ranges of idx_due, which the
// primary key ends: a page deep in a burst of one action_time costs no more
// than the first.
var (
	peekFrom  = prepare(`action_time >= {from} AND action_time <= {until}`)
	peekAfter = prepare(`
    action_time <= {until}
  AND (action_time > {due}
    OR (action_time = {due} AND biz_type > {type})
    OR (action_time = {due} AND biz_type = {type} AND job_id > {job_id}))`)
)

var errAfterMany = errors.New("peek behind an entry: wants one table")

// Peek reads the entries of many tables, up to 64 in one round trip; two where
// the query is sparse and finds something. A table that cannot be read is named
// in Page.Failed and hides no other; so is a table with a row whose job_id
// belongs elsewhere, which can't be loaded and is left out. The error is that of
// the server as a whole.
func (s *Store) Peek(ctx context.Context, q PeekQuery) (Page, error) {
	var page Page
	if len(q.Types) == 0 && !q.Any || q.Limit <= 0 {
		return page, nil
	}
	if q.After.JobID != 0 && len(q.Tables) != 1 {
		return page, errAfterMany
	}
	if q.Full {
		ctx = mysql.Slow(ctx)
	}
	sv := s.servers[q.Server]
	q.Tables = s.allowed(sv, q.Tables, func(table int, err error) { addFailed(&page.Failed, table, err) })
	if q.Sparse {
		q.Tables = s.holding(ctx, sv, q)
	}
	rows, failed, err := across(ctx, s, sv, q.Tables, question[peeked]{
		verb: "peek", statement: peek, in: peekSlots(q), scan: scanPeeked,
	})
	for table, err := range failed {
		addFailed(&page.Failed, table, err)
	}
	for len(rows) > 0 {
		table := rows[0].table
		end := slices.IndexFunc(rows, func(p peeked) bool { return p.table != table })
		if end < 0 {
			end = len(rows)
		}
		if bad := page.add(rows[:end], q.Limit); bad != nil {
			addFailed(&page.Failed, table, s.wrap(bad, "peek", sv, table))
		}
		rows = rows[end:]
	}
	return page, err
}

// peekSlots are the same for all tables of a query.
func peekSlots(q PeekQuery) slots {
	in := slots{"status": q.Status, "range": peekRange(q), "types": "", "limit": q.Limit}
	if !q.Any {
		in["types"] = among(q.Types)
	}
	return in
}

// peekRange bounds action_time, and goes on behind q.After.
func peekRange(q PeekQuery) []byte {
	span := peekFrom
	if q.After.JobID != 0 {
		span = peekAfter
	}
	return span.render(nil, slots{
		"from": instant(q.From), "until": instant(q.Until), "due": instant(q.After.Due), "type": q.After.Type, "job_id": q.After.JobID,
	}.fill)
}

// peeked is a row of peek, or of find.
type peeked struct {
	table int
	entry duequeue.Entry
}

var scanPeeked = into(func(p *peeked) []any {
	return []any{&p.table, &p.entry.JobID, &p.entry.Type, (*instant)(&p.entry.Due)}
})

// add adds the rows of one table. bad names the last row that is in the wrong table.
func (p *Page) add(rows []peeked, limit int) (bad error) {
	for _, r := range rows {
		if r.entry.JobID.Table() != r.table {
			bad = misplaced(r)
			continue
		}
		p.Entries = append(p.Entries, r.entry)
	}
	if last := rows[len(rows)-1]; len(rows) == limit && last.entry.JobID != 0 {
		p.Full = append(p.Full, FullTable{last.table, last.entry})
	}
	return bad
}

// ErrMisplaced marks in Page.Failed a table whose other rows could be read.
var ErrMisplaced = errors.New("row in the wrong table")

// misplaced is a row whose job_id names another table than the one it is in.
type misplaced peeked

func (m misplaced) Error() string {
	return fmt.Sprintf("job_id %s belongs to table %d, not %d", m.entry.JobID, m.entry.JobID.Table(), m.table)
}

func (m misplaced) Is(target error) bool { return target == ErrMisplaced }
