package relaytest

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/loop"
	"github.com/tocsinhq/tocsin/outbox"
)

// Day is further ahead than a test takes.
const Day = 24 * time.Hour

// CloseOrder is the biz type of a shop's tasks; its number is 7.
var CloseOrder = tocsin.Define[string]("order.close")

// Shop is a business database with an outbox, and the databases of its tasks. Its methods end the test if something fails.
type Shop struct {
	TB     testing.TB
	Config tocsin.Config // with the outbox, which is on none of the servers as far as a client knows
	From   outbox.Config // the outbox, for relays
	DB     *sql.DB       // of the business
	Client *tocsin.Client
}

// NewShop makes the databases of the tasks on the shared server, or on others, with the biz type CloseOrder. at says where the outbox
// will be, by the prefix of the databases. The caller makes the business database, and sets From, DB and Client.
func NewShop(tb testing.TB, at func(prefix string) tocsin.Outbox, servers ...tocsin.Server) *Shop {
	tb.Helper()
	prefix := devtest.Prefix(tb)
	if servers == nil {
		servers = []tocsin.Server{{Name: "db1", DSN: devtest.DSN(tb)}}
	}
	s := &Shop{TB: tb, Config: tocsin.Config{
		Cluster: "shop", Layout: tocsin.Layout{Databases: 2, Tables: 2, Prefix: prefix}, Servers: servers, Outbox: at(prefix),
	}}
	if _, err := ddl.Apply(tb.Context(), s.Config, ddl.Options{}); err != nil {
		tb.Fatal(err)
	}
	s.Apply(biztype.Policy{Name: CloseOrder.Name(), Number: 7})
	return s
}

// Apply stores a biz type.
func (s *Shop) Apply(policy biztype.Policy) {
	s.TB.Helper()
	policy.Group = "shop"
	if _, err := biztype.Apply(s.TB.Context(), s.Config, []biztype.Policy{policy}); err != nil {
		s.TB.Fatal(err)
	}
}

// OpenDB opens a pool of the business.
func (s *Shop) OpenDB(driver, dsn string) *sql.DB {
	s.TB.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		s.TB.Fatal(err)
	}
	s.TB.Cleanup(func() { _ = db.Close() })
	return db
}

// Open opens a client.
func (s *Shop) Open(cfg tocsin.Config) *tocsin.Client {
	s.TB.Helper()
	c, err := tocsin.Open(s.TB.Context(), cfg)
	if err != nil {
		s.TB.Fatal(err)
	}
	s.TB.Cleanup(func() { _ = c.Close() })
	return c
}

// Fill fills {outbox} and {prefix} into a statement.
func (s *Shop) Fill(query string) string {
	return strings.NewReplacer("{outbox}", s.Config.Outbox.Table, "{prefix}", s.Config.Layout.Prefix).Replace(query)
}

// Exec runs a statement of the business.
func (s *Shop) Exec(query string, args ...any) {
	s.TB.Helper()
	if _, err := s.DB.Exec(s.Fill(query), args...); err != nil {
		s.TB.Fatalf("%s: %v", query, err)
	}
}

// Number reads a number over the connection of the business.
func (s *Shop) Number(query string, args ...any) (n int) {
	s.TB.Helper()
	if err := s.DB.QueryRow(s.Fill(query), args...).Scan(&n); err != nil {
		s.TB.Fatalf("%s: %v", query, err)
	}
	return n
}

