package client_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// sessions are what users' programs connect with.
func sessions(tb testing.TB) map[string]string {
	return map[string]string{
		"the driver's defaults":      "",
		"interpolated":               "interpolateParams=true",
		"times parsed":               "parseTime=true&loc=Asia%2FShanghai",
		"interpolated, times parsed": "parseTime=true&interpolateParams=true",
		"found rows":                 "clientFoundRows=true&interpolateParams=true",
		"latin1":                     "charset=latin1",
		"latin1, interpolated":       "charset=latin1&interpolateParams=true",
		"sql_mode of old":            "sql_mode=%27%27",
		"sql_mode of others":         "sql_mode=%27ANSI%2CNO_BACKSLASH_ESCAPES%27&interpolateParams=true",
		"no autocommit":              "autocommit=0",
		"safe updates":               "sql_safe_updates=1&sql_select_limit=1",
		"GBK":                        "charset=gbk",
		"time zone of Shanghai":      "time_zone=%27%2B08%3A00%27",
		"serializable":               devtest.IsolationParam(tb, "SERIALIZABLE"),
	}
}

// A text must not be taken for one of the session's character set, prepared or interpolated, however much it looks like one.
func TestTextsFromSessionsOfOtherCharacterSets(t *testing.T) {
	t.Parallel()
	cfg := cluster(t)
	c, own := open(t, cfg), session(t, devtest.DSN(t), "")
	withOutbox := withOutbox(t, cfg)
	relaying := open(t, withOutbox)
	bizID := uint64(0)
	for _, params := range []string{"charset=gbk", "charset=big5", "charset=sjis", "charset=cp932", "charset=latin1", "charset=utf8mb4", "charset=latin1&interpolateParams=true"} {
		db := session(t, devtest.DSN(t), params)
		for _, text := range []string{"刊:", "25ı而", "虮", "!幽s🎧\"划", "ü 🔔 \\ ' \" x", "订单", "Заказ", ""} {
			bizID++
			task := remind.New(bizID, text, tocsin.In(day)).Header("h", text)
			for _, client := range []*tocsin.Client{c, relaying} {
				tx := begin(t, db)
				must[tocsin.Added](t)(client.AddTx(t.Context(), tx, task))
				commit(t, tx)
			}
			stored := listed(t, c, bizID)
			if len(stored) != 1 || stored[0].Payload != text || stored[0].Headers.Get("h") != text {
				t.Errorf("%s: %q became %+v", params, text, stored)
			}
			var payload, headers string
			query := "SELECT attribute, headers FROM " + withOutbox.Outbox.Table + " WHERE biz_id = ?"
			if err := own.QueryRow(query, bizID).Scan(&payload, &headers); err != nil {
				t.Fatal(err)
			}
			if payload != text || tocsin.Headers(headers).Get("h") != text {
				t.Errorf("%s: %q became %q, with headers %q, in the outbox", params, text, payload, headers)
			}
		}
	}
}

func TestAddTxFromAnySession(t *testing.T) {
	t.Parallel()
	c, own := start(t)
	bizID := uint64(100)
	for name, params := range sessions(t) {
		db := session(t, devtest.DSN(t), params)
		at := time.Now().Add(day).Truncate(time.Millisecond).UTC().Round(0)
		for kind, when := range map[string]tocsin.When{"at": tocsin.At(at), "in": tocsin.In(time.Second)} {
			bizID++
			task := remind.New(bizID, "ü 🔔 \\ ' \" x", when).Dedup("ключ")
			tx := begin(t, db)
			gone := must[tocsin.Added](t)(c.AddTx(t.Context(), tx, task))
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Get(t.Context(), gone.JobID); !errors.Is(err, tocsin.ErrNotFound) || bells(t, c, own, gone.JobID) != 0 {
				t.Errorf("%s, %s: rolled back, but %v", name, kind, err)
			}
			tx = begin(t, db)
			kept := must[tocsin.Added](t)(c.AddTx(t.Context(), tx, task))
			again := must[tocsin.Added](t)(c.AddTx(t.Context(), tx, task))
			commit(t, tx)
			if kept.Existing || !again.Existing || again.JobID != kept.JobID {
				t.Errorf("%s, %s: %+v, then %+v", name, kind, kept, again)
			}
			got := get(t, c, kept.JobID)
			want := got.Created.Add(time.Second)
			if kind == "at" {
				want = at
			}
			if got.Payload != "ü 🔔 \\ ' \" x" || got.DedupKey != "ключ" || !got.ActionTime.Equal(want) || !got.DueTime.Equal(want) {
				t.Errorf("%s, %s: stored %+v", name, kind, got)
			}
			if age := time.Since(got.Created); age < -time.Minute || age > time.Minute {
				t.Errorf("%s, %s: created %s ago", name, kind, age)
			}
			if n := bells(t, c, own, kept.JobID); (n == 1) != (kind == "in") {
				t.Errorf("%s, %s: %d rings", name, kind, n)
			}
		}
	}
}

