package ddl

import "github.com/tocsinhq/tocsin/internal/layoutrow"

// selectMarks reads what a database knows of the marks of others. Parameter: the identity of the cluster.
const selectMarks = `SELECT /* tocsin ddl restore */
    database_no, mark
FROM ` + "`{database}`" + `.mark
WHERE identity = ?`

// selectBizTypes reads the biz types of a database.
const selectBizTypes = `SELECT /* tocsin ddl restore */
    number, name, revision
FROM ` + "`{database}`" + `.biz_type`

// countRestored counts the tasks of one table that may be delivered, and the dead, by biz type: in delivery or due until a
// time, due since then, later, dead. From idx_due alone. Parameter: the time.
const countRestored = `SELECT /* tocsin ddl restore */
    biz_type,
    CASE
        WHEN status = 4 THEN 3
        WHEN status = 1 OR action_time <= ? THEN 0
        WHEN action_time <= UTC_TIMESTAMP(3) THEN 1
        ELSE 2
    END      AS due,
    COUNT(*) AS tasks
FROM ` + "`{database}`.`{table}`" + ` FORCE INDEX (idx_due)
WHERE status IN (0, 1, 4)
GROUP BY biz_type, due`

// countAdded counts the tasks of one table that were added between two times, at most {limit}. A range of the primary key.
// Parameters: the lowest job_ids of these times.
const countAdded = `SELECT /* tocsin ddl restore */
    COUNT(*)
FROM (
    SELECT job_id
    FROM ` + "`{database}`.`{table}`" + ` FORCE INDEX (PRIMARY)
    WHERE job_id >= ?
        AND job_id < ?
    LIMIT {limit}
) AS added`

// selectSettled finds tasks of one table and status that were due until a time, at most {limit}; {types} restricts them to
// biz types. A claimed one was due, whenever its claim ends. A range of idx_due. Parameter: the time.
const selectSettled = `SELECT /* tocsin ddl restore */
    job_id
FROM ` + "`{database}`.`{table}`" + ` FORCE INDEX (idx_due)
WHERE status = {status}
    AND (status = 1 OR action_time <= ?){types}
ORDER BY action_time, biz_type, job_id
LIMIT {limit}`

// settleRestored settles tasks of one table. A task that is cancelled loses its dedup_key. Primary key. Parameters: the
// reason, job_ids, the time.
const settleRestored = `UPDATE /* tocsin ddl restore */ ` + "`{database}`.`{table}`" + ` FORCE INDEX (PRIMARY)
SET status = {status},
    action_time = UTC_TIMESTAMP(3),
    last_error = ?,
    dedup_key = {dedup_key},
    gmt_modified = UTC_TIMESTAMP(3)
WHERE job_id IN (?)
    AND (status = 1 OR status = 0 AND action_time <= ?)`

// selectUnmarked finds the dead tasks of one table that no restore has marked: it reads the dead part of idx_due, and then each row.
const selectUnmarked = `SELECT /* tocsin ddl restore */
    job_id
FROM ` + "`{database}`.`{table}`" + ` FORCE INDEX (idx_due)
WHERE status = 4
    AND last_error NOT LIKE '` + layoutrow.RestoredError + `%'`

// markRestored marks dead tasks of one table, in front of their last error, and gives them the version that a redrive since the
// copy was made has given them: a redrive with the same key has the key of that one. Primary key. Parameters: the mark, job_ids.
const markRestored = `UPDATE /* tocsin ddl restore */ ` + "`{database}`.`{table}`" + ` FORCE INDEX (PRIMARY)
SET last_error = LEFT(CONCAT(?, last_error), 255),
    version = version + 1,
    gmt_modified = UTC_TIMESTAMP(3)
WHERE job_id IN (?)
    AND status = 4
    AND last_error NOT LIKE '` + layoutrow.RestoredError + `%'`

// advanceSchedules has fire times until a time, jitter included, count as made: their runs are among the tasks that count as
// settled. {types} restricts it to biz types. All schedules are read. Parameters: the time, twice.
const advanceSchedules = `UPDATE /* tocsin ddl restore */ ` + "`{database}`" + `.schedule
SET made_until = ? - INTERVAL jitter_ms * 1000 MICROSECOND,
    gmt_modified = UTC_TIMESTAMP(3)
WHERE state = 'active'
    AND made_until < ? - INTERVAL jitter_ms * 1000 MICROSECOND{types}`

// holdLayout takes a database out of use, holdNow does so and raises its mark to the present. releaseLayout puts a database
// into use with a mark that no other place exceeds. Primary key. Zero rows: it was so already, or is in neither state.
// Parameter of releaseLayout: the highest mark known.
const (
	holdLayout = `UPDATE /* tocsin ddl restore */ ` + "`{database}`" + `.layout
SET state = '` + layoutrow.Held + `'
WHERE id = 1
    AND state = '` + layoutrow.Active + `'`

	holdNow = `UPDATE /* tocsin ddl restore */ ` + "`{database}`" + `.layout
SET state = '` + layoutrow.Held + `',
    mark = GREATEST(mark, FLOOR(UNIX_TIMESTAMP(NOW(3)) * 1000))
WHERE id = 1
    AND state = '` + layoutrow.Active + `'`

	releaseLayout = `UPDATE /* tocsin ddl restore */ ` + "`{database}`" + `.layout
SET state = '` + layoutrow.Active + `',
    mark = GREATEST(mark, ?, FLOOR(UNIX_TIMESTAMP(NOW(3)) * 1000))
WHERE id = 1
    AND state = '` + layoutrow.Held + `'`
)

// keepMark stores the mark of a database in another one. The columns change in the order of the list. Parameters: the
// database's number, identity and mark.
const keepMark = `INSERT /* tocsin ddl restore */ INTO ` + "`{database}`" + `.mark
    (database_no, identity, mark, gmt_modified)
VALUES (?, ?, ?, UTC_TIMESTAMP(3))
ON DUPLICATE KEY UPDATE
    mark         = IF(identity = VALUES(identity), GREATEST(VALUES(mark), mark), VALUES(mark)),
    identity     = VALUES(identity),
    gmt_modified = VALUES(gmt_modified)`
