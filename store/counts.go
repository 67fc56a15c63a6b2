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
	return s.countBy(ctx, counting{statement: counts}, server, tables)
}

// LiveCounts is Counts without the rows that are done or cancelled: it reads the index entries of the others, one by one.
func (s *Store) LiveCounts(ctx context.Context, server int, tables []int) ([]Count, error) {
	return s.countBy(ctx, counting{statement: liveCounts}, server, tables)
}

// CountsUpTo is Counts of some statuses, which reads at most so many index entries of each status in each table, those with the
// earliest action times. Of the statuses in more, there may be more rows.
func (s *Store) CountsUpTo(ctx context.Context, server int, tables []int, most int, statuses ...tocsin.Status) (all []Count, more []tocsin.Status, err error) {
	var errs []error
	for _, status := range statuses {
		found, err := s.countBy(ctx, counting{someCounts, status, most}, server, tables)
		all, errs = append(all, found...), append(errs, err)
		rows := map[int]int{}
		for _, c := range found {
			rows[c.Table] += c.Pending + c.Claimed + c.Done + c.Cancelled + c.Dead
			if rows[c.Table] >= most && !slices.Contains(more, status) {
				more = append(more, status)
			}
		}
	}
	return all, more, joinOnce(errs)
}

// counting is a statement that counts rows, and what someCounts needs more.
type counting struct {
	statement
	status tocsin.Status
	most   int
}

func (s *Store) countBy(ctx context.Context, by counting, server int, tables []int) ([]Count, error) {
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
func (s *Store) countGroup(ctx context.Context, by counting, sv *server, tables []int) ([]Count, error) {
	var text []byte
	for i, table := range tables {
		if i > 0 {
			text = append(text, unionAll...)
		}
		text = by.render(text, func(b []byte, slot string) []byte {
			switch slot {
			case "table_no":
				return appendInt(b, table)
			case "status":
				return appendInt(b, int(by.status))
			case "limit":
				return appendInt(b, by.most)
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
