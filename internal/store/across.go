package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

// Bounds of one statement and of one round trip.
const (
	maxTables = 64  // tables in one UNION ALL
	maxIDs    = 500 // ids in one statement, and rows in one transaction
)

// question is a statement that is asked of many tables or databases at once, as one UNION ALL.
type question[R any] struct {
	verb string // in errors, followed by the table
	statement
	in   slots
	text func(b []byte, place int) []byte // instead of the statement filled from in; nil: none
	scan func(*sql.Rows) (R, error)
	args []any // of each table or database

	within time.Duration // after which the server ends the statement, and the work on that server; 0: never
}

// into scans a row into the places that fields returns, in the order of the columns.
func into[R any](fields func(*R) []any) func(*sql.Rows) (R, error) {
	return func(rows *sql.Rows) (row R, err error) {
		err = rows.Scan(fields(&row)...)
		return row, err
	}
}

// across asks a question of tables of one server, up to maxTables of them in one round trip. A table that can't be read is
// in failed and hides no other; the error is that of the server as a whole. What was read stands beside both.
func across[R any](ctx context.Context, s *Store, sv *server, tables []int, q question[R]) (all []R, failed map[int]error, err error) {
	failed = make(map[int]error)
	fail := func(table int, err error) { failed[table] = s.wrap(err, q.verb, sv, table) }
	for group := range slices.Chunk(s.allowed(sv, tables, fail), maxTables) {
		err := apart(group, func(tables []int) error {
			found, err := q.ask(ctx, s.gated(sv), s.databasesIn(tables), tables, s.ofTable)
			all = append(all, found...)
			return err
		}, fail)
		if err != nil {
			return all, failed, s.wrap(err, q.verb, sv, group...)
		}
	}
	return all, failed, nil
}

// everyDatabase asks a question of the usable databases of one server, all in one round trip. The rows of those that could be
// read are returned beside an error that names the others.
func everyDatabase[R any](ctx context.Context, s *Store, sv *server, q question[R]) ([]R, error) {
	all, failed, err := eachDatabase(ctx, s, s.gated(sv), sv.refused().without(sv.Databases), q)
	return all, s.unread(sv, q.name, failed, err)
}

