package relay

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/outbox"
	"github.com/tocsinhq/tocsin/test/relaytest"
)

const day = relaytest.Day

var closeOrder = relaytest.CloseOrder

// shop is one whose business database is on the shared server too.
type shop struct{ *relaytest.Shop }

// newShop makes all of it on the shared server, or the tasks on others.
func newShop(tb testing.TB, servers ...tocsin.Server) *shop {
	tb.Helper()
	at := func(prefix string) tocsin.Outbox { return tocsin.Outbox{Table: prefix + "_shop.tocsin_outbox"} }
	s := &shop{relaytest.NewShop(tb, at, servers...)}
	s.DB = s.openDB(devtest.DSN(tb))
	s.Exec("CREATE DATABASE {prefix}_shop")
	s.Exec("CREATE TABLE {prefix}_shop.orders (id BIGINT PRIMARY KEY, state VARCHAR(10))")
	s.From = outbox.Config{Name: "shop", DSN: devtest.DSN(tb), Table: s.Config.Outbox.Table}
	s.applyOutbox(s.From)
	s.Client = s.Open(s.Config)
	return s
}

func (s *shop) applyOutbox(o outbox.Config) {
	s.TB.Helper()
	if _, err := ddl.ApplyOutbox(s.TB.Context(), ddl.Outbox{DSN: o.DSN, Table: o.Table}); err != nil {
		s.TB.Fatal(err)
	}
}

func (s *shop) openDB(dsn string) *sql.DB { return s.OpenDB("mysql", dsn+"?parseTime=true") }

// strict makes the biz type strict.
func (s *shop) strict() {
	s.TB.Helper()
	s.Apply(biztype.Policy{Name: closeOrder.Name(), Number: 7, Strict: true})
}

// identity is that of the outbox.
func (s *shop) identity() string {
	s.TB.Helper()
	return s.Session().Identity
}

func (s *shop) config() Config {
	return Config{
		Tables: s.Config, Outboxes: []outbox.Config{s.From}, Poll: 2 * time.Millisecond, Whole: 200 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(s.TB.Output(), nil)),
	}
}

// relay runs a relay until the test ends, or stop is called.
func (s *shop) relay(cfg Config) (stop func()) {
	s.TB.Helper()
	r, err := New(cfg)
	if err != nil {
		s.TB.Fatal(err)
	}
	return s.Run(func(ctx context.Context) { _ = r.Run(ctx) })
}

// bizOn returns a biz_id whose table is in the database.
func (s *shop) bizOn(database int, from uint64) uint64 {
	for id := from; ; id++ {
		if s.Config.Layout.DatabaseOf(s.Config.Layout.TableOf(id)) == database {
			return id
		}
	}
}

// beside returns another biz_id of the same table.
func (s *shop) beside(id uint64) uint64 {
	other := uint64(1)
	for other == id || s.Config.Layout.TableOf(other) != s.Config.Layout.TableOf(id) {
		other++
	}
	return other
}

func TestARelayConforms(t *testing.T) {
	t.Parallel()
	config := func(s *relaytest.Shop, by relaytest.Relaying) Config {
		cfg := (&shop{s}).config()
		cfg.Whole, cfg.GapAge, cfg.Logger = by.Whole, by.GapAge, by.Log
		return cfg
	}
	relaytest.Conform(t, relaytest.Site{
		Shop: func(tb testing.TB) *relaytest.Shop { return newShop(tb).Shop },
		Relay: func(ctx context.Context, s *relaytest.Shop, by relaytest.Relaying) {
			r, err := New(config(s, by))
			if err != nil {
				s.TB.Error(err)
				return
			}
			_ = r.Run(ctx)
		},
		Turn: func(ctx context.Context, s *relaytest.Shop, by relaytest.Relaying, to *relaytest.Moody) {
			_ = Turn(ctx, config(s, by), to) // it ends with ctx, or is repeated
		},
		Empty: func(s *relaytest.Shop) { s.Exec("TRUNCATE TABLE {outbox}") },
		Kill: func(s *relaytest.Shop) {
			id := s.Number("SELECT IS_USED_LOCK(?)", outbox.LockName(s.Session().Identity))
			s.Exec(fmt.Sprintf("KILL %d", id))
		},
	})
}
