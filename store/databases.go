package store

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
)

// everyDatabase reads one statement for each database of a server, all in one round
// trip. If that fails with an error that may be one database's, it reads them one by
// one. The rows it could read are returned beside an error that names the other
// databases. Databases that must not be used are left out. args are those of each
// statement.
func everyDatabase[T any](ctx context.Context, s *Store, sv *server, name string,
	text func([]byte, int) []byte, scan func(*sql.Rows) (T, error), args ...any,
) ([]T, error) {
	all, failed, err := eachDatabase(ctx, s.gated(sv), name, sv.refused().without(sv.Databases), text, scan, args...)
	return all, s.unread(sv, name, failed, err)
}

// unread joins the errors of single databases with the error of the whole server.
func (s *Store) unread(sv *server, name string, failed map[int]error, err error) error {
	var errs []error
	for _, database := range slices.Sorted(maps.Keys(failed)) {
		if u := (*Unusable)(nil); errors.As(failed[database], &u) && u.Moved {
			continue // left out, like a database that a Survey found to have moved
		}
		errs = append(errs, s.wrap(failed[database], "read "+name+" of "+s.layout.Database(database), sv))
	}
	if err != nil {
		errs = append(errs, s.wrap(err, "read "+name, sv))
	}
	return errors.Join(errs...)
}

// eachDatabase is everyDatabase for the given databases, with errors by database. The
// error concerns the whole server.
func eachDatabase[T any](ctx context.Context, read reader, name string, databases []int,
	text func([]byte, int) []byte, scan func(*sql.Rows) (T, error), args ...any,
) (all []T, failed map[int]error, err error) {
	failed = make(map[int]error)
	if len(databases) == 0 {
		return nil, failed, nil
	}
	err = apart(databases, func(databases []int) error {
		found, err := readDatabases(ctx, read, name, databases, text, scan, args)
		all = append(all, found...)
		return err
	}, func(database int, err error) { failed[database] = err })
	return all, failed, err
}

// readDatabases gives all rows, or none and an error.
func readDatabases[T any](ctx context.Context, read reader, name string, databases []int,
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
	err := read(ctx, databases, name, b, func(_ int, rows *sql.Rows) error {
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
