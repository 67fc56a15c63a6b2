package store

// The statements of Settle.

// complete ends tasks of one table and version. A claim that ran out, a retry
// or a burial meanwhile does not undo the success. Fewer rows than ids: see Fate.
var complete = prepare(`
UPDATE /* tocsin complete */ {table} FORCE INDEX (PRIMARY)
SET status = 2,
    action_time = UTC_TIMESTAMP(3),
    gmt_modified = UTC_TIMESTAMP(3)
WHERE job_id IN ({ids})
  AND version = {version}
  AND status IN (0, 1, 4);`)

// unchanged is the condition of writes that only the holder of the attempt may make.
// For a claimed row {status} is 1, {action} = the deadline, or >= if the claim was prolonged, and {by} byClaimer;
// otherwise they are 0, = the action_time as loaded, and empty.
const unchanged = `
WHERE job_id = {job_id}
  AND version = {version}
  AND attempts = {attempts}
  AND status = {status}
  AND action_time {action}{by};`

// byClaimer tells a claim from another claimer's with the same deadline, to the
// millisecond: a sweep gives rows back as it found them, and another claimer may
// claim them at once. Its argument is the claimer.
const byClaimer = ` AND claimed_by = ?`

// retry makes a task pending again after a failed attempt. Its argument is the
// reason.
var retry = prepare(`
UPDATE /* tocsin retry */ {table} FORCE INDEX (PRIMARY)
SET status = 0,
    action_time = {next},
    attempts = attempts + 1,
    claimed_by = '',
    last_error = ?,
    gmt_modified = UTC_TIMESTAMP(3)` + unchanged)

// snooze makes a task pending again without counting an attempt.
var snooze = prepare(`
UPDATE /* tocsin snooze */ {table} FORCE INDEX (PRIMARY)
SET status = 0,
    action_time = {next},
    claimed_by = '',
    gmt_modified = UTC_TIMESTAMP(3)` + unchanged)

// bury gives a task up after a failed attempt. Its argument is the reason.
var bury = prepare(`
UPDATE /* tocsin bury */ {table} FORCE INDEX (PRIMARY)
SET status = 4,
    action_time = UTC_TIMESTAMP(3),
    attempts = attempts + 1,
    last_error = ?,
    gmt_modified = UTC_TIMESTAMP(3)` + unchanged)

// skip ends a task as cancelled without a delivery. Its argument is the reason.
var skip = prepare(`
UPDATE /* tocsin skip */ {table} FORCE INDEX (PRIMARY)
SET status = 3,
    action_time = UTC_TIMESTAMP(3),
    dedup_key = NULL,
    last_error = ?,
    gmt_modified = UTC_TIMESTAMP(3)` + unchanged)

// fate reads what became of rows that an outcome did not hit.
var fate = prepare(`
SELECT /* tocsin fate */
    job_id,
    status,
    action_time,
    attempts,
    version,
    claimed_by,
    last_error
FROM {table} FORCE INDEX (PRIMARY)
WHERE job_id IN ({ids})`)
