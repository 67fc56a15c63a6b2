package relay

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/outbox"
)

// shop is a business database with an outbox, and the databases of its tasks.
type shop struct {
	tb     testing.TB
	cfg    tocsin.Config // with the outbox, which is on none of the servers as far as a client knows
	from   outbox.Config
	db     *sql.DB // of the business server
	client *tocsin.Client
}

var closeOrder = tocsin.Define[string]("order.close")

// newShop makes all of it on the shared server, or the tasks on others.
func newShop(tb testing.TB, servers ...tocsin.Server) *shop {
	tb.Helper()
	prefix := devtest.Prefix(tb)
	if servers == nil {
		servers = []tocsin.Server{{Name: "db1", DSN: devtest.DSN(tb)}}
	}
	s := &shop{tb: tb, cfg: tocsin.Config{
		Cluster: "shop", Layout: tocsin.Layout{Databases: 2, Tables: 2, Prefix: prefix}, Servers: servers,
		Outbox: tocsin.Outbox{Table: prefix + "_shop.tocsin_outbox"},
	}}
	if _, err := ddl.Apply(tb.Context(), s.cfg, ddl.Options{}); err != nil {
		tb.Fatal(err)
	}
	s.apply("order.close", 7)
	s.db = openDB(tb, devtest.DSN(tb))
	s.exec("CREATE DATABASE " + prefix + "_shop")
	s.exec("CREATE TABLE " + prefix + "_shop.orders (id BIGINT PRIMARY KEY, state VARCHAR(10))")
	if _, err := ddl.ApplyOutbox(tb.Context(), ddl.Outbox{DSN: devtest.DSN(tb), Table: s.cfg.Outbox.Table}); err != nil {
		tb.Fatal(err)
	}
	s.from = outbox.Config{Name: "shop", DSN: devtest.DSN(tb), Table: s.cfg.Outbox.Table}
	s.client = s.open(s.cfg)
	return s
}

func openDB(tb testing.TB, dsn string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("mysql", dsn+"?parseTime=true")
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

// strict makes the biz type strict.
func (s *shop) strict() {
	s.tb.Helper()
	if _, err := biztype.Apply(s.tb.Context(), s.cfg, []biztype.Policy{{Name: "order.close", Number: 7, Group: "shop", Strict: true}}); err != nil {
		s.tb.Fatal(err)
	}
}

// apply stores a biz type.
func (s *shop) apply(name string, number uint64) {
	s.tb.Helper()
	if _, err := biztype.Apply(s.tb.Context(), s.cfg, []biztype.Policy{{Name: name, Number: number, Group: "shop"}}); err != nil {
		s.tb.Fatal(err)
	}
}

// exec runs a statement; {outbox} and {prefix} are filled in.
func (s *shop) exec(query string, args ...any) {
	s.tb.Helper()
	if _, err := s.db.Exec(s.fill(query), args...); err != nil {
		s.tb.Fatalf("%s: %v", query, err)
	}
}

func (s *shop) fill(query string) string {
	return strings.NewReplacer("{outbox}", s.cfg.Outbox.Table, "{prefix}", s.cfg.Layout.Prefix).Replace(query)
}

func (s *shop) number(query string, args ...any) (n int) {
	s.tb.Helper()
	if err := s.db.QueryRow(s.fill(query), args...).Scan(&n); err != nil {
		s.tb.Fatalf("%s: %v", query, err)
	}
	return n
}

// in runs do in a transaction of the business and commits it.
func (s *shop) in(do func(tx *sql.Tx) error) {
	s.tb.Helper()
	tx, err := s.db.Begin()
	if err != nil {
		s.tb.Fatal(err)
	}
	if err := do(tx); err != nil {
		_ = tx.Rollback()
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

func (s *shop) reschedule(bizID uint64, when tocsin.When) {
	s.tb.Helper()
	s.in(func(tx *sql.Tx) error {
		_, err := s.client.RescheduleTx(s.tb.Context(), tx, closeOrder.Of(bizID), when)
		return err
	})
}

// identity is that of the outbox.
func (s *shop) identity() string {
	s.tb.Helper()
	session, err := s.outbox().Session(s.tb.Context())
	if err != nil {
		s.tb.Fatal(err)
	}
	defer session.Close()
	return session.Identity
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
	s.await(fmt.Sprintf("%d rows in the outbox", n), func() bool { return s.number("SELECT COUNT(*) FROM {outbox}") == n })
}

func (s *shop) await(what string, done func() bool) {
	s.tb.Helper()
	for late := time.Now().Add(5 * time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(late) {
			s.tb.Fatalf("waited too long for %s\n%s", what, s.dump())
		}
	}
}

// dump shows the outbox.
func (s *shop) dump() string {
	rows, err := s.db.Query(s.fill("SELECT id, op, biz_id, attribute, last_error FROM {outbox} LIMIT 20"))
	if err != nil {
		return err.Error()
	}
	defer rows.Close()
	var all strings.Builder
	for rows.Next() {
		var id, bizID uint64
		var op, payload, why string
		_ = rows.Scan(&id, &op, &bizID, &payload, &why)
		fmt.Fprintln(&all, id, op, bizID, payload, why)
	}
	return all.String()
}

func (s *shop) config() Config {
	return Config{
		Tables: s.cfg, Outboxes: []outbox.Config{s.from}, Poll: 2 * time.Millisecond, Whole: 200 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(s.tb.Output(), nil)),
	}
}

// relay runs a relay until the test ends, or stop is called.
func (s *shop) relay(cfg Config) (stop func()) {
	s.tb.Helper()
	r, err := New(cfg)
	if err != nil {
		s.tb.Fatal(err)
	}
	return s.run(func(ctx context.Context) { _ = r.Run(ctx) })
}

func (s *shop) run(work func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); work(ctx) }()
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

// bizOn returns a biz_id whose table is in the database.
func (s *shop) bizOn(database int, from uint64) uint64 {
	for id := from; ; id++ {
		if s.cfg.Layout.DatabaseOf(s.cfg.Layout.TableOf(id)) == database {
			return id
		}
	}
}

const day = 24 * time.Hour
