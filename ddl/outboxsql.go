package ddl

// identifyOutbox gives an outbox its identity, random, in the comment of its table, and leaves one that is there. A relay
// notes what it has moved under the identity. It is made by the server, so that the same file may be run for several
// outboxes.
//
// A table without the columns of an outbox keeps its comment: somebody has named the wrong table.
const identifyOutbox = "SET @tocsin_outbox = IF((" + selectOutboxes + `
    AND table_comment LIKE 'tocsin outbox _%') > 0 OR (` + selectOutboxColumns + `) < 4, 'DO 0',
    CONCAT('ALTER /* tocsin outbox */ TABLE ` + "`{database}`.`{table}`" + ` COMMENT = ''tocsin outbox ', REPLACE(UUID(), '-', ''), ''''));
PREPARE tocsin_outbox FROM @tocsin_outbox;
EXECUTE tocsin_outbox;
DEALLOCATE PREPARE tocsin_outbox`

// selectOutboxes counts the tables of that name.
const selectOutboxes = `SELECT /* tocsin outbox */
    COUNT(*)
FROM information_schema.tables
WHERE table_schema = '{database}'
    AND table_name = '{table}'`

// selectOutboxColumns counts which of four columns the table has that no other table is likely to have all of.
const selectOutboxColumns = `SELECT /* tocsin outbox */
    COUNT(*)
FROM information_schema.columns
WHERE table_schema = '{database}'
    AND table_name = '{table}'
    AND column_name IN ('op', 'biz_type', 'delay_ms', 'last_error')`

// selectOutboxComment reads the comment of the table. Parameters: database, table.
const selectOutboxComment = `SELECT /* tocsin outbox verify */
    table_comment
FROM information_schema.tables
WHERE table_schema = ?
    AND table_name = ?`

// selectOutboxServer reads how the server writes its binary log, and whether it takes writes. MySQL 9 may lack a variable.
const selectOutboxServer = `SHOW /* tocsin outbox verify */ GLOBAL VARIABLES
WHERE variable_name IN ('log_bin', 'binlog_format', 'read_only')`

// outboxHead stands above the statements of a plan.
const outboxHead = `-- An outbox of Tocsin, {database}.{table}. Run it as a user who may create and alter that table. It drops nothing and may be
-- run again.
SET SESSION lock_wait_timeout = 5;

`

// outboxRights stands below them. The rights on columns are all that a relay may change of a row.
const outboxRights = `
-- The rights that users need. A service that adds, cancels and reschedules:
--     GRANT INSERT ON ` + "`{database}`.`{table}`" + ` TO 'service'@'%';
-- A relay:
--     GRANT SELECT, DELETE, UPDATE (attempts, last_error) ON ` + "`{database}`.`{table}`" + ` TO 'tocsin_relay'@'%';
-- An audit of outboxes:
--     GRANT SELECT ON ` + "`{database}`.`{table}`" + ` TO 'tocsin_audit'@'%';
`
