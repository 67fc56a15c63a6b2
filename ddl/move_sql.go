package ddl

import "github.com/tocsinhq/tocsin/internal/layoutrow"

// aside is put before the name of a table of a retired database. The tables layout and biz_type keep their
// names, so that a program with the old config can read that the database has moved.
const aside = "retired_"

// retireLayout and activateLayout write the state of a database, raiseMark raises its mark above that of the other copy.
// Primary key. Zero rows: it was so already.
const (
	retireLayout = `UPDATE /* tocsin ddl move */ ` + "`{database}`" + `.layout
SET state = '` + layoutrow.Retired + `'
WHERE id = 1`

	activateLayout = `UPDATE /* tocsin ddl move */ ` + "`{database}`" + `.layout
SET state = '` + layoutrow.Active + `'
WHERE id = 1`

	raiseMark = `UPDATE /* tocsin ddl move */ ` + "`{database}`" + `.layout
SET mark = GREATEST(mark, {mark}) + 1
WHERE id = 1`
)

// renameTables takes tables out of the reach of every statement, or back; renameTable stands for each, with commas between.
// It waits for the transactions that have used a table, and no later one can use it under its old name.
const (
	renameTables = `RENAME /* tocsin ddl move */ TABLE `
	renameTable  = "`{database}`.`{from}` TO `{database}`.`{to}`"
)

// selectUUID reads the id that differs between any two MySQL servers, whatever their addresses. No row: the server is
// MariaDB. MariaDB's server_uid is no such id: it is a hash of a network card's address and the port, which two
// containers may share.
const selectUUID = `SHOW /* tocsin ddl move */ GLOBAL VARIABLES
WHERE Variable_name = 'server_uuid'`

// countTasks counts the rows of a task table by status, from idx_due alone.
const countTasks = `SELECT /* tocsin ddl move */
    status,
    COUNT(*)    AS tasks,
    MAX(job_id) AS highest
FROM ` + "`{database}`.`{table}`" + ` FORCE INDEX (idx_due)
GROUP BY status
ORDER BY status`

// sumTasks sums up the live rows of a task table, and the dead, which can be redriven; sumTypes the biz types, sumRelayed
// what relays must not move again, sumSchedules the schedules: each adds its columns after sumTexts. Sums and BIT_XOR don't depend on the order of rows. spanRuns reads how
// far the history of runs goes, from both ends of its indexes, spanActs the same of acts: nothing depends on their rows, which may be many.
const (
	sumTexts = `SELECT /* tocsin ddl move */
    COUNT(*),
    COALESCE(SUM(CRC32(r.text)), 0),
    COALESCE(BIT_XOR(CRC32(r.text)), 0)
FROM (
    SELECT CONCAT_WS('|', `

	sumTasks = sumTexts + `job_id, gmt_create, gmt_modified, biz_id, biz_type, status, action_time, due_time, attempts,
        crashes, version, claimed_by, COALESCE(HEX(dedup_key), '-'), last_error, attribute, COALESCE(HEX(headers), '-'), HEX(biz_key)) AS text
    FROM ` + "`{database}`.`{table}`" + ` FORCE INDEX (idx_due)
    WHERE status IN (0, 1, 4)
) AS r`

	sumTypes = sumTexts + `number, name, group_name, policy, revision) AS text
    FROM ` + "`{database}`" + `.biz_type
) AS r`

	sumRelayed = sumTexts + `outbox, id, created, job_id) AS text
    FROM ` + "`{database}`.`{table}`" + `
) AS r`

	sumSchedules = sumTexts + `schedule_id, gmt_create, gmt_modified, name, app, table_no, biz_type, biz_id, HEX(biz_key), cron, zone,
        COALESCE(start_time, '-'), COALESCE(end_time, '-'), jitter_ms, start_within_ms, missed, missed_most, overlap, pause_after,
        state, revision, anchor, made_until, COALESCE(next_fire, '-'), failures, made, passed_over, COALESCE(HEX(open_from), '-'), reason, attribute,
        COALESCE(HEX(headers), '-')) AS text
    FROM ` + "`{database}`.`{table}`" + `
) AS r`

	spanRuns = `SELECT /* tocsin ddl move */
    COALESCE(MIN(run_id), 0),
    COALESCE(MAX(run_id), 0),
    COALESCE(MAX(job_id), 0)
FROM ` + "`{database}`.`{table}`"

	spanActs = `SELECT /* tocsin ddl move */
    COALESCE(MIN(act_id), 0),
    COALESCE(MAX(act_id), 0),
    0
FROM ` + "`{database}`.`{table}`"
)
