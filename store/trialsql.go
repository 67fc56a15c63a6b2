package store

import "slices"

// The statements of Trial and Commit. Each statement of a trial needs the right that
// it tests, and matches no row.

const currentUser = `SELECT /* tocsin trial */ CURRENT_USER()`

// trial is the statements that test one verb: on task tables, and on the other tables
// that are named.
type trial struct {
	verb  string
	task  statement
	other statement
	names []string
}

var (
	trySelect = prepare(`SELECT /* tocsin trial */ 1 FROM {database}.{table} WHERE FALSE;`)
	tryInsert = prepare(`INSERT /* tocsin trial */ INTO {database}.{table} SELECT * FROM {database}.{table} WHERE FALSE;`)
	tryStatus = prepare(`UPDATE /* tocsin trial */ {database}.{table} SET status = status WHERE FALSE;`)
	tryUpdate = prepare(`UPDATE /* tocsin trial */ {database}.{table} SET revision = revision WHERE FALSE;`)
	tryDelete = prepare(`DELETE /* tocsin trial */ FROM {database}.{table} WHERE FALSE;`)
)

var trials = []trial{
	{"SELECT", trySelect, trySelect, []string{"owner", "doorbell", "biz_type"}},
	{"INSERT", tryInsert, tryInsert, []string{"owner", "doorbell", "biz_type"}},
	{"UPDATE", tryStatus, tryUpdate, []string{"owner", "biz_type"}},
	{"DELETE", tryDelete, tryDelete, []string{"doorbell"}},
}

// of returns the tables on which the verb is tried.
func (t trial) of(tables []trialed) []trialed {
	return slices.DeleteFunc(slices.Clone(tables), func(one trialed) bool { return !one.task && !slices.Contains(t.names, one.name) })
}

// text returns the statement for a table.
func (t trial) text(table trialed) statement {
	if table.task {
		return t.task
	}
	return t.other
}

// touch writes a finished task with job_id 0, which no task has, and removes it.
var touch = prepare(`
INSERT /* tocsin touch */ INTO {database}.task_0000
    (job_id, gmt_create, gmt_modified, biz_id, biz_type, status, action_time, due_time, attribute)
VALUES
    (0, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), 0, 0, 2, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), '');
DELETE /* tocsin touch */ FROM {database}.task_0000
WHERE job_id = 0`)
