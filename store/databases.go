package store

import (
	"context"
	"database/sql"
	"errors"
)

// everyDatabase reads one statement for each database of a server, all in one
// round trip, or where that fails for a fault that may be one database's, one
// by one. The rows read stand beside an error, which names the databases that
// cannot be read. args are each statement's.
func everyDatabase[T any](ctx context.Context, s *Store, sv *server, name string,
	text func([]byte, int) []byte, scan func(*sql.Rows) (T, error), args ...any,
) ([]T, error) {
	var all []T
	var errs []error
	err := apart(sv.Databases, func(databases []int) error {
		found, err := readDatabases(ctx, s, sv, name, databases, text, scan, args)
		all = append(all, found...)
		return err
	}, func(database int, err error) {
		errs = append(errs, s.wrap(err, "read "+name+" of "+s.layout.Database(database), sv))
	})
	if err != nil {
		errs = append(errs, s.wrap(err, "read "+name, sv))
	}
	return all, errors.Join(errs...)
}

// readDatabases gives all rows, or none and an error.
func readDatabases[T any](ctx context.Context, s *Store, sv *server, name string, databases []int,
	text func([]byte, int) []byte, scan func(*sql.Rows) (T, error), args []any,
) ([]T, error) {
	var b []byte
	var all []any
	for i, database := range databases {
		if i > 0 {
			b = append(b, unionAll...)
		}
		b = text(b, database)
		all = append(all, args...)
	}
	var found []T
	err := s.read(ctx, sv.DB, name, b, func(_ int, rows *sql.Rows) error {
		row, err := scan(rows)
		found = append(found, row)
		return err
	}, all...)
	if err != nil {
		return nil, err
	}
	return found, nil
}

// fillDatabase fills the slots that follow from a database's number.
func (s *Store) fillDatabase(b []byte, slot string, database int) []byte {
	if slot == "database_no" {
		return appendInt(b, database)
	}
	return append(b, s.layout.Database(database)...)
}

// tablesIn are tables of one database.
type tablesIn struct {
	database int
	tables   []int
}

// byDatabase cuts ascending table numbers into those of each database.
func (s *Store) byDatabase(tables []int) []tablesIn {
	var parts []tablesIn
	for start := 0; start < len(tables); {
		database, end := s.layout.DatabaseOf(tables[start]), start+1
		for end < len(tables) && s.layout.DatabaseOf(tables[end]) == database {
			end++
		}
		parts = append(parts, tablesIn{database, tables[start:end]})
		start = end
	}
	return parts
}
