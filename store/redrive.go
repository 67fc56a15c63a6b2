package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/duequeue"
)

// redriveMany and ringMany are redrive and ring for several tasks of one table.
// What rings is pending now, whoever made it so: a bell too many is harmless.
var (
	redriveMany = prepare(`
UPDATE /* tocsin redrive */ {table} FORCE INDEX (PRIMARY)
SET status = 0,
    action_time = UTC_TIMESTAMP(3),
    attempts = 0,
    crashes = 0,
    version = version + 1,
    claimed_by = '',
    gmt_modified = UTC_TIMESTAMP(3)
WHERE job_id IN ({ids})
  AND status = 4
  AND action_time <= {until};`)
	ringMany = prepare(`
INSERT /* tocsin ring */ INTO {database}.doorbell
    (table_no, job_id, biz_type, action_time)
SELECT
    {table_no},
    job_id,
    biz_type,
    action_time
FROM {table} FORCE INDEX (PRIMARY)
WHERE job_id IN ({ids})
  AND status = 0;`)
)

// Redrive makes a dead task pending again, due at once, with a new idempotency
// key, and rings the bell. False: there is no such dead task.
func (s *Store) Redrive(ctx context.Context, id tocsin.JobID) (bool, error) {
	home := s.ServerOf(id.Table())
	if home < 0 {
		return false, fmt.Errorf("redrive job_id %s: %w", id, s.refuse(0, id.Table()))
	}
	sv := s.servers[home]
	var hit bool
	err := s.transact(ctx, sv, []int{id.Table()}, func(conn *sql.Conn) error {
		counts, err := s.write(ctx, conn, redrive.name, redrive.render(nil, s.fillRow(id)))
		hit = sum(counts) > 0
		if err != nil || !hit {
			return err
		}
		_, err = s.write(ctx, conn, ring.name, ring.render(nil, s.fillRow(id)))
		return err
	})
	if err != nil {
		return false, s.wrap(err, "redrive job_id "+id.String()+" in", sv, id.Table())
	}
	return hit, nil
}

// fillRow fills the slots that follow from a job_id.
func (s *Store) fillRow(id tocsin.JobID) func([]byte, string) []byte {
	return func(b []byte, slot string) []byte {
		switch slot {
		case "job_id":
			return append(b, id.String()...)
		case "table":
			return append(b, s.names[id.Table()]...)
		case "table_no":
			return appendInt(b, id.Table())
		}
		return s.fillDatabase(b, slot, s.layout.DatabaseOf(id.Table()))
	}
}

// DeadQuery says which dead tasks of a server to redrive.
type DeadQuery struct {
	Server int
	Tables []int
	Types  []uint64 // numbers of biz types; nil: all
	Until  int64    // dead since then at the latest: who dies again is not redriven again
	Limit  int      // tasks at most, and 500 at most
}

// RedriveDead redrives dead tasks, the longest dead first, and gives their
// number. Where that is the limit, there may be more. A table that cannot be
// read or written is named in the error and holds up no other; the number
// stands beside the error.
func (s *Store) RedriveDead(ctx context.Context, q DeadQuery) (int, error) {
	sv := s.servers[q.Server]
	q.Limit = min(q.Limit, maxIDs)
	total := 0
	var errs []error
	fail := func(table int, err error) { errs = append(errs, s.wrap(err, "redrive dead tasks of", sv, table)) }
	for group := range slices.Chunk(s.allowed(sv, q.Tables, fail), maxTables) {
		err := apart(group, func(tables []int) error {
			n, err := s.redriveGroup(ctx, sv, tables, q, q.Limit-total)
			total += n
			return err
		}, fail)
		if err != nil {
			return total, errors.Join(append(errs, s.wrap(err, "redrive dead tasks of", sv, group...))...)
		}
	}
	return total, joinOnce(errs)
}

// redriveGroup gives how many tasks one transaction redrove, 0 if it failed.
func (s *Store) redriveGroup(ctx context.Context, sv *server, tables []int, q DeadQuery, limit int) (int, error) {
	if limit <= 0 {
		return 0, nil
	}
	found := FindQuery{Status: tocsin.Dead, Types: q.Types, Limit: limit}
	entries, err := s.findGroup(ctx, sv, tables, found)
	if err != nil {
		return 0, err
	}
	ids := s.deadUntil(found.first(entries), q)
	if len(ids) == 0 {
		return 0, nil
	}
	var counts []int64
	err = s.transact(ctx, sv, tables, func(conn *sql.Conn) (err error) {
		counts, err = s.write(ctx, conn, redrive.name, s.redriveText(byTable(ids), q.Until))
		return err
	})
	if err != nil {
		return 0, err
	}
	redriven := 0
	for i := 0; i < len(counts); i += 2 { // every other one rings
		redriven += int(counts[i])
	}
	return redriven, nil
}

// deadUntil gives the ids to redrive. A misplaced row is the auditor's to report.
func (s *Store) deadUntil(entries []duequeue.Entry, q DeadQuery) []tocsin.JobID {
	var ids []tocsin.JobID
	for _, e := range entries {
		if e.Due <= q.Until && s.ServerOf(e.JobID.Table()) == q.Server {
			ids = append(ids, e.JobID)
		}
	}
	return sortIDs(ids)
}

// redriveText is two statements for each table: redrive and ring.
func (s *Store) redriveText(parts []idsOf, until int64) (b []byte) {
	for _, part := range parts {
		fill := func(b []byte, slot string) []byte {
			switch slot {
			case "table":
				return append(b, s.names[part.table]...)
			case "table_no":
				return appendInt(b, part.table)
			case "until":
				return appendTime(b, until)
			case "ids":
				return appendList(b, part.ids)
			}
			return s.fillDatabase(b, slot, s.layout.DatabaseOf(part.table))
		}
		b = redriveMany.render(b, fill)
		b = ringMany.render(b, fill)
	}
	return b
}
