package store

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
)

// Counts says how many rows of each biz type and status the tables hold. It
// reads a whole index of each: for operators and tests, not for engines. A
// table that cannot be read is named in the error and hides no other.
func (s *Store) Counts(ctx context.Context, server int, tables []int) ([]Count, error) {
	return s.countBy(ctx, counts, server, tables)
}

// LiveCounts is Counts without the rows that are done or cancelled: it reads the index entries of the others, one by one.
func (s *Store) LiveCounts(ctx context.Context, server int, tables []int) ([]Count, error) {
	return s.countBy(ctx, liveCounts, server, tables)
}

func (s *Store) countBy(ctx context.Context, by statement, server int, tables []int) ([]Count, error) {
	sv := s.servers[server]
	var all []Count
	var errs []error
	fail := func(table int, err error) { errs = append(errs, s.wrap(err, "count", sv, table)) }
	for group := range slices.Chunk(s.allowed(sv, tables, fail), maxTables) {
		err := apart(group, func(tables []int) error {
			found, err := s.countGroup(ctx, by, sv, tables)
			all = append(all, found...)
			return err
		}, fail)
		if err != nil {
			return all, errors.Join(append(errs, s.wrap(err, "count", sv, group...))...)
		}
	}
	return all, joinOnce(errs)
}

// countGroup gives the counts of all the tables, or none and an error.
func (s *Store) countGroup(ctx context.Context, by statement, sv *server, tables []int) ([]Count, error) {
	var text []byte
	for i, table := range tables {
		if i > 0 {
			text = append(text, unionAll...)
		}
		text = by.render(text, func(b []byte, slot string) []byte {
			if slot == "table_no" {
				return appendInt(b, table)
			}
			return append(b, s.names[table]...)
		})
	}
	type key struct {
		table    int
		typeCode uint64
	}
	index := make(map[key]int)
	var found []Count
	err := s.readTables(ctx, sv, tables, by.name, text, func(_ int, rows *sql.Rows) error {
		part, err := scanCount(rows)
		k := key{part.table, part.typeCode}
		i, known := index[k]
		if !known {
			i = len(found)
			index[k] = i
			found = append(found, Count{Table: part.table, Type: part.typeCode})
		}
		found[i].add(part)
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// countPart is a row of counts.
type countPart struct {
	table    int
	typeCode uint64
	status   tocsin.Status
	rows     int
	earliest time.Time
}

func scanCount(rows *sql.Rows) (p countPart, err error) {
	err = rows.Scan(&p.table, &p.typeCode, &p.status, &p.rows, &p.earliest)
	return p, err
}

func (c *Count) add(p countPart) {
	switch p.status {
	case tocsin.Pending:
		c.Pending, c.Oldest = p.rows, p.earliest.UnixMilli()
	case tocsin.Claimed:
		c.Claimed = p.rows
	case tocsin.Done:
		c.Done = p.rows
	case tocsin.Cancelled:
		c.Cancelled = p.rows
	case tocsin.Dead:
		c.Dead = p.rows
	}
}
