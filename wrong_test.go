package tocsin_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// wrongs are ways to make a database {db} wrong, and right again.
var wrongs = map[string]struct{ wrong, right, says string }{
	"another cluster": {
		"UPDATE {db}.layout SET cluster_id = CONCAT(cluster_id, 'x')",
		"UPDATE {db}.layout SET cluster_id = LEFT(cluster_id, LENGTH(cluster_id) - 1)", "cluster of the config is",
	},
	"another number": {"UPDATE {db}.layout SET database_no = 7", "UPDATE {db}.layout SET database_no = 0", "says that it is database 7"},
	"no layout table": {
		"RENAME TABLE {db}.layout TO {db}.away", "RENAME TABLE {db}.away TO {db}.layout", "has no layout table",
	},
	"no layout row": {"UPDATE {db}.layout SET id = 2", "UPDATE {db}.layout SET id = 1", "has no layout row"},
}

// Only the first database is wrong, the one from which biz types are normally read.
func TestAWrongDatabaseCostsItsOwnTasksOnly(t *testing.T) {
	t.Parallel()
	for what, w := range wrongs {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			cfg := cluster(t)
			db := session(t, devtest.DSN(t), "")
			if err := db.QueryRowContext(t.Context(), "SELECT cluster_id FROM "+cfg.Layout.Database(0)+".layout").Scan(&cfg.Cluster); err != nil {
				t.Fatal(err)
			}
			before := open(t, cfg)
			there, beside := bizOn(cfg.Layout, 0, 1), bizOn(cfg.Layout, 1, 1)
			old := add(t, before, remind.New(there, "x", tocsin.In(day)))
			change := func(statement string) { exec(t, db, strings.ReplaceAll(statement, "{db}", cfg.Layout.Database(0))) }

			change(w.wrong)
			for name, c := range map[string]*tocsin.Client{"that was open": before, "that opens now": open(t, cfg)} {
				// The open client reads the layout once a second.
				for err := error(nil); err == nil; {
					_, err = c.Get(t.Context(), old.JobID)
				}
				for verb, do := range callsTo(t, c, db, old.JobID, there, beside) {
					if err := do(); !errors.Is(err, tocsin.ErrLayout) || !strings.Contains(err.Error(), w.says) {
						t.Errorf("a client %s: %s: %v", name, verb, err)
					}
				}
				one := add(t, c, remind.New(beside, "y", tocsin.In(day)))
				if got := get(t, c, one.JobID); got.Payload != "y" {
					t.Errorf("a client %s reads %+v beside it", name, got)
				}
				if _, err := c.Cancel(t.Context(), tocsin.ByID(one.JobID)); err != nil {
					t.Errorf("a client %s: cancel beside it: %v", name, err)
				}
			}
			change(w.right)
			for err := errors.New("not yet"); err != nil; {
				_, err = before.Get(t.Context(), old.JobID)
			}
			if got := must[[]tocsin.Info](t)(before.List(t.Context(), there)); len(got) != 1 || got[0].Status != tocsin.Pending {
				t.Errorf("in the database that was wrong: %+v, want the one task of before", got)
			}
			add(t, before, remind.New(there, "z", tocsin.In(day)))
		})
	}
}

// A snapshot of the caller's may be older than the retirement of the database.
func TestARetirementAfterTheSnapshotOfATransactionIsRefused(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	c := open(t, cfg)
	db := session(t, devtest.DSN(t), "")
	there := bizOn(cfg.Layout, 0, 1)
	for name, task := range map[string]tocsin.NewTask{
		"a task":                   remind.New(there, "x", tocsin.In(day)),
		"a task with a unique key": remind.New(there, "x", tocsin.In(day)).Unique("k", tocsin.While(tocsin.Pending, tocsin.Claimed)),
	} {
		tx := begin(t, db)
		exec(t, db, "UPDATE "+cfg.Layout.Database(0)+".layout SET state = 'retired'")
		_, err := c.AddTx(t.Context(), tx, task)
		if !errors.Is(err, tocsin.ErrLayout) || !strings.Contains(err.Error(), "retired") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
		_ = tx.Rollback()
		exec(t, db, "UPDATE "+cfg.Layout.Database(0)+".layout SET state = 'active'")
	}
}

// rolledBack calls do in a transaction that does not last.
func rolledBack(t *testing.T, db *sql.DB, do func(*sql.Tx) error) error {
	t.Helper()
	tx := begin(t, db)
	defer func() { _ = tx.Rollback() }()
	return do(tx)
}

// callsTo are calls about one biz_id and its task; AddMany must also store a task of another.
func callsTo(t *testing.T, c *tocsin.Client, db *sql.DB, old tocsin.JobID, there, beside uint64) map[string]func() error {
	return map[string]func() error{
		"Add": func() error { _, err := c.Add(t.Context(), remind.New(there, "x", tocsin.In(0))); return err },
		"AddMany": func() error {
			added, err := c.AddMany(t.Context(), []tocsin.NewTask{remind.New(there, "x", tocsin.In(0)), remind.New(beside, "x", tocsin.In(day))})
			if added[1].Err != nil {
				t.Errorf("AddMany, task beside it: %v", added[1].Err)
			}
			return errors.Join(err, added[0].Err)
		},
		"Cancel":     func() error { _, err := c.Cancel(t.Context(), tocsin.ByID(old)); return err },
		"Reschedule": func() error { _, err := c.Reschedule(t.Context(), tocsin.ByID(old), tocsin.In(0)); return err },
		"AddTx": func() error {
			return rolledBack(t, db, func(tx *sql.Tx) error {
				_, err := c.AddTx(t.Context(), tx, remind.New(there, "x", tocsin.In(0)))
				return err
			})
		},
		"CancelTx": func() error {
			return rolledBack(t, db, func(tx *sql.Tx) error { _, err := c.CancelTx(t.Context(), tx, tocsin.ByID(old)); return err })
		},
		"RescheduleTx": func() error {
			return rolledBack(t, db, func(tx *sql.Tx) error {
				_, err := c.RescheduleTx(t.Context(), tx, tocsin.ByID(old), tocsin.In(0))
				return err
			})
		},
		"Get":  func() error { _, err := c.Get(t.Context(), old); return err },
		"List": func() error { _, err := c.List(t.Context(), there); return err },
	}
}