// eachDatabase is everyDatabase for the given databases, with errors by database. The error concerns the whole server.
func eachDatabase[R any](ctx context.Context, s *Store, read reader, databases []int, q question[R]) (all []R, failed map[int]error, err error) {
	failed = make(map[int]error)
	if len(databases) == 0 {
		return nil, failed, nil
	}
	err = apart(databases, func(databases []int) error {
		found, err := q.ask(ctx, read, databases, databases, s.ofDatabase)
		all = append(all, found...)
		return err
	}, func(database int, err error) { failed[database] = err })
	return all, failed, err
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

// inDatabase asks a question of one database.
func inDatabase[R any](ctx context.Context, s *Store, database int, q question[R]) ([]R, error) {
	databases := []int{database}
	return q.ask(ctx, s.gated(s.homeOf(database)), databases, databases, s.ofDatabase)
}

// ask asks the question of places, tables or databases, in one round trip, and returns all rows, or none and an error.
func (q question[R]) ask(ctx context.Context, read reader, databases, places []int, of func(place int, in slots) filler) (all []R, err error) {
	var text []byte
	var args []any
	for i, place := range places {
		if i > 0 {
			text = append(text, unionAll...)
		}
		if args = append(args, q.args...); q.text != nil {
			text = q.text(text, place)
		} else {
			text = q.render(text, of(place, q.in))
		}
	}
	if q.within > 0 {
		text = mysql.Within(q.within, text)
	}
	err = read(ctx, databases, q.name, text, func(_ int, rows *sql.Rows) error {
		row, err := q.scan(rows)
		all = append(all, row)
		return err
	}, args...)
	switch {
	case err == nil:
		return all, nil
	case q.within > 0:
		err = mysql.TimeUp(q.within, err)
	}
	return nil, err
}

// addFailed notes the error of a table, in a map that it makes if there is none yet.
func addFailed(all *map[int]error, table int, err error) {
	if *all == nil {
		*all = make(map[int]error)
	}
	(*all)[table] = err
}

// joined joins the errors of tables with that of their server.
func joined(failed map[int]error, err error) error {
	var errs []error
	for _, table := range slices.Sorted(maps.Keys(failed)) {
		errs = append(errs, failed[table])
	}
	return Join(append(errs, err)...)
}

// apart runs do on the whole group. Where that fails for a fault that may be
// one member's, do runs on each member alone, so that a missing or locked table
// holds up no other; fail is told of each that fails then. do must leave
// nothing behind where it fails. The error is a fault of the server, which ends
// the work.
func apart[T any](group []T, do func([]T) error, fail func(T, error)) error {
	return apartBy(each, group, do, fail)
}

// apartBy is apart with another each.
func apartBy[T any](each func([]T, func([]T) error, func(T, error)) error, group []T, do func([]T) error, fail func(T, error)) error {
	if len(group) == 0 {
		return nil
	}
	err := do(group)
	if err == nil || !local(err) {
		return err
	}
	if len(group) == 1 {
		fail(group[0], err)
		return nil
	}
	return each(group, do, fail)
}

// each runs do on each member alone, like apart without the whole.
func each[T any](group []T, do func([]T) error, fail func(T, error)) error {
	for i := range group {
		err := do(group[i : i+1])
		if err != nil && !local(err) {
			return err
		}
		if err != nil {
			fail(group[i], err)
		}
	}
	return nil
}

// local reports whether the fault may be that of a single table or row, the
// server being well.
func local(err error) bool {
	doubt, lost := (*InDoubt)(nil), (*Unanswered)(nil)
	if errors.As(err, &doubt) || errors.As(err, &lost) {
		return false
	}
	return err != nil && !mysql.Unanswered(err)
}

// wrap adds the statement, the server and the tables to an error; nil stays nil. An
// *Unusable needs no such addition.
func (s *Store) wrap(err error, verb string, sv *server, tables ...int) error {
	if err == nil {
		return nil
	}
	if refused := (*Unusable)(nil); errors.As(err, &refused) {
		return refused
	}
	switch len(tables) {
	case 0:
		return fmt.Errorf("%s on %s: %w", verb, sv.Name, err)
	case 1:
		return fmt.Errorf("%s %s on %s: %w", verb, s.layout.Table(tables[0]), sv.Name, err)
	}
	return fmt.Errorf("%s %d tables from %s on %s: %w", verb, len(tables), s.layout.Table(tables[0]), sv.Name, err)
}

// wrapTable is wrap for a table beside the task tables.
func (s *Store) wrapTable(err error, verb string, database int, table string) error {
	if err == nil {
		return nil
	}
	return s.wrap(fmt.Errorf("%s.%s: %w", s.layout.Database(database), table, err), verb, s.homeOf(database))
}

// refuse says why a server does not take a row of the table, nil if it does.
func (s *Store) refuse(server, table int) error {
	switch home := s.ServerOf(table); home {
	case server:
		return nil
	case -1:
		return fmt.Errorf("layout %s has no table %d", s.layout, table)
	default:
		return fmt.Errorf("table %d is on server %s", table, s.servers[home].Name)
	}
}

// homeOf returns the server of a database.
func (s *Store) homeOf(database int) *server { return s.servers[s.home[database]] }

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

// Partial is the error beside a result that lacks what some servers hold. Its text has what went wrong on each.
type Partial struct {
	Servers []string // names of those that could not be asked in full
	All     bool     // these are all servers there are
	err     error
}

func (p *Partial) Error() string { return p.err.Error() }
func (p *Partial) Unwrap() error { return p.err }

// Lacking joins what went wrong by server into a Partial; nil if nothing did.
func Lacking(servers []string, errs []error) error {
	p := &Partial{}
	for i, err := range errs {
		if err != nil {
			p.Servers, p.err = append(p.Servers, servers[i]), errors.Join(p.err, err)
		}
	}
	if p.err == nil {
		return nil
	}
	p.All = len(p.Servers) == len(servers)
	return p
}
