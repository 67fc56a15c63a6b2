package schedule

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// session is what a user's program connects with.
func session(t *testing.T, params string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", devtest.DSN(t)+"?"+params)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// begin begins a transaction that has taken its snapshot. It may lock rows that are newer, which MariaDB from 11.6.2 on refuses by default.
func begin(t *testing.T, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	for _, q := range []string{"SET time_zone = '+08:00' /*M!110602 , innodb_snapshot_isolation = OFF */", "START TRANSACTION WITH CONSISTENT SNAPSHOT"} {
		if _, err := tx.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	return tx
}

func (s *site) applyTx(tx *sql.Tx, d Definition) Applied {
	s.t.Helper()
	a, err := s.ApplyTx(s.t.Context(), tx, d)
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

func (s *site) commit(tx *sql.Tx) {
	s.t.Helper()
	if err := tx.Commit(); err != nil {
		s.t.Fatal(err)
	}
}

// A schedule is created and changed exactly if the caller's transaction commits, whatever the session, and is then as Apply leaves it.
func TestAScheduleIsAppliedIfTheCallersTransactionCommits(t *testing.T) {
	t.Parallel()
	for name, params := range map[string]string{
		"the driver's defaults": "", "interpolated": "interpolateParams=true", "times parsed": "parseTime=true&loc=Asia%2FShanghai",
		"interpolated, times parsed": "parseTime=true&interpolateParams=true&loc=Europe%2FBerlin", "found rows": "clientFoundRows=true",
		"sql_mode of old": "sql_mode=%27%27", "sql_mode of others": "sql_mode=%27ANSI%2CNO_BACKSLASH_ESCAPES%27&interpolateParams=true",
		"no autocommit": "autocommit=0", "safe updates": "sql_safe_updates=1&sql_select_limit=1",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, db := newSite(t), session(t, params)
			d := every("a", "2m")
			d.Payload, d.Headers = "ü 🔔 \\ ' \" x", map[string]string{"k": "刊:"}
			d.Start = time.Now().Add(-time.Hour).Truncate(time.Second).UTC()
			tx := begin(t, db)
			if a := s.applyTx(tx, d); a.Verdict != Created || a.State != Active || a.Revision != 1 || a.ID == 0 {
				t.Errorf("%+v", a)
			}
			if a := s.applyTx(tx, d); a.Verdict != Unchanged {
				t.Errorf("again in the same transaction: %+v", a)
			}
			_ = tx.Rollback()
			if _, err := s.Get(t.Context(), "a"); !errors.Is(err, ErrNotFound) {
				t.Errorf("rolled back, but %v", err)
			}
			tx = begin(t, db)
			made := s.applyTx(tx, d)
			s.commit(tx)
			stored := s.get("a")
			if a := s.apply(d); a.Verdict != Unchanged || a.ID != made.ID {
				t.Errorf("Apply of the same: %+v", a)
			}
			if !reflect.DeepEqual(stored.Definition, d.WithDefaults()) || stored.Created.Sub(s.now()).Abs() > time.Minute || len(s.pending(stored)) == 0 {
				t.Errorf("%+v, %d runs", stored, len(s.pending(stored)))
			}
			s.changesIn(db, stored)
		})
	}
}

// A schedule is stored as it was given, or refused, in every sql_mode of a caller's session.
func TestAScheduleIsStoredAsGivenInEverySQLMode(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for i, mode := range devtest.SQLModes(t) {
		db := session(t, "sql_mode="+url.QueryEscape("'"+mode+"'")+[]string{"", "&interpolateParams=true"}[i%2])
		empty, full := every(fmt.Sprintf("empty-%d", i), "2m"), every(fmt.Sprintf("full-%d", i), "2m")
		full.Payload, full.Headers = "ü 🔔 \\ ' \" x", map[string]string{"k": "", "l": "刊:"}
		for _, d := range []Definition{empty, full} {
			tx := begin(t, db)
			_, err := s.ApplyTx(t.Context(), tx, d)
			if strings.Contains(mode, "EMPTY_STRING_IS_NULL") {
				if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "EMPTY_STRING_IS_NULL") {
					t.Errorf("%s: %v", mode, err)
				}
				_ = tx.Rollback()
				continue
			}
			if err != nil {
				t.Fatalf("%s: %v", mode, err)
			}
			s.commit(tx)
			stored := s.get(d.Name)
			if runs := s.pending(stored); !reflect.DeepEqual(stored.Definition, d.WithDefaults()) || len(runs) == 0 || runs[0].Payload != d.Payload {
				t.Errorf("%s: stored %+v", mode, stored)
			}
		}
	}
}

