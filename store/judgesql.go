package store

// The statements that judge runs of schedules.

// judged reads what a judge needs of one schedule, by primary key. Zero rows: it was deleted.
var judged = prepare(`
SELECT /* tocsin judged */
    name,
    biz_type,
    biz_id,
    cron,
    zone,
    start_time,
    end_time,
    anchor,
    jitter_ms,
    start_within_ms,
    missed,
    missed_most,
    overlap,
    pause_after,
    failures,
    revision,
    open_from
FROM {database}.schedule FORCE INDEX (PRIMARY)
WHERE schedule_id = {schedule_id}`)

// runsFrom reads a page of the runs of one schedule in order of their keys, from {from} to before {until}, of every status
// or with {open} of those that are not settled. uk_biz.
var runsFrom = prepare(`
SELECT /* tocsin runs_from */
    job_id,
    status,
    action_time,
    due_time,
    attempts,
    crashes,
    dedup_key,
    gmt_create
FROM {table} FORCE INDEX (uk_biz)
WHERE biz_id = {biz_id}
  AND biz_type = {type}
  AND dedup_key >= {from}
  AND dedup_key < {until}{open}
ORDER BY dedup_key
LIMIT {limit};`)

// onlyOpen is {open}.
const onlyOpen = ` AND status IN (0, 1)`

// replaced cancels runs of one table that are pending or claimed, at the beginning of a later one. Its argument is the
// reason. The version of a claimed one rises before its status changes, as assignments are made from left to right.
var replaced = prepare(`
UPDATE /* tocsin replace */ {table} FORCE INDEX (PRIMARY)
SET version = version + IF(status = 1, 1, 0),
    status = 3,
    action_time = UTC_TIMESTAMP(3),
    dedup_key = NULL,
    last_error = ?,
    gmt_modified = UTC_TIMESTAMP(3)
WHERE job_id IN ({ids})
  AND status IN (0, 1);`)

// openFrom notes below which key the runs of a schedule are settled. Zero rows: a later key stands there.
var openFrom = prepare(`
UPDATE /* tocsin open_from */ {database}.schedule FORCE INDEX (PRIMARY)
SET open_from = {from}
WHERE schedule_id = {schedule_id}
  AND (open_from IS NULL OR open_from < {from})`)

// countFailure counts a failed run of an active schedule that still has a revision; failuresOf reads what it is then.
// Primary key. Zero rows: the schedule was changed.
var (
	countFailure = prepare(`
UPDATE /* tocsin count_failure */ {database}.schedule FORCE INDEX (PRIMARY)
SET failures = failures + 1
WHERE schedule_id = {schedule_id}
  AND revision = {revision}
  AND state = 'active'`)
	failuresOf = prepare(`
SELECT /* tocsin failures */
    failures
FROM {database}.schedule FORCE INDEX (PRIMARY)
WHERE schedule_id = {schedule_id}
  AND revision = {revision}
  AND state = 'active'`)
)

// clearFailures notes that a run succeeded. Primary key. Zero rows: none has failed before it.
var clearFailures = prepare(`
UPDATE /* tocsin clear_failures */ {database}.schedule FORCE INDEX (PRIMARY)
SET failures = 0
WHERE schedule_id = {schedule_id}
  AND failures > 0`)
