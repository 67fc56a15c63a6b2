package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/layoutrow"
)

// byRestore is true of a row that a restore made dead.
const byRestore = "last_error LIKE '" + layoutrow.RestoredError + "%'"

// dead reads which rows of one table are dead, by primary key, and which of them a
// restore made dead. {which} is the rest of the condition. Its argument, if {which}
// has one, is a part of last_error.
var dead = prepare(`
(SELECT /* tocsin dead */
    job_id,
    ` + byRestore + `
FROM {table} FORCE INDEX (PRIMARY)
WHERE job_id IN ({ids})
  AND status = 4
  {which})`)

// redrive makes dead rows of one table pending, due at once. {key} is newKey or
// sameKey, {which} as in dead. Fewer rows than ids: some are not dead any more, or
// died again since.
var redrive = prepare(`
UPDATE /* tocsin redrive */ {table} FORCE INDEX (PRIMARY)
SET status = 0,
    {key},
    attempts = 0,
    crashes = 0,
    claimed_by = '',
    gmt_modified = UTC_TIMESTAMP(3)
WHERE job_id IN ({ids})
  AND status = 4
  {which};`)

// newKey and sameKey are the parts of redrive that differ. A row with the same
// version is fenced by its action_time: it is later than the death, and so later
// than that of any attempt that was loaded before. Its due_time is not later than
// now, as the auditor takes a row of version 0 for one that nobody brought forward.
const (
	newKey  = `action_time = UTC_TIMESTAMP(3), version = version + 1`
	sameKey = `action_time = GREATEST(UTC_TIMESTAMP(3), action_time + INTERVAL 1000 MICROSECOND), due_time = LEAST(due_time, UTC_TIMESTAMP(3))`
)

// The parts of {which}.
var (
	diedBetween = prepare(`AND action_time >= {since} AND action_time <= {until}`)
	withError   = ` AND LOCATE(?, last_error) > 0`
)

