package client

// The statements of this package. {task} stands for a task table's full name
// and {database} for its database's (see Layout.Render).
//
// Most of them also run in a caller's transaction, so they rely on nothing of
// the session: times travel as UTC text and come from UTC_TIMESTAMP(3) alone,
// text and keys travel as bytes, whatever the character set of the connection,
// and what must be seen under REPEATABLE READ is read with a lock.

// dueSQL is the action time asked for. Parameters: the time as text, or NULL
// for the database's now; microseconds to add to it.
const dueSQL = `COALESCE(CAST(? AS DATETIME(3)), UTC_TIMESTAMP(3)) + INTERVAL ? MICROSECOND`

// bytesSQL is a parameter of bytes that is never NULL. In a session with EMPTY_STRING_IS_NULL MariaDB takes an empty parameter, and
// ”, for NULL, but not X”.
const bytesSQL = `COALESCE(CAST(? AS BINARY), X'')`

// utf8SQL is a parameter that is UTF-8, whatever the session takes parameters for, and never NULL; utf8OrNullSQL is NULL if the parameter
// is NULL or empty. Without CONCAT MariaDB converts parameters of prepared statements from GBK, Big5 and Shift JIS all the same. CONCAT
// itself is given no NULL: with ORACLE it would take that for an empty text.
const (
	utf8SQL       = `CONVERT(CONCAT(` + bytesSQL + `, X'') USING utf8mb4)`
	utf8OrNullSQL = `CONVERT(NULLIF(CONCAT(` + bytesSQL + `, X''), X'') USING utf8mb4)`
)

// addInto names the columns that every add fills, in the order of Row.addArgs.
const addInto = ` INTO {task} (
    job_id,
    gmt_create,
    gmt_modified,
    biz_id,
    biz_type,
    status,
    dedup_key,
    attribute,
    headers,
    biz_key,
    due_time,
    action_time
)
`

// addSQL stores one task in a caller's transaction. Parameters: Row.addArgs;
// dueSQL's, twice; oursSQL's. It takes the layout row by primary key; zero rows
// mean that the database is retired or of another cluster.
const addSQL = `INSERT /* tocsin add */` + addInto + `SELECT
    ?,
    UTC_TIMESTAMP(3),
    UTC_TIMESTAMP(3),
    ?,
    ?,
    0,
    CAST(? AS BINARY),
    ` + utf8SQL + `,
    ` + utf8OrNullSQL + `,
    ` + bytesSQL + `,
    ` + dueSQL + `,
    GREATEST(` + dueSQL + `, UTC_TIMESTAMP(3))
FROM {database}.layout
WHERE ` + oursSQL

// addUniqueSQL is addSQL for a task with a unique key. If it meets the task that has the key, or the id, it changes nothing
// and locks that task.
const addUniqueSQL = addSQL + `
ON DUPLICATE KEY UPDATE job_id = job_id`

// activeSQL counts the layout row if it is ours. It locks, as a snapshot may be older than a retirement. Parameters: oursSQL's.
const activeSQL = `SELECT /* tocsin active */
    COUNT(*)
FROM {database}.layout
WHERE ` + oursSQL + `
LIMIT 1
LOCK IN SHARE MODE`

// oursSQL is true of the layout row if the database is the one that the config
// means. Client.ours fills the slots. Parameters: cluster id; identity, where it is
// known.
const oursSQL = `id = 1
    AND cluster_id = ?
    AND state = 'active'
    AND database_no = {database_no}
    AND databases_total = {databases}
    AND tables_per_database = {tables}{of_identity}`

// The statements of Add over a connection of its own, whose session is known and
// whose server was looked at (server.admit): plain values, which cost the server
// half of addSQL.
const addOwnSQL = `INSERT /* tocsin add */` + addInto + `VALUES (?, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), ?, ?, 0, ?, ?, ?, ?, `

