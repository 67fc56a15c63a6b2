package store

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

// Bounds of one statement and of one round trip.
const (
	maxTables = 64  // tables in one UNION ALL
	maxIDs    = 500 // ids in one statement, and rows in one transaction
)

// apart runs do on the whole group. Where that fails for a fault that may be
// one member's, do runs on each member alone, so that a missing or locked table
// holds up no other; fail is told of each that fails then. do must leave
// nothing behind where it fails. The error is a fault of the server, which ends
// the work.
func apart[T any](group []T, do func([]T) error, fail func(T, error)) error {
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
	if doubt := (*InDoubt)(nil); errors.As(err, &doubt) {
		return false
	}
	class := mysql.ClassOf(err)
	return class != mysql.OK && class != mysql.Canceled && !class.OfServer()
}

// wrap adds the statement, the server and the tables to an error. An *Unusable needs no
// such addition.
func (s *Store) wrap(err error, verb string, sv *server, tables ...int) error {
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

// joinOnce joins errors. The same *Unusable for many tables of a database is joined
// once.
func joinOnce(errs []error) error {
	var some []error
	for _, err := range errs {
		if _, refused := err.(*Unusable); !refused || !slices.Contains(some, err) {
			some = append(some, err)
		}
	}
	return errors.Join(some...)
}
