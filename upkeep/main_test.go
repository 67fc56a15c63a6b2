package upkeep

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/store"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// small is enough for most tests.
var small = tocsin.Layout{Databases: 2, Tables: 2}

// site is a cluster of its own, with a pool beside the store.
type site struct {
	t      testing.TB
	cfg    tocsin.Config
	layout tocsin.Layout
	store  *store.Store
	db     *sql.DB
	seq    int // of the rows added
}

func newSite(t testing.TB, layout tocsin.Layout) *site {
	t.Helper()
	layout.Prefix = devtest.Prefix(t)
	return applySite(t, tocsin.Config{Layout: layout, Servers: []tocsin.Server{{Name: "db1", DSN: devtest.DSN(t)}}})
}

// applySite creates the tables of a config.
func applySite(t testing.TB, cfg tocsin.Config) *site {
	t.Helper()
	if _, err := ddl.Apply(t.Context(), cfg, ddl.Options{Cluster: "test"}); err != nil {
		t.Fatal(err)
	}
	return openSite(t, cfg)
}

// openSite opens tables that are there.
func openSite(t testing.TB, cfg tocsin.Config) *site {
	t.Helper()
	s := &site{t: t, cfg: cfg, layout: cfg.Layout}
	var err error
	if s.store, err = store.Open(cfg); err != nil {
		t.Fatal(err)
	}
	if s.db, err = sql.Open("mysql", devtest.DSN(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = s.db.Close(), s.store.Close() })
	return s
}

func (s *site) exec(query string, args ...any) {
	s.t.Helper()
	if _, err := s.db.Exec(query, args...); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
}

// misplace puts n tasks into a table that belong to another one.
func (s *site) misplace(table, n, bizType int, status tocsin.Status, ago time.Duration) {
	s.t.Helper()
	other := (table + 1) % s.layout.Total()
	s.add(other, n, bizType, status, ago)
	s.exec("INSERT INTO " + s.layout.Table(table) + " SELECT * FROM " + s.layout.Table(other))
	s.exec("DELETE FROM " + s.layout.Table(other))
}

// add puts n tasks of a biz type and status into a table, whose action_time was so long ago.
func (s *site) add(table, n, bizType int, status tocsin.Status, ago time.Duration) {
	s.t.Helper()
	at := fmt.Sprintf("UTC_TIMESTAMP(3) - INTERVAL %d SECOND", int(ago.Seconds()))
	rows := make([]string, n)
	for i := range rows {
		s.seq++
		rows[i] = fmt.Sprintf("(%d, %s, %s, 7, %d, %d, %s, %s, '')", s.seq<<22|table<<9, at, at, bizType, status, at, at)
	}
	s.exec("INSERT INTO " + s.layout.Table(table) + " (job_id, gmt_create, gmt_modified, biz_id, biz_type, status, action_time, due_time, attribute) VALUES " + strings.Join(rows, ","))
}