// Begin begins a transaction of the business, which is rolled back when the test ends.
func (s *Shop) Begin() *sql.Tx {
	s.TB.Helper()
	tx, err := s.DB.Begin()
	if err != nil {
		s.TB.Fatal(err)
	}
	s.TB.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// In runs do in a transaction of the business and commits it.
func (s *Shop) In(do func(tx *sql.Tx) error) {
	s.TB.Helper()
	tx := s.Begin()
	if err := do(tx); err != nil {
		s.TB.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		s.TB.Fatal(err)
	}
}

// Add adds a task in a transaction of its own, through the outbox.
func (s *Shop) Add(bizID uint64, payload string, when tocsin.When) {
	s.TB.Helper()
	s.In(func(tx *sql.Tx) error { return s.AddTx(tx, bizID, payload, when) })
}

// AddTx adds a task in a transaction.
func (s *Shop) AddTx(tx *sql.Tx, bizID uint64, payload string, when tocsin.When) error {
	added, err := s.Client.AddTx(s.TB.Context(), tx, CloseOrder.New(bizID, payload, when))
	if err == nil && (!added.Relayed || added.JobID != 0) {
		err = fmt.Errorf("added %+v", added)
	}
	return err
}

// Cancel cancels the tasks of a biz_id in a transaction of its own.
func (s *Shop) Cancel(bizID uint64) {
	s.TB.Helper()
	s.In(func(tx *sql.Tx) error {
		change, err := s.Client.CancelTx(s.TB.Context(), tx, CloseOrder.Of(bizID))
		if err == nil && change != (tocsin.Change{Relayed: true}) {
			err = fmt.Errorf("change %+v", change)
		}
		return err
	})
}

// Reschedule reschedules the tasks of a biz_id in a transaction of its own.
func (s *Shop) Reschedule(bizID uint64, when tocsin.When) {
	s.TB.Helper()
	s.In(func(tx *sql.Tx) error {
		_, err := s.Client.RescheduleTx(s.TB.Context(), tx, CloseOrder.Of(bizID), when)
		return err
	})
}

// Tasks are those of a biz_id, "a pending" each, in the order in which they were stored.
func (s *Shop) Tasks(bizID uint64) string {
	s.TB.Helper()
	infos, err := s.Client.List(s.TB.Context(), bizID)
	if err != nil {
		s.TB.Fatal(err)
	}
	var all []string
	for _, info := range infos {
		all = append(all, info.Payload+" "+info.Status.String())
	}
	return strings.Join(all, ", ")
}

// Want waits until the tasks of a biz_id are so.
func (s *Shop) Want(bizID uint64, tasks string) {
	s.TB.Helper()
	s.Await(fmt.Sprintf("tasks of %d: %s", bizID, tasks), func() bool { return s.Tasks(bizID) == tasks })
}

// Rows waits until the outbox has n rows.
func (s *Shop) Rows(n int) {
	s.TB.Helper()
	s.Await(fmt.Sprintf("%d rows in the outbox", n), func() bool { return s.Number("SELECT COUNT(*) FROM {outbox}") == n })
}

// Await waits until something is done.
func (s *Shop) Await(what string, done func() bool) {
	s.TB.Helper()
	for late := time.Now().Add(5 * time.Minute); !done(); _ = loop.Wait(s.TB.Context(), 5*time.Millisecond) {
		if time.Now().After(late) {
			s.TB.Fatalf("waited too long for %s\n%s", what, s.Dump())
		}
	}
}

// Dump shows the outbox.
func (s *Shop) Dump() string {
	rows, err := s.Outbox().List(s.TB.Context(), 0, 20, false)
	if err != nil {
		return err.Error()
	}
	var all strings.Builder
	for _, r := range rows {
		fmt.Fprintln(&all, r.ID, r.Op, r.BizID, r.Payload, r.LastError)
	}
	return all.String()
}

// Run has work run until the test ends, or stop is called.
func (s *Shop) Run(work func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); work(ctx) }()
	stop = func() { cancel(); <-ended }
	s.TB.Cleanup(stop)
	return stop
}

// Outbox opens the outbox as an operator does.
func (s *Shop) Outbox() *outbox.Outbox {
	s.TB.Helper()
	o, err := outbox.Open(s.From)
	if err != nil {
		s.TB.Fatal(err)
	}
	s.TB.Cleanup(func() { _ = o.Close() })
	return o
}

// Session opens a session with the outbox as a relay does.
func (s *Shop) Session() *outbox.Session {
	s.TB.Helper()
	session, err := s.Outbox().Session(s.TB.Context())
	if err != nil {
		s.TB.Fatal(err)
	}
	s.TB.Cleanup(session.Close)
	return session
}
