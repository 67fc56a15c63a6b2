package store

import "slices"

// The statements of Trial and Commit. Each statement of a trial needs the right that
// it tests, and matches no row.

const currentUser = `SELECT /* tocsin trial */ CURRENT_USER()`

var (
	trySelect = prepare(`SELECT /* tocsin trial */ 1 FROM {database}.{table} WHERE FALSE;`)
	tryInsert = prepare(`INSERT /* tocsin trial */ INTO {database}.{table} SELECT * FROM {database}.{table} WHERE FALSE;`)
	tryDelete = prepare(`DELETE /* tocsin trial */ FROM {database}.{table} WHERE FALSE;`)

	// tryRing needs no SELECT, as ringing the bell doesn't.
	tryRing = prepare(`INSERT /* tocsin trial */ INTO {database}.{table} (table_no, job_id, biz_type, action_time)
SELECT 0, 0, 0, UTC_TIMESTAMP(3) FROM DUAL WHERE FALSE;`)

	tryStatus   = prepare(`UPDATE /* tocsin trial */ {database}.{table} SET status = status WHERE FALSE;`)
	tryRevision = prepare(`UPDATE /* tocsin trial */ {database}.{table} SET revision = revision WHERE FALSE;`)
	tryState    = prepare(`UPDATE /* tocsin trial */ {database}.{table} SET state = state WHERE FALSE;`)
	tryAbout    = prepare(`UPDATE /* tocsin trial */ {database}.{table} SET about = about WHERE FALSE;`)
	tryMark     = prepare(`UPDATE /* tocsin trial */ {database}.{table} SET mark = mark WHERE FALSE;`)
)

// TaskTables stands for all task tables in Rights.
const TaskTables = "task"

// Rights are verbs (SELECT, INSERT, UPDATE, DELETE) by table: TaskTables, or the name of another table. Other verbs can't
// be tried without effect, and are passed over.
type Rights map[string][]string

// usual are the rights of nodes, clients and purges together.
var usual = Rights{
	"owner": {"SELECT", "INSERT", "UPDATE"}, "doorbell": {"SELECT", "INSERT", "DELETE"}, "biz_type": {"SELECT", "INSERT", "UPDATE"},
	TaskTables: {"SELECT", "INSERT", "UPDATE", "DELETE"},
}

// verbs are those that can be tried, in order.
var verbs = []string{"SELECT", "INSERT", "UPDATE", "DELETE"}

// updates has a statement for each table that a role may update.
var updates = map[string]statement{
	TaskTables: tryStatus, "owner": tryRevision, "biz_type": tryRevision, "layout": tryState, "node": tryAbout, "mark": tryMark, "schedule": tryState,
}

// trial returns the statement that tries a verb on a table; false if there is none that needs only rights in r.
func (r Rights) trial(verb, table string) (statement, bool) {
	if !slices.Contains(r[table], verb) {
		return statement{}, false
	}
	reads := slices.Contains(r[table], "SELECT")
	switch {
	case verb == "SELECT":
		return trySelect, true
	case verb == "INSERT" && table == "doorbell":
		return tryRing, true
	case verb == "INSERT":
		return tryInsert, reads
	case verb == "DELETE":
		return tryDelete, reads
	}
	text, known := updates[table]
	return text, known && reads
}

// touch writes a finished task with job_id 0, which no task has, and removes it.
var touch = prepare(`
INSERT /* tocsin touch */ INTO {database}.task_0000
    (job_id, gmt_create, gmt_modified, biz_id, biz_type, status, action_time, due_time, attribute)
VALUES
    (0, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), 0, 0, 2, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), '');
DELETE /* tocsin touch */ FROM {database}.task_0000
WHERE job_id = 0`)
