package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

// Own writes that a node took tables for a group, each at an etcd revision, as
// the fence for claims. Where somebody took a table at a later revision, his
// row stays, without an error. Databases are written at the same time; those
// that failed are in the error, an *Unowned, and the others are written all the
// same. It may be repeated.
func (s *Store) Own(ctx context.Context, group, node string, revisions map[int]int64) error {
	tables := slices.Sorted(maps.Keys(revisions))
	for _, table := range tables {
		if s.ServerOf(table) < 0 {
			return fmt.Errorf("own: %w", s.refuse(0, table))
		}
	}
	parts := s.byDatabase(tables)
	errs := make([]error, len(parts))
	var writers sync.WaitGroup
	for i, part := range parts {
		writers.Go(func() { errs[i] = s.ownIn(ctx, part, group, node, revisions) })
	}
	writers.Wait()
	failed := make(map[int]error)
	for i, err := range errs {
		if err != nil {
			failed[parts[i].database] = err
		}
	}
	if len(failed) == 0 {
		return nil // not a nil *Unowned in an error
	}
	return &Unowned{failed}
}

// Unowned is the error of an Own that failed in some databases.
type Unowned struct {
	Failed map[int]error // by database
}

// Error joins what the databases said.
func (u *Unowned) Error() string { return errors.Join(u.Unwrap()...).Error() }

// Unwrap gives the errors in order of their databases.
func (u *Unowned) Unwrap() (all []error) {
	for _, database := range slices.Sorted(maps.Keys(u.Failed)) {
		all = append(all, u.Failed[database])
	}
	return all
}

// ownIn writes the rows of one database, at most maxIDs in a statement.
func (s *Store) ownIn(ctx context.Context, part tablesIn, group, node string, revisions map[int]int64) error {
	sv := s.servers[s.home[part.database]]
	for tables := range slices.Chunk(part.tables, maxIDs) {
		text, args := s.ownText(part.database, tables, group, node, revisions)
		err := mysql.Retry(ctx, func() error { return s.exec(ctx, sv, part.database, own.name, text, args...) })
		if err != nil {
			return s.wrap(err, "own for node "+node, sv, tables...)
		}
	}
	return nil
}

func (s *Store) ownText(database int, tables []int, group, node string, revisions map[int]int64) (text []byte, args []any) {
	rows := func(b []byte) []byte {
		for i, table := range tables {
			if i > 0 {
				b = append(b, ',')
			}
			b = ownRow.render(b, func(b []byte, slot string) []byte {
				if slot == "table_no" {
					return appendInt(b, table)
				}
				return strconv.AppendInt(b, revisions[table], 10)
			})
			args = append(args, group, node)
		}
		return b
	}
	text = own.render(nil, func(b []byte, slot string) []byte {
		if slot == "rows" {
			return rows(b)
		}
		return s.fillDatabase(b, slot, database)
	})
	return text, args
}

// Owners reads which node took each table of a server last, for a group. Tables
// that nobody ever took are not among them.
func (s *Store) Owners(ctx context.Context, server int, group string) (map[int]string, error) {
	text := func(b []byte, database int) []byte {
		return owners.render(b, func(b []byte, slot string) []byte { return s.fillDatabase(b, slot, database) })
	}
	all, err := everyDatabase(ctx, s, s.servers[server], owners.name, text, scanOwner, group)
	for _, u := range s.servers[server].refused() {
		if !u.Moved { // the rows that count are where it has moved to
			err = errors.Join(err, u)
		}
	}
	nodes := make(map[int]string, len(all))
	for _, o := range all {
		nodes[o.table] = o.node
	}
	return nodes, err
}

// owner is a row of owners or fence.
type owner struct {
	table int
	node  string
}

func scanOwner(rows *sql.Rows) (o owner, err error) {
	err = rows.Scan(&o.table, &o.node)
	return o, err
}
