package outbox

// The statements. {outbox} stands for the quoted name of the table, {ranges} for a condition on id.

// readSQL reads whole rows in the order of their ids. Times come as text, without the session's time zone. Parameter: the
// maximum number of rows. Primary key.
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
START TRANSACTION WITH CONSISTENT SNAPSHOT`

// stuckSQL is added to a condition for rows that were set aside.
const stuckSQL = `
    AND last_error <> ''`

// deleteSQL deletes rows by a list of ids and of {pairs}. The pairs spare a row that got the id of a deleted row after
// the outbox was emptied. Primary key, by the ids: MariaDB finds no rows by pairs.
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

// settledSQL finds rows in ranges of ids, committed or not: it fails at once if an open transaction holds one. It may fail for
// the row behind a range of several ids, too, which the server locks. Primary key.
//
// An uncommitted insert or delete holds the lock on its row, even if the same transaction has deleted the row again and may
// roll back to a savepoint before that. A plain read at READ UNCOMMITTED would miss both deletes. An insert that has drawn its id
// and has no row yet is not seen. For that a gap is a minute old before it is asked about, and all ids are still read every
// few seconds: a row where none should be ends the turn.
const settledSQL = `SELECT /* tocsin outbox settled */
    id
FROM {outbox} FORCE INDEX (PRIMARY)
WHERE {ranges}
LIMIT 1
FOR UPDATE NOWAIT`

// settledDownSQL is settledSQL for one range, and may fail for the row before it instead, but not for the one behind: to find the MAX
// the server begins with the last row up to the range's end. ORDER BY id DESC is not enough for MySQL. NULL: it is settled.
// Primary key.
const settledDownSQL = `SELECT /* tocsin outbox settled down */
    MAX(id)
FROM {outbox} FORCE INDEX (PRIMARY)
WHERE {ranges}
FOR UPDATE NOWAIT`

// identitySQL reads the comment of the table, with its identity. Parameters: database; table.
const identitySQL = `SELECT /* tocsin outbox identity */
    table_comment
FROM information_schema.tables
WHERE table_schema = ?
    AND table_name = ?`

// nextSQL reads the next id of the table; MySQL returns NULL for a table that has given none. Parameters: database; table.
// Without freshSQL, MySQL may return a value that is a day old; MariaDB has no such setting.
const (
	freshSQL = `/*!80000 SET SESSION information_schema_stats_expiry = 0 */`

	nextSQL = `SELECT /* tocsin outbox next */
    COALESCE(auto_increment, 1)
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
