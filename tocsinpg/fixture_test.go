package tocsinpg_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver of services that use database/sql

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/outbox"
	"github.com/tocsinhq/tocsin/relay"
	"github.com/tocsinhq/tocsin/tocsinpg"
	"github.com/tocsinhq/tocsin/tocsinpg/schema"
)

const day = 24 * time.Hour

var closeOrder = tocsin.Define[string]("order.close")

// shop is a business database in PostgreSQL with an outbox, and the databases of its tasks in MySQL.
type shop struct {
	tb     testing.TB
	cfg    tocsin.Config
	from   outbox.Config
	db     *sql.DB // of the business
	client *tocsin.Client
}

func newShop(tb testing.TB) *shop {
	tb.Helper()
	prefix := devtest.Prefix(tb)
	s := &shop{tb: tb, cfg: tocsin.Config{
		Cluster: "shop", Layout: tocsin.Layout{Databases: 2, Tables: 2, Prefix: prefix},
		Servers: []tocsin.Server{{Name: "db1", DSN: devtest.DSN(tb)}}, Outbox: tocsin.Outbox{Table: "public.tocsin_outbox", PostgreSQL: true},
	}}
	if _, err := ddl.Apply(tb.Context(), s.cfg, ddl.Options{}); err != nil {
		tb.Fatal(err)
	}
	if _, err := biztype.Apply(tb.Context(), s.cfg, []biztype.Policy{{Name: "order.close", Number: 7, Group: "shop"}}); err != nil {
		tb.Fatal(err)
	}
	s.db = openDB(tb, devtest.PostgreSQL(tb, "postgres"))
	s.exec("CREATE DATABASE " + prefix)
	s.from = outbox.Config{Name: "shop", DSN: devtest.PostgreSQL(tb, prefix), Table: "public.tocsin_outbox", Driver: tocsinpg.Driver{}}
	s.db = openDB(tb, s.from.DSN)
	if _, err := schema.Apply(tb.Context(), s.from); err != nil {
		tb.Fatal(err)
	}
	s.exec("CREATE TABLE orders (id bigint PRIMARY KEY, state text)")
	s.client = s.open(s.cfg)
	return s
}

func openDB(tb testing.TB, dsn string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

func (s *shop) open(cfg tocsin.Config) *tocsin.Client {
	s.tb.Helper()
	c, err := tocsin.Open(s.tb.Context(), cfg)
	if err != nil {
		s.tb.Fatal(err)
	}
	s.tb.Cleanup(func() { _ = c.Close() })
	return c
}

// pgx is a connection of pgx to the business database.
func (s *shop) pgx() *pgx.Conn {
	s.tb.Helper()
	conn, err := pgx.Connect(s.tb.Context(), s.from.DSN)
	if err != nil {
		s.tb.Fatal(err)
	}
	s.tb.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// exec runs a statement of the business.
func (s *shop) exec(query string, args ...any) {
	s.tb.Helper()
	if _, err := s.db.Exec(query, args...); err != nil {
		s.tb.Fatalf("%s: %v", query, err)
	}
}

func (s *shop) number(query string, args ...any) (n int) {
	s.tb.Helper()
	if err := s.db.QueryRow(query, args...).Scan(&n); err != nil {
		s.tb.Fatalf("%s: %v", query, err)
	}
	return n
}

// begin begins a transaction of the business.
func (s *shop) begin() *sql.Tx {
	s.tb.Helper()
	tx, err := s.db.Begin()
	if err != nil {
		s.tb.Fatal(err)
	}
	s.tb.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// in runs do in a transaction of the business and commits it.
func (s *shop) in(do func(tx *sql.Tx) error) {
	s.tb.Helper()
	tx := s.begin()
	if err := do(tx); err != nil {
		s.tb.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		s.tb.Fatal(err)
	}
}

func (s *shop) add(bizID uint64, payload string, when tocsin.When) {
	s.tb.Helper()
	s.in(func(tx *sql.Tx) error { return s.addTx(tx, bizID, payload, when) })
}

func (s *shop) addTx(tx *sql.Tx, bizID uint64, payload string, when tocsin.When) error {
	added, err := s.client.AddTx(s.tb.Context(), tx, closeOrder.New(bizID, payload, when))
	if err == nil && (!added.Relayed || added.JobID != 0) {
		err = fmt.Errorf("added %+v", added)
	}
	return err
}

func (s *shop) cancel(bizID uint64) {
	s.tb.Helper()
	s.in(func(tx *sql.Tx) error {
		change, err := s.client.CancelTx(s.tb.Context(), tx, closeOrder.Of(bizID))
		if err == nil && change != (tocsin.Change{Relayed: true}) {
			err = fmt.Errorf("change %+v", change)
		}
		return err
	})
}

// tasks are those of a biz_id, "a pending" each, in the order in which they were added.
func (s *shop) tasks(bizID uint64) string {
	s.tb.Helper()
	infos, err := s.client.List(s.tb.Context(), bizID)
	if err != nil {
		s.tb.Fatal(err)
	}
	var all []string
	for _, info := range infos {
		all = append(all, info.Payload+" "+info.Status.String())
	}
	return strings.Join(all, ", ")
}

// want waits until the tasks of a biz_id are so.
func (s *shop) want(bizID uint64, tasks string) {
	s.tb.Helper()
	s.await(fmt.Sprintf("tasks of %d: %s", bizID, tasks), func() bool { return s.tasks(bizID) == tasks })
}

// rows waits until the outbox has so many rows.
func (s *shop) rows(n int) {
	s.tb.Helper()
	s.await(fmt.Sprintf("%d rows in the outbox", n), func() bool { return s.number("SELECT count(*) FROM tocsin_outbox") == n })
}

func (s *shop) await(what string, done func() bool) {
	s.tb.Helper()
	for late := time.Now().Add(5 * time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(late) {
			s.tb.Fatalf("waited too long for %s", what)
		}
	}
}

func (s *shop) config(log *devtest.Log) relay.Config {
	return relay.Config{
		Tables: s.cfg, Outboxes: []outbox.Config{s.from}, Poll: 2 * time.Millisecond, Whole: 200 * time.Millisecond, Logger: log.Logger(),
	}
}

// relay runs a relay until the test ends, or stop is called.
func (s *shop) relay(cfg relay.Config) (stop func()) {
	s.tb.Helper()
	r, err := relay.New(cfg)
	if err != nil {
		s.tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = r.Run(ctx) }()
	stop = func() { cancel(); <-ended }
	s.tb.Cleanup(stop)
	return stop
}

// outbox opens the outbox as an operator does.
func (s *shop) outbox() *outbox.Outbox {
	s.tb.Helper()
	o, err := outbox.Open(s.from)
	if err != nil {
		s.tb.Fatal(err)
	}
	s.tb.Cleanup(func() { _ = o.Close() })
	return o
}

// session opens a session as a relay does.
func (s *shop) session() *outbox.Session {
	s.tb.Helper()
	session, err := s.outbox().Session(s.tb.Context())
	if err != nil {
		s.tb.Fatal(err)
	}
	s.tb.Cleanup(session.Close)
	return session
}
