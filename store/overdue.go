package store

import (
	"context"
	"database/sql"
	"slices"
	"time"
)

// Late counts the pending rows of one table and biz type that should have been delivered.
type Late struct {
	Table  int
	Type   uint64
	Rows   int
	Oldest int64 // action time of the oldest
}

// Overdue counts the pending rows with an action time up to until: of each table at most limit, the oldest ones. It asks
// first which tables have any, so that few index entries are read where all is well. A table that can't be read is in
// failed and hides no other; the error is that of the server as a whole.
func (s *Store) Overdue(ctx context.Context, server int, tables []int, until int64, limit int) (all []Late, failed map[int]error, err error) {
	sv := s.servers[server]
	failed = make(map[int]error)
	fail := func(table int, err error) { failed[table] = s.wrap(err, "count overdue rows of", sv, table) }
	tables = s.holding(ctx, sv, PeekQuery{Tables: s.allowed(sv, tables, fail), Until: until})
	for group := range slices.Chunk(tables, maxTables) {
		err := apart(group, func(tables []int) error {
			found, err := s.overdue(ctx, sv, tables, until, limit)
			all = append(all, found...)
			return err
		}, fail)
		if err != nil {
			return all, failed, s.wrap(err, "count overdue rows of", sv, group...)
		}
	}
	return all, failed, nil
}

// overdue gives the counts of all the tables, or none and an error.
func (s *Store) overdue(ctx context.Context, sv *server, tables []int, until int64, limit int) (all []Late, err error) {
	var text []byte
	for i, table := range tables {
		if i > 0 {
			text = append(text, unionAll...)
		}
		text = overdue.render(text, func(b []byte, slot string) []byte {
			switch slot {
			case "table_no":
				return appendInt(b, table)
			case "table":
				return append(b, s.names[table]...)
			case "until":
				return appendTime(b, until)
			}
			return appendInt(b, limit)
		})
	}
	err = s.readTables(ctx, sv, tables, overdue.name, text, func(_ int, rows *sql.Rows) error {
		var o Late
		var oldest time.Time
		err := rows.Scan(&o.Table, &o.Type, &o.Rows, &oldest)
		o.Oldest = oldest.UnixMilli()
		all = append(all, o)
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}
