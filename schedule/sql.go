package schedule

import (
	"database/sql"
	"fmt"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/name"
)

// The statements of this package. {database} is the name of a database, {task} the full name of the task table of a
// schedule's runs.

// columns are what a stored row is scanned from. Times are read as text: a caller's session may read them in a zone of its own.
const columns = `
    schedule_id, CAST(gmt_create AS CHAR), CAST(gmt_modified AS CHAR), name, app, table_no, biz_type, biz_id, biz_key, cron, zone,
    CAST(start_time AS CHAR), CAST(end_time AS CHAR), jitter_ms, start_within_ms, missed, missed_most, overlap, pause_after, state, revision,
    CAST(anchor AS CHAR), CAST(made_until AS CHAR), CAST(next_fire AS CHAR), failures, made, passed_over, reason, attribute, headers,
    open_from, CAST(UTC_TIMESTAMP(3) AS CHAR)`

// lockRow reads one schedule and keeps others from changing it. Primary key. Parameter: schedule_id. Zero rows: there is none.
const lockRow = `SELECT /* tocsin schedule lock */` + columns + `
FROM {database}.schedule FORCE INDEX (PRIMARY)
WHERE schedule_id = ?
FOR UPDATE`

// readNow reads the server's clock, the horizon of the doorbell, and which programs may use the database. Primary key.
const readNow = `SELECT /* tocsin schedule now */
    CAST(UTC_TIMESTAMP(3) AS CHAR),
    doorbell_horizon_ms,
    works_with
FROM {database}.layout
WHERE id = 1`

// readNamed reads schedules by their names, in one of the databases of a union. uk_name. {names} are parameters.
const readNamed = `SELECT /* tocsin schedules named */` + columns + `
FROM {database}.schedule FORCE INDEX (uk_name)
WHERE name IN ({names})`

// readList reads a page of schedules in the order of their names, in one of the databases of a union. uk_name. Parameters: the
// names that the page lies behind, and reaches to; app and state, each twice, "" for any; a part of the name, "" for any; how
// many. {types} is a condition on biz_type.
const readList = `SELECT /* tocsin schedules list */` + columns + `
FROM {database}.schedule FORCE INDEX (uk_name)
WHERE name > ?
    AND name <= ?
    AND (? = '' OR app = ?)
    AND {types}
    AND (? = '' OR state = ?)
    AND LOCATE(?, name) > 0
ORDER BY name
LIMIT ?`

// readNext is readList in the order of the next fire times, which only active schedules have. idx_next. Parameters: instead of
// the names, the next_fire, table_no and schedule_id of two places, three times, twice and once.
const readNext = `SELECT /* tocsin schedules list */` + columns + `
FROM {database}.schedule FORCE INDEX (idx_next)
WHERE (next_fire > ? OR next_fire = ? AND table_no > ? OR next_fire = ? AND table_no = ? AND schedule_id > ?)
    AND (next_fire < ? OR next_fire = ? AND table_no < ? OR next_fire = ? AND table_no = ? AND schedule_id <= ?)
    AND (? = '' OR app = ?)
    AND {types}
    AND (? = '' OR state = ?)
    AND LOCATE(?, name) > 0
ORDER BY next_fire, table_no, schedule_id
LIMIT ?`

// endOfList and endOfNext find the last place that a page of readList or readNext may reach in one database. They read index entries
// only. Parameters: the first place, and the number of entries to skip. No row: fewer entries are left.
const (
	endOfList = `SELECT /* tocsin schedules window */
    name, NULL, schedule_id
FROM {database}.schedule FORCE INDEX (uk_name)
WHERE name > ?
ORDER BY name
LIMIT 1 OFFSET ?`
	endOfNext = `SELECT /* tocsin schedules window */
    '', CAST(next_fire AS CHAR), schedule_id
FROM {database}.schedule FORCE INDEX (idx_next)
WHERE next_fire > ? OR next_fire = ? AND table_no > ? OR next_fire = ? AND table_no = ? AND schedule_id > ?
ORDER BY next_fire, table_no, schedule_id
LIMIT 1 OFFSET ?`
)

// readTypes reads the names of the biz types, in one of the databases of a union: some dozens of rows.
const readTypes = `SELECT /* tocsin schedule types */
    number, name
FROM {database}.biz_type`

