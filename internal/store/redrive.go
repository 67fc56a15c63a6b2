package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
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
// now, as an audit takes a row of version 0 for one that nobody brought forward.
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
// made it so: a bell too many is harmless. {near} is ringNear, or nothing for rows that are due.
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
  AND status = 0
  {near};`)

// ringNear leaves out rows that are not due within the doorbell's horizon, in milliseconds.
var ringNear = prepare(`AND action_time < UTC_TIMESTAMP(3) + INTERVAL {horizon} * 1000 MICROSECOND`)

const buryThese = `
UPDATE /* tocsin bury_by_hand */ {table} AS t FORCE INDEX (PRIMARY)
SET status = 4,
    action_time = UTC_TIMESTAMP(3),
    last_error = ?,
    gmt_modified = UTC_TIMESTAMP(3)
WHERE job_id IN ({ids})`

// buryByHand makes one task dead at an operator's word: a pending one, or a claimed one of
// a biz type that is not strict. Its argument is the reason. Zero rows: it is neither.
// An attempt under way may still complete it; if that fails, it stays dead.
var buryByHand = prepare(buryThese + `
  AND (status = 0
    OR status = 1 AND NOT COALESCE(` + client.StrictSQL + `, 0));`)

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
	text = diedBetween.render(nil, slots{"since": instant(q.Since), "until": instant(q.Until)}.fill)
	if q.Error != "" {
		text, args = append(text, withError...), []any{q.Error}
	}
	return text, args
}

// Bury makes a pending task dead, or a claimed one of a biz type that is not strict, with a
// reason for last_error, cut to fit. False: there is no such task.
func (s *Store) Bury(ctx context.Context, id tocsin.JobID, reason string) (bool, error) {
	home := s.ServerOf(id.Table())
	if home < 0 {
		return false, fmt.Errorf("bury job_id %s: %w", id, s.refuse(0, id.Table()))
	}
	fill := s.ofTable(id.Table(), slots{"ids": []tocsin.JobID{id}})
	hit, err := s.change(ctx, s.layout.DatabaseOf(id.Table()), buryByHand, fill, cut(reason))
	return err == nil && hit > 0, s.wrap(err, "bury job_id "+id.String()+" in", s.servers[home], id.Table())
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
	return n > 0, s.wrap(err, "redrive job_id "+id.String()+" in", sv, id.Table())
}

// Dead gives those of the ids, at most 500, whose tasks are dead as asked for, and
// how many others were left only because a restore made them dead. A table that
// cannot be read is named in the error and holds up no other.
func (s *Store) Dead(ctx context.Context, q DeadQuery, ids []tocsin.JobID) (found []tocsin.JobID, left int, err error) {
	type row struct {
		id       tocsin.JobID
		restored bool
	}
	tables, idsIn := []int(nil), make(map[int][]tocsin.JobID)
	for _, part := range byTable(s.idsOn(q.Server, ids)) {
		tables, idsIn[part.table] = append(tables, part.table), part.ids
	}
	which, args := q.which()
	rows, failed, err := across(ctx, s, s.servers[q.Server], tables, question[row]{
		verb: "look for dead tasks in", statement: dead, in: slots{"ids": idsIn, "which": which}, args: args,
		scan: into(func(r *row) []any { return []any{&r.id, &r.restored} }),
	})
	for _, r := range rows {
		if r.restored == q.Restored {
			found = append(found, r.id)
		} else if r.restored {
			left++
		}
	}
	return found, left, joined(failed, err)
}

// RedriveDead redrives those of the ids, at most 500, whose tasks are still dead as
// asked for, and gives their number; same as in Redrive. A table that cannot be
// written, or has rows that another transaction holds, is named in the error; all other
// tasks are redriven. The number stands beside the error.
func (s *Store) RedriveDead(ctx context.Context, q DeadQuery, ids []tocsin.JobID, same bool) (total int, err error) {
	which, args := q.which()
	restored := " AND NOT " + byRestore
	if q.Restored {
		restored = " AND " + byRestore
	}
	which = append(which, restored...)
	sv, failed := s.servers[q.Server], make(map[int]error)
	err = s.around(ctx, q.Server, s.idsOn(q.Server, ids), func(parts []idsOf) error {
		n, err := s.redrive(ctx, sv, parts, same, which, args)
		total += n
		return err
	}, func(table int, err error) { failed[table] = s.wrap(err, "redrive dead tasks of", sv, table) })
	return total, joined(failed, s.wrap(err, "redrive dead tasks", sv))
}

// idsOn returns the first 500 of the ids, sorted, without those of other servers.
func (s *Store) idsOn(server int, ids []tocsin.JobID) []tocsin.JobID {
	ids = sortIDs(ids)
	return slices.DeleteFunc(ids[:min(len(ids), maxIDs)], func(id tocsin.JobID) bool { return s.refuse(server, id.Table()) != nil })
}

// redrive is one transaction. It gives how many tasks it redrove, 0 if it failed.
func (s *Store) redrive(ctx context.Context, sv *server, parts []idsOf, same bool, which []byte, args []any) (total int, err error) {
	key := newKey
	if same {
		key = sameKey
	}
	var text []byte
	var all []any
	for _, part := range parts {
		fill := s.ofTable(part.table, slots{"ids": part.ids, "key": key, "which": which})
		text, all = redrive.render(text, fill), append(all, args...)
	}
	err = s.transact(ctx, sv, tablesOf(parts), func(conn *sql.Conn) error {
		counts, err := s.write(ctx, conn, redrive.name, text, all...)
		total = int(sum(counts))
		if err != nil || total == 0 {
			return err
		}
		var bells []byte
		for i, part := range parts {
			if counts[i] > 0 {
				bells = ring.render(bells, s.ofTable(part.table, slots{"ids": part.ids, "near": ""}))
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
