package store

import (
	"context"
	"database/sql"
	"math"
	"strconv"
	"time"
)

// Bells reads the doorbells of a server's databases in one round trip: by
// database, those that are unheard (from the beginning where it names none): at
// most limit of the missing, in order of id, and then at most limit of those
// behind, in order of id. A bell is a hint: its row may have changed or be gone.
// A database that cannot be read is named in the error and hides no other.
func (s *Store) Bells(ctx context.Context, server int, unheard map[int]Unheard, limit int) (map[int][]Bell, error) {
	text := func(b []byte, database int) []byte {
		ask := unheard[database]
		if len(ask.Missing) > 0 {
			b = append(s.bellsText(b, database, limit, ask.Missing...), unionAll...)
		}
		return s.bellsText(b, database, limit, Span{ask.After + 1, math.MaxUint64})
	}
	all, err := everyDatabase(ctx, s, s.servers[server], bells.name, text, scanBell)
	rung := make(map[int][]Bell)
	for _, r := range all {
		rung[r.database] = append(rung[r.database], r.bell)
	}
	return rung, err
}

func (s *Store) bellsText(b []byte, database, limit int, spans ...Span) []byte {
	return bells.render(b, func(b []byte, slot string) []byte {
		switch slot {
		case "spans":
			return appendSpans(b, spans)
		case "limit":
			return appendInt(b, limit)
		}
		return s.fillDatabase(b, slot, database)
	})
}

// appendSpans appends the condition that an id is in one of the spans.
func appendSpans(b []byte, spans []Span) []byte {
	for i, span := range spans {
		if i > 0 {
			b = append(b, " OR "...)
		}
		b = strconv.AppendUint(append(b, "id BETWEEN "...), span.Low, 10)
		b = strconv.AppendUint(append(b, " AND "...), span.High, 10)
	}
	return b
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