// peekDue reads which schedules have runs to be made, the earliest first, in one of the databases of a union: a range of
// idx_next alone, whose conditions are written so that both servers read no entries before it, though thousands may fire at one
// time. Parameters: how far ahead, in microseconds; the next_fire, table_no and schedule_id of the last one of the page before,
// three times, twice and once; how many.
const peekDue = `SELECT /* tocsin schedules due */
    next_fire, table_no, schedule_id
FROM {database}.schedule FORCE INDEX (idx_next)
WHERE next_fire <= UTC_TIMESTAMP(3) + INTERVAL ? MICROSECOND
    AND (next_fire > ? OR next_fire = ? AND table_no > ? OR next_fire = ? AND table_no = ? AND schedule_id > ?)
ORDER BY next_fire, table_no, schedule_id
LIMIT ?`

// peekAhead reads which schedules count as made until a time that is too far ahead, in one of the databases of a union: all
// rows from behind an id on, by the primary key. Parameters: that id; how far ahead is too far, in microseconds; a time that
// is too far by another clock; how many.
const peekAhead = `SELECT /* tocsin schedules ahead */
    made_until, table_no, schedule_id
FROM {database}.schedule FORCE INDEX (PRIMARY)
WHERE schedule_id > ?
    AND state IN ('active', 'ended')
    AND made_until > UTC_TIMESTAMP(3) + INTERVAL ? MICROSECOND
    AND made_until > ?
ORDER BY schedule_id
LIMIT ?`

// forgetOpen forgets below which key all runs of a schedule are settled: runs with lower keys may be made. Primary key.
// Parameter: schedule_id.
const forgetOpen = `UPDATE /* tocsin schedule back */ {database}.schedule
SET open_from = NULL
WHERE schedule_id = ?`

// insertRow stores a new schedule. Parameters: what never changes, row.stored, and the server's clock, twice.
const insertRow = `INSERT /* tocsin schedule create */ INTO {database}.schedule (
    schedule_id, name, table_no, biz_id, biz_key,
    app, biz_type, cron, zone, start_time, end_time, jitter_ms, start_within_ms, missed, missed_most, overlap, pause_after,
    state, revision, anchor, made_until, next_fire, failures, made, passed_over, reason, attribute, headers,
    gmt_create, gmt_modified)
VALUES (
    ?, ?, ?, ?, ?,
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
    ?, ?)`

// updateRow stores what a change made of a schedule that is locked. Primary key. Parameters: row.stored, the
// server's clock; schedule_id and the revision before. Zero rows: it was changed by somebody who ignores locks.
const updateRow = `UPDATE /* tocsin schedule change */ {database}.schedule
SET app = ?, biz_type = ?, cron = ?, zone = ?, start_time = ?, end_time = ?, jitter_ms = ?, start_within_ms = ?, missed = ?,
    missed_most = ?, overlap = ?, pause_after = ?,
    state = ?, revision = ?, anchor = ?, made_until = ?, next_fire = ?, failures = ?, made = ?, passed_over = ?, reason = ?,
    attribute = ?, headers = ?, gmt_modified = ?
WHERE schedule_id = ?
    AND revision = ?`

// moveCursor notes that a window is made. Primary key. Parameters: state, made_until, next_fire, reason; runs made, fire
// times passed over; schedule_id, and the revision and made_until before. Zero rows: another maker was faster.
const moveCursor = `UPDATE /* tocsin schedule made */ {database}.schedule
SET state = ?,
    made_until = ?,
    next_fire = ?,
    reason = ?,
    made = made + ?,
    passed_over = passed_over + ?,
    gmt_modified = UTC_TIMESTAMP(3)
WHERE schedule_id = ?
    AND revision = ?
    AND made_until = ?
    AND state IN ('active', 'ended')`

// deleteRow forgets a schedule. Primary key. Parameter: schedule_id.
const deleteRow = `DELETE /* tocsin schedule delete */ FROM {database}.schedule
WHERE schedule_id = ?`

// insertRuns stores runs. insertRun stands for each, with commas between. Parameters: run.args.
const (
	insertRuns = `INSERT /* tocsin schedule runs */ INTO {task} (
    job_id, biz_id, biz_key, biz_type, status, dedup_key, attribute, headers, due_time, action_time, gmt_create, gmt_modified)
VALUES `
	insertRun = `(?, ?, ?, ?, 0, ?, ?, ?, ?, ?, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3))`
)

