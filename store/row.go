package store

import (
	"database/sql"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/duequeue"
	"github.com/tocsinhq/tocsin/internal/payloadmark"
)

// rawRow holds what a Row is made from and is not scanned into it. It may be
// used again for the next row.
type rawRow struct{ dedup, headers, key []byte }

// into appends where rowColumns are scanned to. finish has to follow.
func (raw *rawRow) into(to []any, r *Row) []any {
	return append(to,
		&r.JobID, &r.BizID, &r.Type, &r.Status, &r.ActionTime, &r.DueTime,
		&r.Attempts, &r.Crashes, &r.Version, &r.ClaimedBy, &raw.dedup, &r.LastError, &r.Payload,
		&r.Created, &r.Modified, &raw.headers, &raw.key,
	)
}

func (raw *rawRow) finish(r *Row) {
	r.DedupKey, r.BizKey = string(raw.dedup), string(raw.key)
	headers, version := payloadmark.Take(string(raw.headers))
	r.Headers, r.PayloadVersion = tocsin.Headers(headers), version
	r.Action = r.ActionTime.UnixMilli()
}

// scan reads rowColumns, and names the table.
func (s *Store) scan(r *Row, rows *sql.Rows) error {
	var raw rawRow
	if err := rows.Scan(raw.into(nil, r)...); err != nil {
		return err
	}
	raw.finish(r)
	r.Table = s.names[r.JobID.Table()]
	return nil
}

// scanRow is scan for rows that are read off the hot path.
func (s *Store) scanRow(rows *sql.Rows) (r Row, err error) {
	err = s.scan(&r, rows)
	return r, err
}

// entry is the row as the due index knows it.
func (r *Row) entry() duequeue.Entry {
	return duequeue.Entry{JobID: r.JobID, Type: r.Type, Due: r.Action}
}