func TestChangesFromAnySession(t *testing.T) {
	t.Parallel()
	const soon = 8 * time.Second // rung, and not due before its cancel
	c, own := start(t)
	bizID := uint64(100)
	for name, params := range sessions(t) {
		db := session(t, devtest.DSN(t), params)
		for kind, ref := range map[string]func(uint64, tocsin.JobID) tocsin.Ref{
			"by id":  func(_ uint64, id tocsin.JobID) tocsin.Ref { return tocsin.ByID(id) },
			"by biz": func(biz uint64, _ tocsin.JobID) tocsin.Ref { return remind.Of(biz) },
		} {
			bizID++
			tx := begin(t, db)
			id := add(t, c, remind.New(bizID, "x", tocsin.In(day))).JobID // after the snapshot
			moved := must[tocsin.Change](t)(c.RescheduleTx(t.Context(), tx, ref(bizID, id), tocsin.In(soon)))
			commit(t, tx)
			got := get(t, c, id)
			if moved.Changed != 1 || got.Version != 1 || !got.ActionTime.Equal(got.Modified.Add(soon)) || bells(t, c, own, id) != 1 {
				t.Errorf("%s, %s: reschedule %+v, stored %+v", name, kind, moved, got)
			}
			tx = begin(t, db)
			gone := must[tocsin.Change](t)(c.CancelTx(t.Context(), tx, ref(bizID, id)))
			twice := must[tocsin.Change](t)(c.CancelTx(t.Context(), tx, ref(bizID, id)))
			commit(t, tx)
			if gone != (tocsin.Change{Changed: 1}) || twice != (tocsin.Change{Final: 1}) || get(t, c, id).Status != tocsin.Cancelled {
				t.Errorf("%s, %s: cancel %+v, twice %+v", name, kind, gone, twice)
			}
		}
	}
}

// With innodb_snapshot_isolation a row that is newer than the transaction's snapshot can't be locked: error 1020, after which the
// transaction is repeated. Without it the key that committed after the snapshot is seen.
func TestAddTxAfterTheKeyCommittedBehindItsSnapshot(t *testing.T) {
	t.Parallel()
	c, db := start(t)
	for bizID, isolation := range map[uint64]string{5: "OFF", 6: "ON"} {
		task := remind.New(bizID, "x", tocsin.In(day)).Dedup("k")
		tx := beginWith(t, db, isolation)
		first := add(t, c, task)
		second, err := c.AddTx(t.Context(), tx, task)
		var refused *mysql.MySQLError
		if isolation == "ON" && errors.As(err, &refused) && refused.Number == 1020 {
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			tx = beginWith(t, db, isolation)
			second, err = c.AddTx(t.Context(), tx, task)
		}
		if err != nil || !second.Existing || second.JobID != first.JobID {
			t.Errorf("%s: %+v, then %+v, %v", isolation, first, second, err)
		}
		third := must[tocsin.Added](t)(c.AddTx(t.Context(), tx, task.Dedup("other")))
		if err := tx.Commit(); err != nil || get(t, c, third.JobID).DedupKey != "other" {
			t.Errorf("%s: the transaction is of no more use: %v", isolation, err)
		}
	}
}

func TestATransactionOnAnotherServerIsRefused(t *testing.T) {
	t.Parallel()
	cfg, _ := onTwoServers(t)
	c := open(t, cfg)
	db := session(t, devtest.DSN(t), "")
	bizID := bizOn(cfg.Layout, 1, 1)
	stored := add(t, c, remind.New(bizID, "x", tocsin.In(day)))
	table := cfg.Layout.Table(stored.JobID.Table())
	calls := txCalls(t, c, bizID, stored.JobID)
	refused := func(why, want string) {
		t.Helper()
		for name, call := range calls {
			err := rolledBack(t, db, call)
			if !errors.Is(err, tocsin.ErrOtherServer) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s, %s: %v", why, name, err)
			}
		}
	}
	refused("no such database", "task table "+table+" is on server db2, not on this transaction's")
	err := rolledBack(t, db, func(tx *sql.Tx) error { return tocsin.CompleteTx(t.Context(), tx, get(t, c, stored.JobID)) })
	if !errors.Is(err, tocsin.ErrOtherServer) || !strings.Contains(err.Error(), table) {
		t.Errorf("CompleteTx: %v", err)
	}

	exec(t, db, "CREATE DATABASE "+cfg.Layout.Database(1))
	for _, name := range []string{"layout", "doorbell"} {
		exec(t, db, "CREATE TABLE "+cfg.Layout.Database(1)+"."+name+" LIKE "+cfg.Layout.Database(0)+"."+name)
	}
	exec(t, db, "CREATE TABLE "+table+" LIKE "+cfg.Layout.Table(0))
	refused("a database without a layout row", "task table "+table+" is on server db2")
	exec(t, db, "INSERT INTO "+cfg.Layout.Database(1)+".layout SELECT * FROM "+cfg.Layout.Database(0)+".layout")
	exec(t, db, "UPDATE "+cfg.Layout.Database(1)+".layout SET cluster_id = 'stranger'")
	refused("a database of another cluster", "task table "+table+" is on server db2")
	if n := count(t, db, "SELECT COUNT(*) FROM "+table); n != 0 {
		t.Errorf("%d rows are stored there", n)
	}
}

