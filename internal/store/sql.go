package store

// The statements. {slots} are filled by who sends them: numbers and times as
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

// peek reads entries of one table in order. It is answered from idx_due alone,
// without a sort. {range} bounds action_time. Zero rows: nothing due there, or
// of a final {status}, nothing settled then.
var peek = prepare(`
(SELECT /* tocsin peek */
    {table_no},
    job_id,
    biz_type,
    action_time
FROM {table} FORCE INDEX (idx_due)
WHERE status = {status}
  AND {range}
  AND biz_type IN ({types})
ORDER BY action_time, biz_type, job_id
LIMIT {limit})`)

// peekFrom, peekUntil and peekAfter are the parts of {range}. peekAfter is
// written so that the servers read it as three ranges of idx_due, which the
// primary key ends: a page deep in a burst of one action_time costs no more
// than the first.
var (
	peekFrom  = prepare(`action_time >= {from} AND action_time <= {until}`)
	peekAfter = prepare(`
    action_time <= {until}
  AND (action_time > {due}
    OR (action_time = {due} AND biz_type > {type})
    OR (action_time = {due} AND biz_type = {type} AND job_id > {job_id}))`)
)

// load reads the rows of one table that are still pending, by primary key.
var load = prepare(`
(SELECT /* tocsin load */` + rowColumns + `
FROM {table} FORCE INDEX (PRIMARY)
WHERE job_id IN ({ids})
  AND status = 0)`)

// due reads whole rows of one table and biz type in order of the due index, from
// one place on: its three ranges are those of peekAfter. As nothing looks at the
// rows again before they start, the server's own clock decides too: it may have
// been set back since {until} was taken from it.
var due = prepare(`
(SELECT /* tocsin due */
    {table_no},` + rowColumns + `
FROM {table} FORCE INDEX (idx_due)
WHERE status = 0
  AND biz_type = {type}
  AND action_time <= {until}
  AND action_time <= UTC_TIMESTAMP(3)
  AND (action_time > {due}
    OR (action_time = {due} AND biz_type = {type} AND job_id > {job_id}))
ORDER BY action_time, biz_type, job_id
LIMIT {limit})`)

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

// seized reads which rows of one table a seize in the same transaction has claimed. Its
// argument is the claimer. Primary key.
var seized = prepare(`
(SELECT /* tocsin seized */
    job_id
FROM {table} FORCE INDEX (PRIMARY)
WHERE job_id IN ({ids})
  AND status = 1
  AND claimed_by = ?
  AND action_time = {deadline})`)

// beyond returns the job_id 0, which no task has, if a seize in the same transaction may
// have met a clock beyond {latest}.
var beyond = prepare(`
SELECT /* tocsin beyond */ 0
FROM DUAL
WHERE UTC_TIMESTAMP(3) > {latest};`)

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

// expired finds claims of one table that ran out at least 5 s ago: their
// claimers have had the time to settle late. From idx_due alone.
var expired = prepare(`
(SELECT /* tocsin expired */
    {table_no},
    job_id
FROM {table} FORCE INDEX (idx_due)
WHERE status = 1
  AND action_time <= UTC_TIMESTAMP(3) - INTERVAL 5 SECOND
ORDER BY action_time
LIMIT {limit})`)

// nextRunOut finds the claim of one table that runs out first, and how many microseconds its claimer still has, of which it may
// use 5 s to settle late. From idx_due alone.
var nextRunOut = prepare(`
(SELECT /* tocsin next_run_out */
    {table_no},
    TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(3), action_time) + 5000000
FROM {table} FORCE INDEX (idx_due)
WHERE status = 1
ORDER BY action_time
LIMIT 1)`)

// recoverBury and recoverBack end run-out claims of one table; sent in this
// order, each row meets one of them.
var (
	recoverBury = prepare(`
UPDATE /* tocsin recover */ {table} FORCE INDEX (PRIMARY)
SET status = 4,
    crashes = crashes + 1,
    last_error = CONCAT('crashed ', crashes, ' times, last on ', claimed_by),
    action_time = UTC_TIMESTAMP(3),
    gmt_modified = UTC_TIMESTAMP(3)
WHERE job_id IN ({ids})
  AND status = 1
  AND crashes >= {crashes}
  AND action_time <= UTC_TIMESTAMP(3) - INTERVAL 5 SECOND;`)
	recoverBack = prepare(`
UPDATE /* tocsin recover */ {table} FORCE INDEX (PRIMARY)
SET status = 0,
    crashes = crashes + 1,
    claimed_by = '',
    action_time = UTC_TIMESTAMP(3),
    gmt_modified = UTC_TIMESTAMP(3)
WHERE job_id IN ({ids})
  AND status = 1
  AND crashes < {crashes}
  AND action_time <= UTC_TIMESTAMP(3) - INTERVAL 5 SECOND;`)
)

