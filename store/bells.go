package store

import (
	"context"
	"database/sql"
	"strconv"
	"time"
)

// Bells reads the doorbells of a server's databases in one round trip: by
// database, in order of id, those behind after (0 where it names none), at most
// limit of each. A bell is a hint: its row may have changed or be gone. A
// database that cannot be read is named in the error and hides no other.
func (s *Store) Bells(ctx context.Context, server int, after map[int]uint64, limit int) (map[int][]Bell, error) {
	text := func(b []byte, database int) []byte {
		return bells.render(b, func(b []byte, slot string) []byte {
			switch slot {
			case "after":
				return strconv.AppendUint(b, after[database], 10)
			case "limit":
				return appendInt(b, limit)
			}
			return s.fillDatabase(b, slot, database)
		})
	}
	all, err := everyDatabase(ctx, s, s.servers[server], bells.name, text, scanBell)
	rung := make(map[int][]Bell)
	for _, r := range all {
		rung[r.database] = append(rung[r.database], r.bell)
	}
	return rung, err
}

// rungBell is a bell and the number of its database.
type rungBell struct {
	database int
	bell     Bell
}

func scanBell(rows *sql.Rows) (r rungBell, err error) {
	var due time.Time
	err = rows.Scan(&r.database, &r.bell.ID, &r.bell.Entry.JobID, &r.bell.Entry.Type, &due)
	r.bell.Entry.Due = due.UnixMilli()
	return r, err
}

// LastBell reads the highest id of each doorbell of a server: where to start
// from, and by its falling, that the doorbell was purged or set back. 0: empty.
// A database that cannot be read is named in the error and hides no other.
func (s *Store) LastBell(ctx context.Context, server int) (map[int]uint64, error) {
	text := func(b []byte, database int) []byte {
		return lastBell.render(b, func(b []byte, slot string) []byte { return s.fillDatabase(b, slot, database) })
	}
	all, err := everyDatabase(ctx, s, s.servers[server], lastBell.name, text, func(rows *sql.Rows) (r rungBell, err error) {
		err = rows.Scan(&r.database, &r.bell.ID)
		return r, err
	})
	last := make(map[int]uint64)
	for _, r := range all {
		last[r.database] = r.bell.ID
	}
	return last, err
}
