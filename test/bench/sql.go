package bench

// The statements of the raw bound, which is the same work as Tocsin's without
// Tocsin: they stand here, apart from the product's, so that a change of those
// can't move the measure. {table} is a task table's full name.

// fillSQL stores rows as Client.AddMany does; their values follow. It is also
// the raw bound of inserts.
const fillSQL = `INSERT /* tocsin bench_fill */ INTO {table} (job_id, gmt_create, gmt_modified, biz_id, biz_type, status, action_time, due_time, attribute) VALUES `

// ringSQL rings the doorbell of one database; the values follow.
const ringSQL = `INSERT /* tocsin bench_ring */ INTO {database}.doorbell (table_no, job_id, biz_type, action_time) VALUES `

// dueSQL reads a page of the due rows of one table in full, by idx_due.
const dueSQL = `SELECT /* tocsin bench_due */ ` + columns + ` FROM {table} FORCE INDEX (idx_due) ` +
	`WHERE status = 0 AND action_time <= UTC_TIMESTAMP(3) AND biz_type = 1 ORDER BY action_time LIMIT 500`

// oneSQL reads one row by its primary key; a job_id follows.
const oneSQL = `SELECT /* tocsin bench_one */ ` + columns + ` FROM {table} WHERE job_id = `

// columns are all of a task table's, in the order in which fullRow scans them.
const columns = `job_id, gmt_create, gmt_modified, action_time, due_time, biz_id, biz_type, status, attempts, crashes, version, ` +
	`claimed_by, dedup_key, last_error, attribute`

// forUpdate makes dueSQL lock its rows.
const forUpdate = ` FOR UPDATE`

// claimSQL and doneSQL write rows by their ids, which follow with a closing
// parenthesis.
const (
	claimSQL = `UPDATE /* tocsin bench_claim */ {table} FORCE INDEX (PRIMARY) SET status = 1, ` +
		`action_time = UTC_TIMESTAMP(3) + INTERVAL 15 SECOND, claimed_by = 'bench', gmt_modified = UTC_TIMESTAMP(3) WHERE job_id IN (`
	doneSQL = `UPDATE /* tocsin bench_done */ {table} FORCE INDEX (PRIMARY) SET status = 2, ` +
		`action_time = UTC_TIMESTAMP(3), gmt_modified = UTC_TIMESTAMP(3) WHERE job_id IN (`
)

// statusSQL reads what the server has counted since its start, settingsSQL what
// it was told. Servers skip the names they do not have.
const (
	statusSQL = `SHOW /* tocsin bench_status */ GLOBAL STATUS WHERE Variable_name IN (
    'Questions', 'Bytes_sent', 'Bytes_received',
    'Com_select', 'Com_insert', 'Com_insert_select', 'Com_update', 'Com_commit')`
	settingsSQL = `SHOW /* tocsin bench_settings */ GLOBAL VARIABLES WHERE Variable_name IN (
    'version', 'version_comment', 'log_bin', 'sync_binlog',
    'innodb_flush_log_at_trx_commit', 'innodb_flush_method', 'innodb_doublewrite',
    'innodb_buffer_pool_size', 'innodb_log_file_size', 'innodb_redo_log_capacity',
    'table_open_cache', 'table_open_cache_instances', 'table_definition_cache', 'innodb_open_files',
    'max_connections', 'max_allowed_packet', 'performance_schema')`
)

// historySQL reads how many transactions wait to be purged. It needs the right PROCESS.
const historySQL = `SELECT /* tocsin bench_history */
    count
FROM information_schema.innodb_metrics
WHERE name = 'trx_rseg_history_len'`

// dropSQL removes a database of the run; its name follows.
const dropSQL = `DROP DATABASE IF EXISTS `
