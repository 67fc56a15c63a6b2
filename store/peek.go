package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/tocsinhq/tocsin/duequeue"
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
	sv := s.servers[q.Server]
	q.Tables = s.allowed(sv, q.Tables, page.fail)
	if q.Sparse {
		q.Tables = s.holding(ctx, sv, q)
	}
	tail := peekTail(q)
	for group := range slices.Chunk(q.Tables, maxTables) {
		err := apart(group, func(tables []int) error {
			return s.peek(ctx, sv, tables, tail, q.Limit, &page)
		}, func(table int, err error) {
			page.fail(table, s.wrap(err, "peek", sv, table))
		})
		if err != nil {
			return page, s.wrap(err, "peek", sv, group...)
		}
	}
	return page, nil
}

func (p *Page) fail(table int, err error) {
	if p.Failed == nil {
		p.Failed = make(map[int]error)
	}
	p.Failed[table] = err
}

// peekTail fills the slots that are the same for all tables of a query.
func peekTail(q PeekQuery) map[string][]byte {
	bounds := func(b []byte, slot string) []byte {
		switch slot {
		case "from":
			return appendTime(b, q.From)
		case "until":
			return appendTime(b, q.Until)
		case "due":
			return appendTime(b, q.After.Due)
		case "type":
			return strconv.AppendUint(b, q.After.Type, 10)
		}
		return append(b, q.After.JobID.String()...)
	}
	types := appendList(nil, q.Types)
	if q.Any {
		types = []byte("biz_type") // IN (biz_type) holds for every row
	}
	span := peekFrom
	if q.After.JobID != 0 {
		span = peekAfter
	}
	return map[string][]byte{
		"status": appendInt(nil, int(q.Status)),
		"range":  span.render(nil, bounds),
		"types":  types,
		"limit":  appendInt(nil, q.Limit),
	}
}

// peekText is one statement over the tables.
func (s *Store) peekText(tables []int, tail map[string][]byte) []byte {
	var b []byte
	for i, table := range tables {
		if i > 0 {
			b = append(b, unionAll...)
		}
		b = peek.render(b, func(b []byte, slot string) []byte {
			switch slot {
			case "table":
				return append(b, s.names[table]...)
			case "table_no":
				return appendInt(b, table)
			}
			return append(b, tail[slot]...)
		})
	}
	return b
}

// peek adds what one statement finds to the page, or nothing if it fails.
func (s *Store) peek(ctx context.Context, sv *server, tables []int, tail map[string][]byte, limit int, page *Page) error {
	found := peeked{limit: limit}
	err := s.readTables(ctx, sv, tables, peek.name, s.peekText(tables, tail), found.scan)
	if err != nil {
		return err
	}
	page.Entries = append(page.Entries, found.entries...)
	page.Full = append(page.Full, found.full...)
	for _, bad := range found.misplaced {
		page.fail(bad.table, s.wrap(bad, "peek", sv, bad.table))
	}
	return nil
}

// peeked collects the rows of one statement, which come table by table.
type peeked struct {
	limit       int
	table, rows int            // the table under way and its rows so far
	last        duequeue.Entry // its last row that is in its place
	entries     []duequeue.Entry
	full        []duequeue.Entry
	misplaced   []misplaced
}

// ErrMisplaced marks in Page.Failed a table whose other rows could be read.
var ErrMisplaced = errors.New("row in the wrong table")

// misplaced is a row whose job_id names another table than the one it is in.
type misplaced struct {
	table int
	entry duequeue.Entry
}

func (m misplaced) Error() string {
	return fmt.Sprintf("job_id %s belongs to table %d, not %d", m.entry.JobID, m.entry.JobID.Table(), m.table)
}

func (m misplaced) Is(target error) bool { return target == ErrMisplaced }

func (p *peeked) scan(_ int, rows *sql.Rows) error {
	var table int
	var e duequeue.Entry
	var due time.Time
	if err := rows.Scan(&table, &e.JobID, &e.Type, &due); err != nil {
		return err
	}
	e.Due = due.UnixMilli()
	if table != p.table {
		p.table, p.rows, p.last = table, 0, duequeue.Entry{}
	}
	if e.JobID.Table() != table {
		p.misplaced = append(p.misplaced, misplaced{table, e})
	} else {
		p.entries = append(p.entries, e)
		p.last = e
	}
	if p.rows++; p.rows == p.limit && p.last.JobID != 0 {
		p.full = append(p.full, p.last)
	}
	return nil
}
