package tocsinpg

// The statements. {outbox} stands for the quoted name of the table.

// readSQL reads whole rows with ids in ranges, in the order of the ranges, which is that of the ids: the function and the
// table are a nested loop. statement_timestamp is before the first row is answered. Parameters: first ids, last ids, the
// most rows. Primary key.
const readSQL = `SELECT /* tocsin outbox read */
    o.id,
    o.op,
    o.biz_type,
    CAST(o.biz_id AS text),
    CAST(EXTRACT(EPOCH FROM o.due_time) * 1000000 AS bigint),
    o.delay_ms,
    COALESCE(o.dedup_key, ''),
    COALESCE(o.headers, ''),
    o.biz_key,
    o.attribute,
    o.created,
    CAST(EXTRACT(EPOCH FROM statement_timestamp() - o.created) * 1000000 AS bigint),
    o.attempts,
    o.last_error
FROM unnest(CAST($1 AS bigint[]), CAST($2 AS bigint[])) AS r (first, last)
CROSS JOIN LATERAL (
    SELECT id, op, biz_type, biz_id, due_time, delay_ms, dedup_key, headers, biz_key, attribute, created, attempts, last_error
    FROM {outbox}
    WHERE id BETWEEN r.first AND r.last{stuck}
    ORDER BY id
    LIMIT $3
) AS o
LIMIT $3`

// stuckSQL is added to the condition for rows that were set aside.
const stuckSQL = `
        AND last_error <> ''`

// deleteSQL deletes rows by their ids and times of creation, which spare a row that got the id of another after the outbox
// was emptied. Parameters: ids; ids, times. Primary key, by the ids.
const deleteSQL = `DELETE /* tocsin outbox delete */ FROM {outbox}
WHERE id = ANY (CAST($1 AS bigint[]))
    AND (id, created) IN (
        SELECT k.id, k.created
        FROM unnest(CAST($1 AS bigint[]), CAST($2 AS timestamptz[])) AS k (id, created)
    )`

// asideSQL notes why a row was set aside. Parameters: reason, id, created. Primary key.
const asideSQL = `UPDATE /* tocsin outbox aside */ {outbox}
SET attempts = attempts + 1,
    last_error = $1
WHERE id = $2
    AND created = $3`

// presentSQL finds which rows of a list are there. Parameter: ids. Primary key.
const presentSQL = `SELECT /* tocsin outbox present */
    id,
    created
FROM {outbox}
WHERE id = ANY (CAST($1 AS bigint[]))`

// retrySQL lets relays move rows that were set aside. Parameters: whether all; else their ids.
const retrySQL = `UPDATE /* tocsin outbox retry */ {outbox}
SET last_error = ''
WHERE last_error <> ''
    AND ($1 OR id = ANY (CAST($2 AS bigint[])))`

// dropSQL deletes rows that were set aside. Parameters: whether all; else their ids.
const dropSQL = `DELETE /* tocsin outbox drop */ FROM {outbox}
WHERE last_error <> ''
    AND ($1 OR id = ANY (CAST($2 AS bigint[])))`

// writersSQL finds the transactions that have written into the table, or are about to: each holds this lock until it ends,
// prepared or not. Parameter: quoted name of the table.
const writersSQL = `SELECT /* tocsin outbox writers */
    virtualtransaction
FROM pg_catalog.pg_locks
WHERE locktype = 'relation'
    AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
    AND relation = to_regclass($1)
    AND mode = 'RowExclusiveLock'
    AND granted
    AND pid IS DISTINCT FROM pg_backend_pid()`

// emptySQL finds those of the ranges in which no row is. Parameters: first ids, last ids. Primary key.
const emptySQL = `SELECT /* tocsin outbox empty */
    r.first,
    r.last
FROM unnest(CAST($1 AS bigint[]), CAST($2 AS bigint[])) AS r (first, last)
WHERE NOT EXISTS (
    SELECT 1
    FROM {outbox}
    WHERE id BETWEEN r.first AND r.last
)`

// identitySQL reads the comment of the table, with its identity. Parameter: quoted name of the table.
const identitySQL = `SELECT /* tocsin outbox identity */
    COALESCE(obj_description(to_regclass($1), 'pg_class'), '')`

// nextSQL reads the next id of the table's sequence, 0 without the right to read it. There is no last value if no id was drawn. It
// names the sequence by its oid: the user may not use the schemas of all others. Parameter: quoted name of the table.
const nextSQL = `SELECT /* tocsin outbox next */
    CASE WHEN has_sequence_privilege(seqrelid, 'SELECT, USAGE')
        THEN COALESCE(pg_sequence_last_value(seqrelid) + 1, seqstart)
        ELSE 0
    END
FROM pg_catalog.pg_sequence
WHERE seqrelid = to_regclass(pg_get_serial_sequence($1, 'id'))`

// pidSQL asks which process of the server answers.
const pidSQL = `SELECT /* tocsin outbox pid */
    pg_backend_pid()`

// leadSQL takes the lock of the one relay that is active, if it is free. Parameter: its number.
const leadSQL = `SELECT /* tocsin outbox lead */
    pg_try_advisory_lock($1)`

// holderSQL finds the process of the server that has a lock, and the database of the lock. Parameters: its number; whether that
// is this database, else any other.
const holderSQL = `SELECT /* tocsin outbox holder */
    l.pid,
    CAST(d.datname AS text)
FROM pg_catalog.pg_locks AS l
JOIN pg_catalog.pg_database AS d
    ON d.oid = l.database
WHERE l.locktype = 'advisory'
    AND (d.datname = current_database()) = $2
    AND (CAST(l.classid AS bigint) << 32 | CAST(l.objid AS bigint)) = $1
    AND l.objsubid = 1
    AND l.granted
LIMIT 1`
