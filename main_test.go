package tocsin_test

import (
	"database/sql"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

func TestMain(m *testing.M) { devtest.Main(m) }

type order struct {
	No   string
	Cent int
}

// The biz types of every test cluster.
var (
	closeOrder = tocsin.Define[order]("order.close")
	remind     = tocsin.Define[string]("coupon.remind")
)

// insertBizTypes stores the biz types as package biztype does, which these tests don't import: whatever they import stands in
// the go.sum of every program that adds tasks.
const insertBizTypes = `.biz_type (number, name, group_name, policy, revision, gmt_modified)
VALUES (7, 'order.close', 'shop', '{}', 1, UTC_TIMESTAMP(3)), (8, 'coupon.remind', 'shop', '{}', 1, UTC_TIMESTAMP(3))`

// cluster makes the tables of a small cluster of its own on the shared server. Most tests of the calls are in internal/client.
func cluster(tb testing.TB) tocsin.Config {
	tb.Helper()
	cfg := tocsin.Config{
		Layout:  tocsin.Layout{Databases: 2, Tables: 2, Prefix: devtest.Prefix(tb)},
		Servers: []tocsin.Server{{Name: "db1", DSN: devtest.DSN(tb)}},
	}
	must[ddl.Result](tb)(ddl.Apply(tb.Context(), cfg, ddl.Options{}))
	db := session(tb)
	for number := range cfg.Layout.Databases {
		must[sql.Result](tb)(db.ExecContext(tb.Context(), "INSERT INTO "+cfg.Layout.Database(number)+insertBizTypes))
	}
	return cfg
}

func open(tb testing.TB, cfg tocsin.Config) *tocsin.Client {
	tb.Helper()
	c := must[*tocsin.Client](tb)(tocsin.Open(tb.Context(), cfg))
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Error(err)
		}
	})
	return c
}

// session is a connection pool as a user's own program has it.
func session(tb testing.TB) *sql.DB {
	tb.Helper()
	db := must[*sql.DB](tb)(sql.Open("mysql", devtest.DSN(tb)))
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

func must[T any](tb testing.TB) func(T, error) T {
	return func(v T, err error) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return v
	}
}
