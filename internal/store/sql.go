package store

// The statements of loads and claims; others stand beside the functions that send them.
// {slots} are filled by the sender: numbers and times as
// literals, text as ? arguments. Lists of ids are sorted and hold at most
// maxIDs; statements for several tables are joined by unionAll or sent together.

const unionAll = " UNION ALL "

// rowColumns are what Row is read from, in the order of rawRow.into. A NULL costs less than an empty text.
const rowColumns = `
    job_id,
    biz_id,
    biz_type,
    status,
    action_time,
    due_time,
    attempts,
    crashes,
    version,
    claimed_by,
    dedup_key,
    last_error,
    attribute,
    gmt_create,
    gmt_modified,
    headers,
    NULLIF(biz_key, '')`

// load reads the rows of one table that are still pending, by primary key.
var load = prepare(`
(SELECT /* tocsin load */` + rowColumns + `
FROM {table} FORCE INDEX (PRIMARY)
WHERE job_id IN ({ids})
  AND status = 0)`)

// now asks for the server's clock, cut to the microsecond.
var now = prepare(`SELECT /* tocsin clock */ UTC_TIMESTAMP(6)`)

// fence reads who took the tables of one database last, and locks these rows, shared,
// until the transaction ends. Its argument is the group.
var fence = prepare(`
SELECT /* tocsin fence */
    table_no,
    node
FROM {database}.owner
WHERE group_name = ?
  AND table_no IN ({tables})
LOCK IN SHARE MODE`)

// claimable locks the rows of one table that may be claimed: pending, due and
// as they were read. {pairs} are (job_id, action_time). With {skip} it leaves out rows
// that another transaction holds.
var claimable = prepare(`
SELECT /* tocsin claimable */` + rowColumns + `
FROM {table} AS t FORCE INDEX (PRIMARY)
WHERE job_id IN ({ids})
  AND status = 0
  AND action_time <= UTC_TIMESTAMP(3)
  AND (job_id, action_time) IN ({pairs}){turn}
FOR UPDATE{skip}`)

// stillPending reads which rows of one table are pending and due as they were read, whoever holds
// them. {pairs} are (job_id, action_time).
var stillPending = prepare(`
SELECT /* tocsin pending */
    job_id
FROM {table} FORCE INDEX (PRIMARY)
WHERE job_id IN ({ids})
  AND status = 0
  AND action_time <= UTC_TIMESTAMP(3)
  AND (job_id, action_time) IN ({pairs})`)

// claim takes rows that claimable has locked, all of them. Its argument is the
// claimer.
var claim = prepare(`
UPDATE /* tocsin claim */ {table} FORCE INDEX (PRIMARY)
SET status = 1,
    action_time = {deadline},
    claimed_by = ?,
    gmt_modified = UTC_TIMESTAMP(3)
WHERE job_id IN ({ids})
  AND status = 0;`)

// seize claims rows of one table that are pending, as they were read and alike. {due} tells
// them from rows that were put off since. Its argument is the claimer. Primary key. Zero rows
// also if the server's clock is beyond {latest}: {deadline} would come too early.
var seize = prepare(`
UPDATE /* tocsin seize */ {table} FORCE INDEX (PRIMARY)
SET status = 1,
    action_time = {deadline},
    claimed_by = ?,
    gmt_modified = UTC_TIMESTAMP(3)
WHERE job_id IN ({ids})
  AND status = 0
  AND version = {version}
  AND attempts = {attempts}
  AND crashes = {crashes}
  AND UTC_TIMESTAMP(3) <= {latest}
  AND {due};`)

// seizePairs is {due} of rows that are hardly overdue. {pairs} are (job_id, action_time).
var seizePairs = prepare(`action_time <= UTC_TIMESTAMP(3) AND (job_id, action_time) IN ({pairs})`)

// claimed reads the rows of one table that a claim has taken: those with its claimer
// and its exact deadline. Its argument is the claimer. It waits for the transaction
// of the claim, which may still be about to commit.
var claimed = prepare(`
SELECT /* tocsin claimed */` + rowColumns + `
FROM {table} FORCE INDEX (PRIMARY)
WHERE job_id IN ({ids})
  AND status = 1
  AND claimed_by = ?
  AND action_time = {deadline}
LOCK IN SHARE MODE`)
