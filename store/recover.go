package store

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin"
)

// maxCrashes is how many claims of a task may run out before it is buried: it
// seems to kill its process.
const maxCrashes = 5

// Recover ends claims of the tables whose deadline passed 5 s ago or more, at
// most limit of them (500 at most): the task is pending again, due at once, or dead where
// this was its fifth. Where it did limit of them, there may be more. A table
// that cannot be read or written is named in the error and holds up no other;
// the counts stand beside the error.
func (s *Store) Recover(ctx context.Context, server int, tables []int, limit int) (Recovered, error) {
	sv := s.servers[server]
	limit = min(limit, maxIDs)
	var total Recovered
	var errs []error
	fail := func(table int, err error) { errs = append(errs, s.wrap(err, "recover", sv, table)) }
	for group := range slices.Chunk(s.allowed(sv, tables, fail), maxTables) {
		err := apart(group, func(tables []int) error {
			return s.recoverGroup(ctx, sv, tables, limit-total.Back-total.Buried, &total)
		}, fail)
		if err != nil {
			return total, errors.Join(append(errs, s.wrap(err, "recover", sv, group...))...)
		}
	}
	return total, joinOnce(errs)
}

// NextRunOut returns in how long the first claim of the tables can be recovered, 0 if it can be now; some is false if there is no
// claim. Tables that can't be read are named in the error, beside the result of the others.
func (s *Store) NextRunOut(ctx context.Context, server int, tables []int) (in time.Duration, some bool, err error) {
	sv := s.servers[server]
	var errs []error
	fail := func(table int, err error) { errs = append(errs, s.wrap(err, "look for claims in", sv, table)) }
	for group := range slices.Chunk(s.allowed(sv, tables, fail), maxTables) {
		err := apart(group, func(tables []int) error {
			return s.readTables(ctx, sv, tables, nextRunOut.name, s.ofTables(nextRunOut, tables, 0), func(_ int, rows *sql.Rows) error {
				var table int
				var micros int64
				err := rows.Scan(&table, &micros)
				if left := time.Duration(max(micros, 0)) * time.Microsecond; err == nil && (!some || left < in) {
					in, some = left, true
				}
				return err
			})
		}, fail)
		if err != nil {
			return in, some, errors.Join(append(errs, s.wrap(err, "look for claims in", sv, group...))...)
		}
	}
	return in, some, joinOnce(errs)
}

// ofTables renders a statement on one table for several, as one.
func (s *Store) ofTables(st statement, tables []int, limit int) (text []byte) {
	for i, table := range tables {
		if i > 0 {
			text = append(text, unionAll...)
		}
		text = st.render(text, func(b []byte, slot string) []byte {
			switch slot {
			case "table":
				return append(b, s.names[table]...)
			case "table_no":
				return appendInt(b, table)
			}
			return appendInt(b, limit)
		})
	}
	return text
}

// recoverGroup adds what one transaction recovers, or nothing if it fails.
func (s *Store) recoverGroup(ctx context.Context, sv *server, tables []int, limit int, total *Recovered) error {
	if limit <= 0 {
		return nil
	}
	ids, err := s.findExpired(ctx, sv, tables, limit)
	if err != nil || len(ids) == 0 {
		return err
	}
	text := s.recoverText(byTable(ids))
	var counts []int64
	err = s.transact(ctx, sv, tables, func(conn *sql.Conn) (err error) {
		counts, err = s.write(ctx, conn, recoverBack.name, text)
		return err
	})
	if err != nil {
		return err
	}
	for i, n := range counts {
		if i%2 == 0 {
			total.Buried += int(n)
		} else {
			total.Back += int(n)
		}
	}
	return nil
}

// findExpired gives the ids of run-out claims, by table. It locks nothing: the
// update checks again.
func (s *Store) findExpired(ctx context.Context, sv *server, tables []int, limit int) ([]tocsin.JobID, error) {
	text := s.ofTables(expired, tables, limit)
	var ids []tocsin.JobID
	err := s.readTables(ctx, sv, tables, expired.name, text, func(_ int, rows *sql.Rows) error {
		var table int
		var id tocsin.JobID
		if err := rows.Scan(&table, &id); err != nil {
			return err
		}
		if id.Table() == table && len(ids) < limit { // a misplaced row is Peek's to report
			ids = append(ids, id)
		}
		return nil
	})
	return sortIDs(ids), err
}

// recoverText is two statements for each table: those to bury, those to give
// back.
func (s *Store) recoverText(parts []idsOf) (b []byte) {
	for _, part := range parts {
		ids := s.fill(part)
		fill := func(b []byte, slot string) []byte {
			if slot == "crashes" {
				return appendInt(b, maxCrashes-1)
			}
			return ids(b, slot)
		}
		b = recoverBury.render(b, fill)
		b = recoverBack.render(b, fill)
	}
	return b
}