const (
	// addAtSQL acts at a given time. Parameters: Row.addArgs; the time as text, twice.
	addAtSQL = addOwnSQL + `?, GREATEST(CAST(? AS DATETIME(3)), UTC_TIMESTAMP(3)))`

	// addNearSQL is addAtSQL with ringSQL, a transaction of one packet. Parameters: of both.
	addNearSQL = "BEGIN;\n" + addAtSQL + ";\n" + ringSQL + ";\nCOMMIT"

	// addInSQL acts after a while. Parameters: Row.addArgs; microseconds, twice.
	addInSQL = addOwnSQL + `UTC_TIMESTAMP(3) + INTERVAL ? MICROSECOND, UTC_TIMESTAMP(3) + INTERVAL ? MICROSECOND)`

	// addSoonSQL is addInSQL with a ring, a transaction of one packet. The clock
	// is read once, as a ring must hold the very action_time of its row.
	// Parameters: addInSQL's; table number, job_id, biz type, microseconds.
	addSoonSQL = `SET @tocsin_now = UTC_TIMESTAMP(3);
BEGIN;
` + addOwnSQL + `@tocsin_now + INTERVAL ? MICROSECOND, @tocsin_now + INTERVAL ? MICROSECOND);
INSERT /* tocsin ring */ INTO {database}.doorbell (table_no, job_id, biz_type, action_time)
VALUES (?, ?, ?, @tocsin_now + INTERVAL ? MICROSECOND);
COMMIT`
)

// ringSQL rings the doorbell for one task if it is pending and near by the
// database's clock. Parameters: table number, job_id. Primary key of both
// tables. Zero rows: it is not near.
const ringSQL = `INSERT /* tocsin ring */ INTO {database}.doorbell (table_no, job_id, biz_type, action_time)
SELECT
    ?,
    t.job_id,
    t.biz_type,
    t.action_time
FROM {task} AS t FORCE INDEX (PRIMARY)
JOIN {database}.layout AS l
WHERE t.job_id = ?
    AND t.status = 0
    AND l.id = 1
    AND t.action_time < UTC_TIMESTAMP(3) + INTERVAL l.doorbell_horizon_ms * 1000 MICROSECOND`

// ringBizSQL is ringSQL for all tasks of one biz_id and biz type. Parameters:
// table number, biz_id, biz type, key. Index uk_biz.
const ringBizSQL = `INSERT /* tocsin ring */ INTO {database}.doorbell (table_no, job_id, biz_type, action_time)
SELECT
    ?,
    t.job_id,
    t.biz_type,
    t.action_time
FROM {task} AS t FORCE INDEX (uk_biz)
JOIN {database}.layout AS l
WHERE t.biz_id = ?
    AND t.biz_type = ?
    AND t.biz_key = ` + bytesSQL + `
    AND t.status = 0
    AND l.id = 1
    AND t.action_time < UTC_TIMESTAMP(3) + INTERVAL l.doorbell_horizon_ms * 1000 MICROSECOND`

// holderSQL locks the task that holds a unique key; its last column is 1 if the task is claimed and its biz type strict.
// Parameters: biz_id, biz type, key. Index uk_biz.
const holderSQL = `SELECT /* tocsin holder */
    job_id,
    status,
    biz_key,
    COALESCE(IF(status = 1, ` + StrictSQL + `, 0), 0)
FROM {task} AS t FORCE INDEX (uk_biz)
WHERE biz_id = ?
    AND biz_type = ?
    AND dedup_key = CAST(? AS BINARY)
LIMIT 1
FOR UPDATE`

// freeSQL takes the unique key from a task that does not need it any more, and is locked. Parameter: job_id. Primary key.
const freeSQL = `UPDATE /* tocsin free */ {task} FORCE INDEX (PRIMARY)
SET dedup_key = NULL,
    gmt_modified = UTC_TIMESTAMP(3)
WHERE job_id = ?`

