package client_test

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

func TestMain(m *testing.M) { devtest.Main(m) }

const day = 24 * time.Hour

// open makes a cluster of one table, which has the biz type coupon.remind, and opens a client and a pool of the test's own.
func open(t *testing.T) (c *client.Client, db *sql.DB, layout client.Layout) {
	t.Helper()
	layout = client.Layout{Databases: 1, Tables: 1, Prefix: devtest.Prefix(t)}
	dsn := devtest.DSN(t)
	cfg := tocsin.Config{Layout: tocsin.Layout(layout), Servers: []tocsin.Server{{Name: "db1", DSN: dsn}}}
	if _, err := ddl.Apply(t.Context(), cfg, ddl.Options{}); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	const insert = `INSERT INTO {database}.biz_type (number, name, group_name, policy, revision, gmt_modified)
VALUES (8, 'coupon.remind', 'shop', '{}', 1, UTC_TIMESTAMP(3))`
	if _, err := db.ExecContext(t.Context(), layout.Render(insert, 0)); err != nil {
		t.Fatal(err)
	}
	c, err = client.Open(t.Context(), client.Config{Layout: layout, Servers: []mysql.Spec{{Name: "db1", DSN: dsn, Databases: []int{0}}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c, db, layout
}

// A try of AddMany may lose its connection while its commit hangs; the next one then waits for its locks. The rows that the first has
// stored are found, and not stored again under other ids.
func TestAddManyFindsWhatALockedTryHasStored(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]error{"the server answers": nil, "the server is gone": client.ErrUnreachable} {
		c, db, layout := open(t)
		task := client.Task{BizType: "coupon.remind", BizID: 1, When: client.In(day), Payload: "x"}
		r, err := c.Row(t.Context(), task)
		if err != nil {
			t.Fatal(err)
		}
		first, err := c.Add(t.Context(), &r)
		if err != nil {
			t.Fatal(err)
		}
		lock, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := lock.ExecContext(t.Context(), layout.Render("UPDATE {task} SET attribute = attribute WHERE job_id = ?", 0), first.JobID); err != nil {
			t.Fatal(err)
		}
		got := c.StoreInDoubt(t.Context(), task, first.JobID, func() error {
			if err := lock.Rollback(); err != nil {
				t.Error(err)
			}
			return gone
		})
		var rows int
		if err := db.QueryRowContext(t.Context(), layout.Render("SELECT COUNT(*) FROM {task}", 0)).Scan(&rows); err != nil {
			t.Fatal(err)
		}
		if got.JobID != first.JobID || rows != 1 || errors.Is(got.Err, client.ErrUnknownOutcome) != (gone != nil) || !errors.Is(got.Err, gone) {
			t.Errorf("%s: %+v, want job_id %d; %d rows", name, got, first.JobID, rows)
		}
	}
}

// A delay of an outbox counts on by the server's clock, as the client has read it. A reading in whole milliseconds is up to
// one behind, and the task is early by that.
func TestTheServersClockIsReadInMicroseconds(t *testing.T) {
	t.Parallel()
	c, db, _ := open(t)
	for range 50 {
		var text string
		if err := db.QueryRowContext(t.Context(), "SELECT CAST(UTC_TIMESTAMP(6) AS CHAR)").Scan(&text); err != nil {
			t.Fatal(err)
		}
		before, err := time.Parse("2006-01-02 15:04:05.000000", text)
		if err != nil {
			t.Fatal(err)
		}
		if read, err := c.ServerClock(t.Context()); err != nil || read.Before(before) {
			t.Fatalf("the clock was read as %s after it was %s: %v", read, before, err)
		}
	}
}
