package store

import (
	"database/sql"
)

// scanRow reads rowColumns.
func (r *Row) scan(rows *sql.Rows) error {
	var dedup []byte
	err := rows.Scan(
		&r.JobID, &r.BizID, &r.Type, &r.Status, &r.ActionTime, &r.DueTime,
		&r.Attempts, &r.Crashes, &r.Version, &r.ClaimedBy, &dedup, &r.LastError, &r.Attribute,
		&r.Created, &r.Modified,
	)
	r.DedupKey = string(dedup)
	r.Action = r.ActionTime.UnixMilli()
	return err
}

// scan reads a row and says which table it is in.
func (s *Store) scan(r *Row, rows *sql.Rows) error {
	err := r.scan(rows)
	r.Table = s.names[r.JobID.Table()]
	return err
}
