// Package pgtest is for the tests of programs whose business database is in PostgreSQL. It puts one beside a cluster of package
// tocsintest, with an outbox, on a private server that all tests share.
//
// WithOutbox starts the server if there is none; on failure it ends the test with one line, which says how to install postgres
// where that is what is missing. tocsintest.Main stops the server, and without it the server ends with the test's process.
package pgtest

import (
	"database/sql"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver of Cluster.DB

	"github.com/tocsinhq/tocsin/contrib/tocsinpg"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/outbox"
	"github.com/tocsinhq/tocsin/tocsintest"
)

// WithOutbox returns the cluster as a service sees it whose business database is in PostgreSQL: DB is a new one with an outbox,
// tasks that Client adds in its transactions go through that, and nodetest.RunDue relays it. url is that of the database,
// for pools of pgx, whose transactions tocsinpg.In takes; see Tx.
func WithOutbox(tb testing.TB, c *tocsintest.Cluster) (with *tocsintest.Cluster, url string) {
	tb.Helper()
	postgres, leave, err := devserver.SharedPostgreSQL.Use()
	tb.Cleanup(leave)
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	name := c.Config.Layout.Prefix
	admin := open(tb, postgres.URL("postgres"))
	if _, err := admin.ExecContext(tb.Context(), "CREATE DATABASE "+name); err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	tb.Cleanup(func() {
		if _, err := admin.Exec("DROP DATABASE " + name + " WITH (FORCE)"); err != nil {
			tb.Errorf("pgtest: %v", err)
		}
	})
	from := outbox.Config{DSN: postgres.URL(name), Table: "public.tocsin_outbox", Driver: tocsinpg.Driver{}}
	if _, err := tocsinpg.ApplyOutbox(tb.Context(), from); err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	return c.Beside(tb, open(tb, from.DSN), from), from.DSN
}

func open(tb testing.TB, url string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	return db
}