// byKeySQL reads back the task that holds a dedup_key. Parameters: biz_id, biz
// type, key. Index uk_biz. Locks, to see what committed after the snapshot.
const byKeySQL = `SELECT /* tocsin read back */
    job_id,
    status,
    biz_key
FROM {task} FORCE INDEX (uk_biz)
WHERE biz_id = ?
    AND biz_type = ?
    AND dedup_key = CAST(? AS BINARY)
LIMIT 1
LOCK IN SHARE MODE`

// statusSQL locks the tasks that a change is about and counts them: all, pending, claimed, and pending ones that are due or may
// be loaded ahead of their time; so what is said of them still holds when the change is made. strict is 1 if their biz type is by
// its policy at this moment; it is read only if a task may be in delivery. active is 0 if the database is retired or of another
// cluster. A condition (ofIDSQL, ofBizSQL) and forUpdateSQL follow. Parameters: oursSQL's; the condition's.
const (
	statusSQL = `SELECT /* tocsin status */
    COUNT(*),
    COALESCE(SUM(status = 0), 0),
    COALESCE(SUM(status = 1), 0),
    COALESCE(SUM(status = 0 AND action_time <= UTC_TIMESTAMP(3) + INTERVAL 10000 MICROSECOND), 0),
    COALESCE(MAX(IF(status = 1 OR status = 0 AND action_time <= UTC_TIMESTAMP(3) + INTERVAL 10000 MICROSECOND, ` + StrictSQL + `, 0)), 0),
    (
        SELECT COUNT(*)
        FROM {database}.layout
        WHERE ` + oursSQL + `
    )
FROM {task} AS t FORCE INDEX ({index})`

	// StrictSQL is 1 if the biz type of task t is strict; 0 or NULL if it is not.
	StrictSQL = `(SELECT JSON_CONTAINS(b.policy, 'true', '$.strict') FROM {database}.biz_type AS b WHERE b.number = t.biz_type)`

	ofIDSQL = `
WHERE job_id = ?`

	ofBizSQL = `
WHERE biz_id = ?
    AND biz_type = ?
    AND biz_key = ` + bytesSQL

	pendingSQL = `
    AND status = 0`

	openSQL = `
    AND status IN (0, 1)`

	forUpdateSQL = `
LIMIT 1
FOR UPDATE`

	noWaitSQL = ` NOWAIT`
)

// CancelSQL and RescheduleSQL change pending tasks, and claimed ones of a biz type that is not strict: the delivery under way then
// meets another status or version, and settles nothing. A condition (ofIDSQL, ofBizSQL) and pendingSQL or openSQL follow.
// Parameters: of RescheduleSQL dueSQL's, twice; the condition's. Zero rows: there is none.
const (
	CancelSQL = `UPDATE /* tocsin cancel */ {task} FORCE INDEX ({index})
SET status = 3,
    action_time = UTC_TIMESTAMP(3),
    dedup_key = NULL,
    gmt_modified = UTC_TIMESTAMP(3)`

	RescheduleSQL = `UPDATE /* tocsin reschedule */ {task} FORCE INDEX ({index})
SET status = 0,
    action_time = GREATEST(` + dueSQL + `, UTC_TIMESTAMP(3)),
    due_time = ` + dueSQL + `,
    attempts = 0,
    version = version + 1,
    claimed_by = X'',
    gmt_modified = UTC_TIMESTAMP(3)`
)

// notYetSQL leaves out tasks that an earlier try of the same reschedule has changed: their version would rise with each. A
// delay ends not quite at the same time whenever it is counted. Parameters: dueSQL's.
const notYetSQL = `
    AND ABS(TIMESTAMPDIFF(MICROSECOND, due_time, ` + dueSQL + `)) >= 1000000`

// bizTypesSQL reads the names of all biz types: some dozens of rows.
const bizTypesSQL = `SELECT /* tocsin biz types */
    number,
    name
FROM {database}.biz_type`

// TimeForm is a DATETIME(3) as text, microForm a DATETIME(6).
const (
	TimeForm  = "2006-01-02 15:04:05.000"
	microForm = "2006-01-02 15:04:05.000000"
)