// A user that may not do something in our own database is not on another server.
func TestADeniedTableIsSaidToBeElsewhereUnlessItIsOurs(t *testing.T) {
	t.Parallel()
	c, root := start(t)
	user := c.Layout().Prefix
	exec(t, root, "CREATE USER '"+user+"'@'%' IDENTIFIED BY 'x'")
	t.Cleanup(func() { _, _ = root.Exec("DROP USER '" + user + "'@'%'") })
	dsn := devtest.DSN(t)
	db := session(t, user+":x"+dsn[strings.Index(dsn, "@"):], "")
	add := func(task tocsin.NewTask) error {
		return rolledBack(t, db, func(tx *sql.Tx) error { _, err := c.AddTx(t.Context(), tx, task); return err })
	}
	plain := remind.New(1, "x", tocsin.In(0))
	stored := get(t, c, must[tocsin.Added](t)(c.Add(t.Context(), plain)).JobID)
	complete := func() error {
		return rolledBack(t, db, func(tx *sql.Tx) error { return tocsin.CompleteTx(t.Context(), tx, stored) })
	}
	if err := add(plain); !errors.Is(err, tocsin.ErrOtherServer) {
		t.Errorf("without a right: %v", err)
	}
	if err := complete(); !errors.Is(err, tocsin.ErrOtherServer) {
		t.Errorf("complete without a right: %v", err)
	}
	for number := range c.Layout().Databases { // as the role client-add
		exec(t, root, "GRANT SELECT, INSERT ON `"+c.Layout().Database(number)+"`.* TO '"+user+"'@'%'")
	}
	if err := add(plain); err != nil {
		t.Errorf("with the rights: %v", err)
	}
	for name, call := range map[string]func() error{"add": func() error { return add(plain.Unique("k", live)) }, "complete": complete} {
		if err := call(); err == nil || errors.Is(err, tocsin.ErrOtherServer) || !strings.Contains(err.Error(), "UPDATE command denied") {
			t.Errorf("%s without UPDATE: %v", name, err)
		}
	}
}

// txCalls are the calls that take a transaction of the caller's, for a stored task.
func txCalls(t *testing.T, c *tocsin.Client, bizID uint64, id tocsin.JobID) map[string]func(*sql.Tx) error {
	return map[string]func(*sql.Tx) error{
		"AddTx": func(tx *sql.Tx) error {
			_, err := c.AddTx(t.Context(), tx, remind.New(bizID, "x", tocsin.In(0)))
			return err
		},
		"CancelTx": func(tx *sql.Tx) error { _, err := c.CancelTx(t.Context(), tx, remind.Of(bizID)); return err },
		"RescheduleTx": func(tx *sql.Tx) error {
			_, err := c.RescheduleTx(t.Context(), tx, tocsin.ByID(id), tocsin.In(0))
			return err
		},
	}
}

// mapper is a transaction as an object mapper wraps it.
type mapper struct{ tx *sql.Tx }

func (m mapper) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return m.tx.ExecContext(ctx, query, args...)
}

func (m mapper) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return m.tx.QueryContext(ctx, query, args...)
}

