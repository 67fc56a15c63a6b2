package outbox

// The statements. {outbox} stands for the quoted name of the table, {ranges} for a condition on id.

// readSQL reads whole rows in the order of their ids. Times come as text, without the session's time zone. Parameter: the
// most rows. Primary key.
const readSQL = `SELECT /* tocsin outbox read */
    id,
    op,
    biz_type,
    biz_id,
    CAST(due_time AS CHAR),
    delay_ms,
    COALESCE(dedup_key, ''),
    COALESCE(headers, ''),
    biz_key,
    attribute,
    CAST(created AS CHAR),
    COALESCE(TIMESTAMPDIFF(MICROSECOND, created, UTC_TIMESTAMP(6)), 0),
    attempts,
    last_error
FROM {outbox} FORCE INDEX (PRIMARY)
WHERE {ranges}
ORDER BY id
LIMIT ?`

// snapshotSQL begins a transaction whose reads all see the same state. They lock nothing.
const snapshotSQL = `/* tocsin outbox snapshot */ SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;
START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY`

// stuckSQL is added to a condition for rows that were set aside.
const stuckSQL = `
    AND last_error <> ''`

// deleteSQL deletes rows by a list of ids and of {pairs}, which spare a row that got the id of another after the outbox was
// emptied. Primary key, by the ids: MariaDB finds no rows by pairs.
const deleteSQL = `DELETE /* tocsin outbox delete */ {outbox}
FROM {outbox} FORCE INDEX (PRIMARY)
WHERE {ranges}
    AND (id, created) IN ({pairs})`

// asideSQL notes why a row was set aside. Parameters: reason, id, created. Primary key.
const asideSQL = `UPDATE /* tocsin outbox aside */ {outbox}
SET attempts = attempts + 1,
    last_error = ?
WHERE id = ?
    AND created = CAST(? AS DATETIME(6))`

// retrySQL lets relays move rows that were set aside. Primary key.
const retrySQL = `UPDATE /* tocsin outbox retry */ {outbox}
SET last_error = ''
WHERE {ranges}
    AND last_error <> ''`

// dropSQL deletes rows that were set aside. Primary key.
const dropSQL = `DELETE /* tocsin outbox drop */ FROM {outbox}
WHERE {ranges}
    AND last_error <> ''`

// presentSQL finds which rows of a list are there. Primary key.
const presentSQL = `SELECT /* tocsin outbox present */
    id,
    CAST(created AS CHAR)
FROM {outbox} FORCE INDEX (PRIMARY)
WHERE {ranges}`

// settledSQL finds rows in ranges of ids, committed or not: it fails at once if an open transaction holds one. Primary key.
const settledSQL = `SELECT /* tocsin outbox settled */
    id
FROM {outbox} FORCE INDEX (PRIMARY)
WHERE {ranges}
LIMIT 1
FOR UPDATE NOWAIT`

// identitySQL reads the comment of the table, with its identity. Parameters: database, or NULL for the session's; table.
const identitySQL = `SELECT /* tocsin outbox identity */
    table_comment
FROM information_schema.tables
WHERE table_schema = ?
    AND table_name = ?`

// settledDownSQL is settledSQL for all ids up to one. The server locks the row behind the last of a range, too: read upwards it
// would fail while a transaction is open there.
const settledDownSQL = `SELECT /* tocsin outbox settled down */
    id
FROM {outbox} FORCE INDEX (PRIMARY)
WHERE {ranges}
ORDER BY id DESC
LIMIT 1
FOR UPDATE NOWAIT`

// nextSQL reads the next id of the table. Parameters: database; table. Without freshSQL MySQL may answer what was so a day ago;
// MariaDB has no such setting.
const (
	freshSQL = `/*!80000 SET SESSION information_schema_stats_expiry = 0 */`

	nextSQL = `SELECT /* tocsin outbox next */
    auto_increment
FROM information_schema.tables
WHERE table_schema = ?
    AND table_name = ?`
)

// holderSQL finds the connection that has a lock. Parameter: its name.
const holderSQL = `SELECT /* tocsin outbox holder */
    IS_USED_LOCK(?)`

// leadSQL takes the lock of the one relay that is active. Parameters: its name; seconds to wait.
const leadSQL = `SELECT /* tocsin outbox lead */
    GET_LOCK(?, ?)`
