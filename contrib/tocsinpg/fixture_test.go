package tocsinpg_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver of services that use database/sql

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/contrib/tocsinpg"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/outbox"
	"github.com/tocsinhq/tocsin/outbox/relay"
	"github.com/tocsinhq/tocsin/test/relaytest"
)

const day = relaytest.Day

var closeOrder = relaytest.CloseOrder

// shop is one whose business database is in PostgreSQL.
type shop struct{ *relaytest.Shop }

func newShop(tb testing.TB) *shop {
	tb.Helper()
	at := func(string) tocsin.Outbox { return tocsin.Outbox{Table: "public.tocsin_outbox", PostgreSQL: true} }
	s := &shop{relaytest.NewShop(tb, at)}
	s.DB = s.openDB(devtest.PostgreSQL(tb, "postgres"))
	s.Exec("CREATE DATABASE {prefix}")
	s.From = outbox.Config{Name: "shop", DSN: devtest.PostgreSQL(tb, s.Config.Layout.Prefix), Table: s.Config.Outbox.Table, Driver: tocsinpg.Driver{}}
	s.DB = s.openDB(s.From.DSN)
	if _, err := tocsinpg.ApplyOutbox(tb.Context(), s.From); err != nil {
		tb.Fatal(err)
	}
	s.Exec("CREATE TABLE orders (id bigint PRIMARY KEY, state text)")
	s.Client = s.Open(s.Config)
	return s
}

func (s *shop) openDB(dsn string) *sql.DB { return s.OpenDB("pgx", dsn) }

// pgx is a connection of pgx to the business database.
func (s *shop) pgx() *pgx.Conn {
	s.TB.Helper()
	conn, err := pgx.Connect(s.TB.Context(), s.From.DSN)
	if err != nil {
		s.TB.Fatal(err)
	}
	s.TB.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (s *shop) config(log *devtest.Log) relay.Config {
	return relay.Config{
		Tables: s.Config, Outboxes: []outbox.Config{s.From}, Poll: 2 * time.Millisecond, Whole: 200 * time.Millisecond, Logger: log.Logger(),
	}
}

// relay runs a relay until the test ends, or stop is called.
func (s *shop) relay(cfg relay.Config) (stop func()) {
	s.TB.Helper()
	r, err := relay.New(cfg)
	if err != nil {
		s.TB.Fatal(err)
	}
	return s.Run(func(ctx context.Context) { _ = r.Run(ctx) })
}

func TestARelayConforms(t *testing.T) {
	t.Parallel()
	config := func(s *relaytest.Shop, by relaytest.Relaying) relay.Config {
		cfg := (&shop{s}).config(&devtest.Log{})
		cfg.Whole, cfg.GapAge, cfg.Logger = by.Whole, by.GapAge, by.Log
		return cfg
	}
	relaytest.Conform(t, relaytest.Site{
		Shop: func(tb testing.TB) *relaytest.Shop { return newShop(tb).Shop },
		Relay: func(ctx context.Context, s *relaytest.Shop, by relaytest.Relaying) {
			r, err := relay.New(config(s, by))
			if err != nil {
				s.TB.Error(err)
				return
			}
			_ = r.Run(ctx)
		},
		Turn: func(ctx context.Context, s *relaytest.Shop, by relaytest.Relaying, to *relaytest.Moody) {
			_ = relay.Turn(ctx, config(s, by), to) // it ends with ctx, or is repeated
		},
		Empty: func(s *relaytest.Shop) { s.Exec("TRUNCATE TABLE {outbox} RESTART IDENTITY") },
		Kill: func(s *relaytest.Shop) {
			if n := s.Number("SELECT count(pg_terminate_backend(pid)) FROM (SELECT DISTINCT pid FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())) AS holders"); n != 1 {
				s.TB.Errorf("%d sessions hold the lock", n)
			}
		},
	})
}