// changesIn changes a schedule in transactions of a session: one is rolled back, and one changes it three times.
func (s *site) changesIn(db *sql.DB, stored Schedule) {
	t, d := s.t.(*testing.T), stored.Definition
	t.Helper()
	runs := s.pending(stored)
	next := d
	next.Cron, next.Payload = "@every 3m", "другой"
	tx := begin(t, db)
	s.applyTx(tx, next)
	_ = tx.Rollback()
	if after := s.get("a"); !reflect.DeepEqual(after.unread(), stored.unread()) || !reflect.DeepEqual(s.pending(stored), runs) {
		t.Errorf("rolled back, but %+v", after)
	}
	tx = begin(t, db)
	if a := s.applyTx(tx, next); a.Verdict != Changed || a.Revision != 2 || len(a.Changes) != 2 {
		t.Errorf("%+v", a)
	}
	if a := s.applyTx(tx, d); a.Verdict != Changed || a.Revision != 3 {
		t.Errorf("back again: %+v", a)
	}
	if a := s.applyTx(tx, next); a.Verdict != Changed || a.Revision != 4 {
		t.Errorf("and again: %+v", a)
	}
	s.commit(tx)
	if after := s.get("a"); after.Revision != 4 || after.Cron != next.Cron || after.Payload != next.Payload || after.ID != stored.ID {
		t.Errorf("%+v", after)
	}
	for _, run := range s.pending(stored) {
		if run.Key.Revision != 4 || run.Payload != next.Payload {
			t.Errorf("%+v", run)
		}
	}
}

// A run that was made after the transaction's snapshot, and is due while a change leaves runs alone, has no second one.
func TestAChangeInATransactionSeesRunsThatAreNewerThanItsSnapshot(t *testing.T) {
	t.Parallel()
	s, db := newSite(t), session(t, "")
	made := s.create(every("a", "4s"))
	s.exec(made, "DELETE FROM {task} WHERE dedup_key IS NOT NULL")
	s.exec(made, "UPDATE {schedule} SET made_until = anchor, next_fire = anchor + INTERVAL 4 SECOND")
	tx := begin(t, db)
	s.make(made.ID)
	d := every("a", "4s")
	d.Payload = "new"
	if a := s.applyTx(tx, d); a.Verdict != Changed {
		t.Fatalf("%+v", a)
	}
	s.commit(tx)
	at, kept := map[time.Time]int{}, 0
	for _, run := range s.pending(made) {
		at[run.Due]++
		if run.Key.Revision == 1 {
			kept++
		}
	}
	for due, n := range at {
		if n != 1 {
			t.Errorf("%d runs are due %s", n, due)
		}
	}
	if kept < 3 || kept > 5 { // 16 s
		t.Errorf("%d of %d runs are left alone", kept, len(at))
	}
}

// broken is a transaction whose connection breaks at a statement.
type broken struct {
	*sql.Tx
	at string
}

func (b broken) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if strings.Contains(query, b.at) {
		return nil, mysql.ErrInvalidConn
	}
	return b.Tx.QueryContext(ctx, query, args...)
}

func TestATransactionWhoseConnectionBreaksIsNotOnAnotherServer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	db := session(t, "charset=utf8mb4")
	for _, at := range []string{"/* tocsin product */", "/* tocsin layout */", "/* tocsin schedule charset */"} {
		_, err := s.ApplyTx(t.Context(), broken{begin(t, db), at}, every("a", "1m"))
		if !errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, tocsin.ErrOtherServer) {
			t.Errorf("at %s: %v", at, err)
		}
	}
}

func TestATransactionThatCantHoldAScheduleIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	refused := func(why string, db *sql.DB, kind error, want string) {
		t.Helper()
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.ApplyTx(t.Context(), tx, every("a", "1m"))
		_ = tx.Rollback()
		if !errors.Is(err, kind) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", why, err)
		}
	}
	refused("latin1", session(t, "charset=latin1"), ErrInvalid, "latin1")
	for _, none := range []tocsin.Tx{nil, (*sql.Tx)(nil), s.db} {
		if _, err := s.ApplyTx(t.Context(), none, every("a", "1m")); !errors.Is(err, tocsin.ErrInvalid) {
			t.Errorf("%T: %v", none, err)
		}
	}
	second, err := devserver.StartMariaDB(t.Context(), devserver.MariaDBConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = second.Stop() })
	elsewhere, err := sql.Open("mysql", second.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = elsewhere.Close() })
	refused("no such database", elsewhere, tocsin.ErrOtherServer, "is on server db1")
	home := s.cfg.Layout.Database(s.cfg.Layout.DatabaseOf(s.cfg.Layout.TableOf(tocsin.KeyID("a"))))
	for _, q := range []string{"CREATE DATABASE " + home, "CREATE TABLE " + home + ".layout (id INT PRIMARY KEY)"} {
		if _, err := elsewhere.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	refused("a database of that name", elsewhere, tocsin.ErrOtherServer, "is on server db1")
	if _, err := s.Get(t.Context(), "a"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}