// ring rings the doorbell for rows of one table. What rings is pending now, whoever
// made it so: a bell too many is harmless.
var ring = prepare(`
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

// DeadQuery says which dead tasks of a server are meant.
type DeadQuery struct {
	Server   int
	Since    int64  // died then at the earliest
	Until    int64  // died then at the latest: who dies again is not redriven again
	Error    string // part of last_error, in upper and lower case as it stands there; "": any
	Restored bool   // those that a restore made dead, and no others; false: the others
}

// which renders the condition on dead rows, and returns its arguments.
func (q *DeadQuery) which() (text []byte, args []any) {
	text = diedBetween.render(nil, func(b []byte, slot string) []byte {
		if slot == "since" {
			return appendTime(b, q.Since)
		}
		return appendTime(b, q.Until)
	})
	if q.Error != "" {
		text, args = append(text, withError...), []any{q.Error}
	}
	return text, args
}

// Redrive makes a dead task pending again, due at once, and rings the bell. It gets
// a new idempotency key, or with same keeps the one it has. False: there is no such
// dead task.
func (s *Store) Redrive(ctx context.Context, id tocsin.JobID, same bool) (bool, error) {
	home := s.ServerOf(id.Table())
	if home < 0 {
		return false, fmt.Errorf("redrive job_id %s: %w", id, s.refuse(0, id.Table()))
	}
	sv := s.servers[home]
	n, err := s.redrive(ctx, sv, []idsOf{{id.Table(), []tocsin.JobID{id}}}, same, nil, nil)
	if err != nil {
		return false, s.wrap(err, "redrive job_id "+id.String()+" in", sv, id.Table())
	}
	return n > 0, nil
}

// Dead gives those of the ids, at most 500, whose tasks are dead as asked for, and
// how many others were left only because a restore made them dead. A table that
// cannot be read is named in the error and holds up no other.
func (s *Store) Dead(ctx context.Context, q DeadQuery, ids []tocsin.JobID) (found []tocsin.JobID, left int, err error) {
	which, args := q.which()
	err = s.eachPart(q.Server, ids, "look for dead tasks in", func(sv *server, parts []idsOf) error {
		var text []byte
		var all []any
		for i, part := range parts {
			if i > 0 {
				text = append(text, unionAll...)
			}
			text, all = dead.render(text, s.fillRows(part, "", which)), append(all, args...)
		}
		var some []tocsin.JobID
		restored := 0
		err := s.readTables(ctx, sv, tablesOf(parts), dead.name, text, func(_ int, rows *sql.Rows) error {
			var id tocsin.JobID
			var by bool
			err := rows.Scan(&id, &by)
			if by == q.Restored {
				some = append(some, id)
			} else if by {
				restored++
			}
			return err
		}, all...)
		if err == nil {
			found, left = append(found, some...), left+restored
		}
		return err
	})
	return found, left, err
}

// RedriveDead redrives those of the ids, at most 500, whose tasks are still dead as
// asked for, and gives their number; same as in Redrive. A table that cannot be
// written is named in the error and holds up no other; the number stands beside the
// error.
func (s *Store) RedriveDead(ctx context.Context, q DeadQuery, ids []tocsin.JobID, same bool) (total int, err error) {
	which, args := q.which()
	restored := " AND NOT " + byRestore
	if q.Restored {
		restored = " AND " + byRestore
	}
	which = append(which, restored...)
	err = s.eachPart(q.Server, ids, "redrive dead tasks of", func(sv *server, parts []idsOf) error {
		n, err := s.redrive(ctx, sv, parts, same, which, args)
		total += n
		return err
	})
	return total, err
}

// eachPart runs do on ids of one server by their tables, apart if that fails.
func (s *Store) eachPart(server int, ids []tocsin.JobID, verb string, do func(*server, []idsOf) error) error {
	sv := s.servers[server]
	ids = sortIDs(ids)
	parts := slices.DeleteFunc(byTable(ids[:min(len(ids), maxIDs)]), func(part idsOf) bool { return s.refuse(server, part.table) != nil })
	var errs []error
	for group := range slices.Chunk(parts, maxTables) {
		err := apart(group, func(parts []idsOf) error { return do(sv, parts) },
			func(part idsOf, err error) { errs = append(errs, s.wrap(err, verb, sv, part.table)) })
		if err != nil {
			return errors.Join(append(errs, s.wrap(err, verb, sv, tablesOf(group)...))...)
		}
	}
	return joinOnce(errs)
}

// redrive is one transaction. It gives how many tasks it redrove, 0 if it failed.
func (s *Store) redrive(ctx context.Context, sv *server, parts []idsOf, same bool, which []byte, args []any) (total int, err error) {
	text, all := s.redriveText(parts, same, which, args)
	err = s.transact(ctx, sv, tablesOf(parts), func(conn *sql.Conn) error {
		counts, err := s.write(ctx, conn, redrive.name, text, all...)
		total = int(sum(counts))
		if err != nil || total == 0 {
			return err
		}
		var bells []byte
		for i, part := range parts {
			if counts[i] > 0 {
				bells = ring.render(bells, s.fillRows(part, "", nil))
			}
		}
		_, err = s.write(ctx, conn, ring.name, bells)
		return err
	})
	if err != nil {
		return 0, err
	}
	return total, nil
}

// redriveText is a statement for each table.
func (s *Store) redriveText(parts []idsOf, same bool, which []byte, args []any) (text []byte, all []any) {
	key := newKey
	if same {
		key = sameKey
	}
	for _, part := range parts {
		text, all = redrive.render(text, s.fillRows(part, key, which)), append(all, args...)
	}
	return text, all
}

// fillRows fills the slots of dead, redrive, ring and buryByHand.
func (s *Store) fillRows(part idsOf, key string, which []byte) func([]byte, string) []byte {
	return func(b []byte, slot string) []byte {
		switch slot {
		case "table":
			return append(b, s.names[part.table]...)
		case "table_no":
			return appendInt(b, part.table)
		case "key":
			return append(b, key...)
		case "which":
			return append(b, which...)
		case "ids":
			return appendList(b, part.ids)
		}
		return s.fillDatabase(b, slot, s.layout.DatabaseOf(part.table))
	}
}