// readKeys finds runs by their keys. uk_biz. Parameters: biz_id, biz type, {keys}.
const readKeys = `SELECT /* tocsin schedule keys */
    dedup_key, job_id
FROM {task} FORCE INDEX (uk_biz)
WHERE biz_id = ?
    AND biz_type = ?
    AND dedup_key IN ({keys})`

// ringRuns rings the doorbell; ringRun stands for each run, with commas between. Parameters: table_no, job_id, biz type,
// action time.
const (
	ringRuns = `INSERT /* tocsin schedule ring */ INTO {database}.doorbell (table_no, job_id, biz_type, action_time)
VALUES `
	ringRun = `(?, ?, ?, ?)`
)

// timeForm is a DATETIME(3) as text.
const timeForm = "2006-01-02 15:04:05.000"

// at writes an instant; NULL for the zero time.
func at(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format(timeForm)
}

// instant is a time in UTC that was read as text; zero: NULL.
type instant struct{ time.Time }

func (i *instant) Scan(text any) (err error) {
	switch text := text.(type) {
	case []byte:
		i.Time, err = time.Parse(time.DateTime, string(text))
	case string:
		i.Time, err = time.Parse(time.DateTime, text)
	}
	return err
}

// row is a schedule as it is stored.
type row struct {
	Schedule
	number  uint64 // of the biz type
	headers string // "": none
	marks
}

// scanRow reads one row.
func scanRow(rows *sql.Rows) (*row, error) {
	r := &row{}
	var id, table, jitter, within uint64
	var key, open []byte
	var created, modified, start, end, anchor, made, next, read instant
	var headers sql.NullString
	err := rows.Scan(&id, &created, &modified, &r.Name, &r.App, &table, &r.number, &r.BizID, &key, &r.Cron, &r.Zone, &start, &end, &jitter,
		&within, &r.Missed, &r.MissedMost, &r.Overlap, &r.PauseAfter, &r.State, &r.Revision, &anchor, &made, &next, &r.Failures,
		&r.Made, &r.PassedOver, &r.Reason, &r.Payload, &headers, &open, &read)
	if err != nil {
		return nil, err
	}
	r.ID, r.Table, r.headers, r.marks = tocsin.JobID(id), int(table), headers.String, marksOf(id, string(open))
	if r.Key = string(key); r.Key != "" {
		r.BizID = 0
	}
	r.Created, r.Modified, r.ReadAt, r.Anchor, r.MadeUntil = created.Time, modified.Time, read.Time, anchor.Time, made.Time
	r.Start, r.End, r.NextFire = start.Time, end.Time, next.Time
	r.Jitter, r.StartWithin = millis(jitter), millis(within)
	if r.State == Ended {
		r.Reason = r.ending()
	}
	rest, version := client.TakeVersion(r.headers)
	r.PayloadVersion = version
	if r.Headers, err = tocsin.Headers(rest).All(); err != nil {
		return nil, fmt.Errorf("schedule %s: %w", r.Name, err)
	}
	return r, nil
}

func millis(n uint64) biztype.Duration {
	return biztype.Duration(n) * biztype.Duration(time.Millisecond)
}

// subject is the biz_id of the runs.
func (r *row) subject() uint64 {
	if r.Key != "" {
		return tocsin.KeyID(r.Key)
	}
	return r.BizID
}

// stored are the other parameters of insertRow, and those of updateRow.
func (r *row) stored() []any {
	var headers any
	if r.headers != "" {
		headers = r.headers
	}
	return []any{
		r.App, r.number, r.Cron, r.Zone, at(r.Start), at(r.End), r.Jitter.D().Milliseconds(), r.StartWithin.D().Milliseconds(),
		string(r.Missed), r.MissedMost, string(r.Overlap), r.PauseAfter,
		string(r.State), r.Revision, at(r.Anchor), at(r.MadeUntil), at(r.NextFire), r.Failures, r.Made, r.PassedOver, cut(r.Reason),
		r.Payload, headers,
	}
}

// maxReason is the length of the column reason.
const maxReason = 255

// cut shortens a reason to what its column takes.
func cut(reason string) string { return name.Text(reason, maxReason) }

// oldTables says what to do about databases without the table, or that older programs may use.
const oldTables = "run `tocsin ddl apply`, then `tocsin ddl finish`"

// explain turns a missing table into an error that says what to do.
func explain(err error) error {
	if mysql.ClassOf(err) == mysql.Missing {
		return client.Refuse(tocsin.ErrSchema, "schedules need schema version %d, and there is no table for them: %s (%s)", schema, oldTables, err)
	}
	return err
}