func TestATaskCommitsWithAnyKindOfTransaction(t *testing.T) {
	t.Parallel()
	c := open(t, cluster(t))
	db := sqlx.NewDb(session(t, devtest.DSN(t), ""), "mysql")
	for name, begin := range map[string]func() (tocsin.Tx, func() error){
		"sql":    func() (tocsin.Tx, func() error) { tx := must[*sql.Tx](t)(db.Begin()); return tx, tx.Commit },
		"sqlx":   func() (tocsin.Tx, func() error) { tx := must[*sqlx.Tx](t)(db.Beginx()); return tx, tx.Commit },
		"mapper": func() (tocsin.Tx, func() error) { tx := must[*sql.Tx](t)(db.Begin()); return mapper{tx}, tx.Commit },
	} {
		tx, commit := begin()
		task := remind.New(7, name, tocsin.In(day)).Dedup(name)
		first := must[tocsin.Added](t)(c.AddTx(t.Context(), tx, task))
		again := must[tocsin.Added](t)(c.AddTx(t.Context(), tx, task))
		moved := must[tocsin.Change](t)(c.RescheduleTx(t.Context(), tx, tocsin.ByID(first.JobID), tocsin.In(2*day)))
		if err := commit(); err != nil {
			t.Fatal(err)
		}
		info, err := c.Get(t.Context(), first.JobID)
		if err != nil || !again.Existing || again.JobID != first.JobID || moved.Changed != 1 || info.Version != 1 {
			t.Errorf("%s: %+v, %+v, %+v, %v", name, again, moved, info, err)
		}
	}
}

func TestWhatCommitsByItselfIsNoTransaction(t *testing.T) {
	t.Parallel()
	c := open(t, cluster(t))
	db := sqlx.NewDb(session(t, devtest.DSN(t), ""), "mysql")
	conn := must[*sql.Conn](t)(db.Conn(t.Context()))
	defer conn.Close()
	for name, tx := range map[string]tocsin.Tx{"sql.DB": db.DB, "sqlx.DB": db, "sql.Conn": conn} {
		_, err := c.AddTx(t.Context(), tx, remind.New(1, "x", tocsin.In(day)))
		if !errors.Is(err, tocsin.ErrInvalid) || !strings.Contains(err.Error(), name+" is no transaction") {
			t.Errorf("%s: %v", name, err)
		}
		if err := tocsin.CompleteTx(t.Context(), tx, tocsin.Info{}); !errors.Is(err, tocsin.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var none *sql.Tx
	if _, err := c.AddTx(t.Context(), none, remind.New(1, "x", tocsin.In(day))); err == nil || !strings.Contains(err.Error(), "is nil") {
		t.Errorf("a nil *sql.Tx: %v", err)
	}
	if all, err := c.List(t.Context(), 1); err != nil || len(all) != 0 {
		t.Errorf("stored all the same: %+v, %v", all, err)
	}
}

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
			if got := listed(t, before, there); len(got) != 1 || got[0].Status != tocsin.Pending {
				t.Errorf("in the database that was wrong: %+v, want the one task of before", got)
			}
			add(t, before, remind.New(there, "z", tocsin.In(day)))
		})
	}
}

// A snapshot of the caller's may be older than the retirement of the database. The task that has a unique key there is no task of
// ours.
func TestADatabaseThatTakesNoTasksAfterTheSnapshotOfATransactionIsRefused(t *testing.T) {
	t.Parallel()
	c, db := start(t)
	there, layout := bizOn(c.Layout(), 0, 1), c.Layout().Database(0)+".layout"
	taken := remind.New(there, "x", tocsin.In(day)).Unique("taken", live)
	add(t, c, taken)
	for name, task := range map[string]tocsin.NewTask{
		"a task":                              remind.New(there, "x", tocsin.In(day)),
		"a task with a unique key":            remind.New(there, "x", tocsin.In(day)).Unique("k", live),
		"one whose key is taken":              taken,
		"one whose key is taken, rescheduled": taken.OnConflict(tocsin.Reschedule),
	} {
		for says, wrong := range map[string]string{
			"is retired": "state = 'retired'", "is held": "state = 'held'", "cluster of the config is": "cluster_id = CONCAT(cluster_id, '!')",
		} {
			tx := begin(t, db)
			exec(t, db, "UPDATE "+layout+" SET "+wrong)
			added, err := c.AddTx(t.Context(), tx, task)
			if !errors.Is(err, tocsin.ErrLayout) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s, %s: %+v, %v", name, wrong, added, err)
			}
			_ = tx.Rollback()
			exec(t, db, "UPDATE "+layout+" SET state = 'active', cluster_id = REPLACE(cluster_id, '!', '')")
		}
	}
}

// callsTo are calls about one biz_id and its task; AddMany must also store a task of another.
func callsTo(t *testing.T, c *tocsin.Client, db *sql.DB, old tocsin.JobID, there, beside uint64) map[string]func() error {
	calls := map[string]func() error{
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
		"Get":        func() error { _, err := c.Get(t.Context(), old); return err },
		"List":       func() error { _, err := c.List(t.Context(), there); return err },
	}
	for name, call := range txCalls(t, c, there, old) {
		calls[name] = func() error { return rolledBack(t, db, call) }
	}
	return calls
}
