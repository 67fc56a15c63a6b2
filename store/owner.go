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
// row stays, without an error. Servers are written at the same time; the error
// names those that failed, the others are written all the same. It may be
// repeated.
func (s *Store) Own(ctx context.Context, group, node string, revisions map[int]int64) error {
	tables := slices.Sorted(maps.Keys(revisions))
	for _, table := range tables {
		if s.ServerOf(table) < 0 {
			return fmt.Errorf("own: %w", s.refuse(0, table))
		}
	}
	byServer := make([][]tablesIn, len(s.servers))
	for _, part := range s.byDatabase(tables) {
		home := s.home[part.database]
		byServer[home] = append(byServer[home], part)
	}
	errs := make([]error, len(s.servers))
	var writers sync.WaitGroup
	for i, parts := range byServer {
		writers.Go(func() { errs[i] = s.ownOn(ctx, s.servers[i], parts, group, node, revisions) })
	}
	writers.Wait()
	return errors.Join(errs...)
}

// ownOn writes the rows of one server, at most maxIDs in a statement.
func (s *Store) ownOn(ctx context.Context, sv *server, parts []tablesIn, group, node string, revisions map[int]int64) error {
	for _, part := range parts {
		for tables := range slices.Chunk(part.tables, maxIDs) {
			text, args := s.ownText(part.database, tables, group, node, revisions)
			err := mysql.Retry(ctx, func() error { return s.exec(ctx, sv, own.name, text, args...) })
			if err != nil {
				return s.wrap(err, "own for node "+node, sv, tables...)
			}
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
