package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

// maxFlaws is how many tables of a database a Trial names for each verb: a user who lacks a right usually lacks it for
// all of them.
const maxFlaws = 3

// Flaw is a table that could not be used as required.
type Flaw struct {
	Database string // name
	Table    string // "owner", "task_0003"
	Task     bool   // it is a task table
	Verb     string // SELECT, INSERT, UPDATE or DELETE
	Err      error  // the reason: mysql.ClassOf tells a missing table from a missing right
}

// Trial tries rights on the tables of a server's usable databases, without effect: the statements match no row. nil stands
// for those of nodes, clients, sweepers and purges together. It names at most maxFlaws tables of a database for each verb.
// The error concerns the whole server.
func (s *Store) Trial(ctx context.Context, server int, rights Rights) (flaws []Flaw, user string, err error) {
	sv := s.servers[server]
	if rights == nil {
		rights = usual
	}
	if user, err = s.User(ctx, server); err != nil {
		return nil, "", err
	}
	usable, err := s.usable(ctx, sv)
	if err != nil {
		return nil, user, err
	}
	found, errs := make([][]Flaw, len(usable)), make([]error, len(usable))
	EachServer(len(usable), func(i int) { found[i], errs[i] = s.tryDatabase(ctx, sv, usable[i], rights) })
	return slices.Concat(found...), user, errors.Join(errs...)
}

// User returns the account that the server takes this process for: toc@%.
func (s *Store) User(ctx context.Context, server int) (user string, err error) {
	sv := s.servers[server]
	err = sv.DB.QueryRowContext(ctx, currentUser).Scan(&user)
	return user, s.wrap(err, "ask who the user is", sv)
}

// usable returns the server's databases that are the config's.
func (s *Store) usable(ctx context.Context, sv *server) ([]int, error) {
	_, refused, err := s.refusalsOver(ctx, sv, sv.DB)
	if err != nil {
		return nil, err
	}
	return refused.without(sv.Databases), nil
}

// trialed is one table to try.
type trialed struct {
	name string // without its database
	kind string // TaskTables, or its name
	text statement
}

// tryDatabase tries one verb after the other, each with all tables together.
func (s *Store) tryDatabase(ctx context.Context, sv *server, database int, rights Rights) (flaws []Flaw, err error) {
	name := s.layout.Database(database)
	for _, verb := range verbs {
		left := maxFlaws
		for group := range slices.Chunk(s.trialsOf(rights, verb), maxTables) {
			err := apart(group, func(some []trialed) error {
				if left == 0 {
					return nil
				}
				return s.try(ctx, sv, database, verb, some)
			}, func(t trialed, err error) {
				flaws = append(flaws, Flaw{Database: name, Table: t.name, Task: t.kind == TaskTables, Verb: verb, Err: err})
				left--
			})
			if err != nil {
				return flaws, s.wrap(err, "try what the user may do in "+name, sv)
			}
		}
	}
	return flaws, nil
}

// trialsOf returns the tables of a database on which a verb is tried.
func (s *Store) trialsOf(rights Rights, verb string) (tables []trialed) {
	for _, kind := range []string{"layout", "owner", "doorbell", "biz_type", "relayed", "node", "mark", "schedule", "run", "act"} {
		if text, ok := rights.trial(verb, kind); ok {
			tables = append(tables, trialed{kind, kind, text})
		}
	}
	if text, ok := rights.trial(verb, TaskTables); ok {
		for t := range s.layout.Tables {
			tables = append(tables, trialed{fmt.Sprintf("task_%04d", t), TaskTables, text})
		}
	}
	return tables
}

// try sends one verb for the given tables, in a transaction that is rolled back.
func (s *Store) try(ctx context.Context, sv *server, database int, verb string, tables []trialed) error {
	var text []byte
	for _, t := range tables {
		text = t.text.render(text, s.ofDatabase(database, slots{"table": t.name, "column": updates[t.kind]}))
	}
	err := s.transactIn(ctx, sv, []int{database}, func(conn *sql.Conn) error {
		if verb == "SELECT" {
			return s.read(ctx, conn, "trial", text, func(int, *sql.Rows) error { return nil })
		}
		if _, err := s.write(ctx, conn, "trial", text); err != nil {
			return err
		}
		return errTried
	})
	if errors.Is(err, errTried) {
		return nil
	}
	return err
}

// errTried ends the transaction of a trial.
var errTried = errors.New("tried")

// Commit commits one write on a server, in the first of its usable databases. It inserts a finished task with job_id 0
// into the first task table and deletes it in the same transaction, so it leaves nothing and nobody ever sees it. It
// waits for everything that commits wait for: the disk, the binary log, replicas, a global read lock. It returns false
// if the server has no usable database.
func (s *Store) Commit(ctx context.Context, server int) (tried bool, err error) {
	sv := s.servers[server]
	usable, err := s.usable(ctx, sv)
	if err != nil || len(usable) == 0 {
		return false, err
	}
	_, err = s.change(ctx, usable[0], touch, s.ofDatabase(usable[0], nil))
	return true, s.wrap(err, "commit a write", sv)
}

// Absent reports whether the table does not exist.
func (f Flaw) Absent() bool { return mysql.ClassOf(f.Err) == mysql.Missing }

// Denied reports whether the user lacks the right.
func (f Flaw) Denied() bool {
	return mysql.ClassOf(f.Err) == mysql.Denied && !mysql.SchemaReadOnly(f.Err)
}

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

	tryUpdate = prepare(`UPDATE /* tocsin trial */ {database}.{table} SET {column} = {column} WHERE FALSE;`)
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

// updates has a column of each table that a role may update.
var updates = map[string]string{
	TaskTables: "status", "owner": "revision", "biz_type": "revision", "layout": "state", "node": "about", "mark": "mark", "schedule": "state",
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
	return tryUpdate, updates[table] != "" && reads
}

// touch writes a finished task with job_id 0, which no task has, and removes it.
var touch = prepare(`
INSERT /* tocsin touch */ INTO {database}.task_0000
    (job_id, gmt_create, gmt_modified, biz_id, biz_type, status, action_time, due_time, attribute)
VALUES
    (0, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), 0, 0, 2, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), '');
DELETE /* tocsin touch */ FROM {database}.task_0000
WHERE job_id = 0`)