// bells reads one database's doorbell, in order of id. {spans} are ranges of id.
var bells = prepare(`
(SELECT /* tocsin bells */
    {database_no},
    id,
    job_id,
    biz_type,
    action_time
FROM {database}.doorbell FORCE INDEX (PRIMARY)
WHERE {spans}
ORDER BY id
LIMIT {limit})`)

// lastBell reads the highest id of one database's doorbell; 0: never rung, or
// purged.
var lastBell = prepare(`
SELECT /* tocsin last_bell */
    {database_no},
    IFNULL(MAX(id), 0)
FROM {database}.doorbell`)

// countColumns are what counts reads, behind the number of the table.
const countColumns = `
    biz_type,
    status,
    COUNT(*),
    MIN(action_time)
FROM {table} FORCE INDEX (idx_due)`

// counts reads all of one table's idx_due: for operators, not for engines.
var counts = prepare(`
SELECT /* tocsin counts */
    {table_no},` + countColumns + `
GROUP BY biz_type, status`)

// someCounts is counts for the first {limit} rows of one status.
var someCounts = prepare(`
SELECT /* tocsin some_counts */
    {table_no},
    biz_type,
    {status},
    COUNT(*),
    MIN(action_time)
FROM (
    SELECT
        biz_type,
        action_time
    FROM {table} FORCE INDEX (idx_due)
    WHERE status = {status}
    ORDER BY action_time
    LIMIT {limit}) AS first_ones
GROUP BY biz_type`)

// liveCounts is counts for rows that are pending, claimed or dead.
var liveCounts = prepare(`
SELECT /* tocsin live_counts */
    {table_no},` + countColumns + `
WHERE status IN (0, 1, 4)
GROUP BY biz_type, status`)

// overdue counts the pending rows of one table up to {until}, the oldest {limit} of them, from idx_due alone. Zero rows:
// there is none.
var overdue = prepare(`
SELECT /* tocsin overdue */
    {table_no},
    biz_type,
    COUNT(*),
    MIN(action_time)
FROM (
    SELECT
        biz_type,
        action_time
    FROM {table} FORCE INDEX (idx_due)
    WHERE status = 0
      AND action_time <= {until}
    ORDER BY action_time
    LIMIT {limit}) AS late
GROUP BY biz_type`)

// variables reads the settings that Facts holds; servers skip those they do
// not have.
var variables = prepare(`
SHOW /* tocsin facts */ GLOBAL VARIABLES
WHERE Variable_name IN (
    'version',
    'version_comment',
    'hostname',
    'server_id',
    'server_uid',
    'server_uuid',
    'read_only',
    'super_read_only',
    'log_bin',
    'innodb_flush_log_at_trx_commit',
    'sync_binlog',
    'table_open_cache',
    'table_definition_cache',
    'open_files_limit',
    'max_connections',
    'max_allowed_packet',
    'gtid_slave_pos',
    'gtid_executed',
    'rpl_semi_sync_source_enabled',
    'rpl_semi_sync_master_enabled')`)

// replication reads how many replicas are connected, on MariaDB, and whether commits wait for one. It needs no right.
var replication = prepare(`
SHOW /* tocsin replication */ GLOBAL STATUS
WHERE Variable_name IN (
    'Slaves_connected',
    'Rpl_semi_sync_source_status',
    'Rpl_semi_sync_source_clients',
    'Rpl_semi_sync_master_status',
    'Rpl_semi_sync_master_clients')`)

// replicas lists the replicas of a MySQL server. It needs REPLICATION SLAVE.
var replicas = prepare(`SHOW /* tocsin replicas */ REPLICAS`)

// grants lists the rights of the user, who needs none for it.
var grants = prepare(`SHOW /* tocsin grants */ GRANTS FOR CURRENT_USER()`)

// begun finds databases that have the table which came with the newest schema version. {databases} are their names.
var begun = prepare(`
SELECT /* tocsin begun */
    table_schema
FROM information_schema.tables
WHERE table_schema IN ({databases})
    AND table_name = 'schedule'`)

// session asks who answers: the same each time unless a proxy spreads the
// statements of one connection.
var session = prepare(`
SELECT /* tocsin session */
    CONNECTION_ID(),
    @@hostname`)
