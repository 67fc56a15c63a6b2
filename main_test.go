package tocsin_test

import (
	"database/sql"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver"
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

var policies = map[int]string{7: "order.close", 8: "coupon.remind"}

// insertBizType stores a biz type as package biztype does, which these tests don't import: whatever they import stands in
// the go.sum of every program that adds tasks. Parameters: number, name.
const insertBizType = `INSERT INTO {database}.biz_type
    (number, name, group_name, policy, revision, gmt_modified)
VALUES
    (?, ?, 'shop', '{}', 1, UTC_TIMESTAMP(3))`

// applyTypes stores biz types, by number, in every database.
func applyTypes(tb testing.TB, cfg tocsin.Config, types map[int]string) {
	tb.Helper()
	for _, server := range cfg.Servers {
		db, err := sql.Open("mysql", server.DSN)
		if err != nil {
			tb.Fatal(err)
		}
		for number := range cfg.Layout.Databases {
			if len(server.Databases) > 0 && !slices.Contains(server.Databases, number) {
				continue
			}
			statement := strings.ReplaceAll(insertBizType, "{database}", cfg.Layout.Database(number))
			for id, name := range types {
				if _, err := db.ExecContext(tb.Context(), statement, id, name); err != nil {
					tb.Error(err)
				}
			}
		}
		if err := db.Close(); err != nil {
			tb.Error(err)
		}
	}
}

// cluster makes the tables of a small cluster of its own, on the shared server
// unless others are given.
func cluster(tb testing.TB, servers ...tocsin.Server) tocsin.Config {
	tb.Helper()
	if servers == nil {
		servers = []tocsin.Server{{Name: "db1", DSN: devtest.DSN(tb)}}
	}
	cfg := tocsin.Config{
		Layout:  tocsin.Layout{Databases: 2, Tables: 2, Prefix: devtest.Prefix(tb)},
		Servers: servers,
	}
	if _, err := ddl.Apply(tb.Context(), cfg, ddl.Options{}); err != nil {
		tb.Fatal(err)
	}
	applyTypes(tb, cfg, policies)
	return cfg
}

func open(tb testing.TB, cfg tocsin.Config) *tocsin.Client {
	tb.Helper()
	c, err := tocsin.Open(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Error(err)
		}
	})
	return c
}

// session is a connection pool as a user's own program has it.
func session(tb testing.TB, dsn, params string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("mysql", dsn+"?"+params)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

func exec(tb testing.TB, db *sql.DB, query string, args ...any) {
	tb.Helper()
	if _, err := db.ExecContext(tb.Context(), query, args...); err != nil {
		tb.Fatalf("%s: %v", query, err)
	}
}

// count counts the rows of a table, or what else a query says.
func count(tb testing.TB, db *sql.DB, query string, args ...any) (n int) {
	tb.Helper()
	if err := db.QueryRowContext(tb.Context(), query, args...).Scan(&n); err != nil {
		tb.Fatalf("%s: %v", query, err)
	}
	return n
}

// secondServer starts another MariaDB for this test alone.
func secondServer(tb testing.TB) *devserver.MariaDB {
	tb.Helper()
	m, err := devserver.StartMariaDB(tb.Context(), devserver.MariaDBConfig{Dir: tb.TempDir()})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = m.Stop() })
	return m
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

// add adds a task and fails the test if that fails.
func add(tb testing.TB, c *tocsin.Client, t tocsin.NewTask) tocsin.Added {
	tb.Helper()
	return must[tocsin.Added](tb)(c.Add(tb.Context(), t))
}

func get(tb testing.TB, c *tocsin.Client, id tocsin.JobID) tocsin.Info {
	tb.Helper()
	return must[tocsin.Info](tb)(c.Get(tb.Context(), id))
}

// bells counts the rings for a task. Each must say what its row says.
func bells(tb testing.TB, c *tocsin.Client, db *sql.DB, id tocsin.JobID) int {
	tb.Helper()
	l := c.Layout()
	bell := l.Database(l.DatabaseOf(id.Table())) + ".doorbell"
	rings := count(tb, db, "SELECT COUNT(*) FROM "+bell+" WHERE job_id = ?", uint64(id))
	agreeing := count(tb, db, "SELECT COUNT(*) FROM "+bell+" AS b JOIN "+l.Table(id.Table())+
		" AS t USING (job_id, biz_type, action_time) WHERE b.job_id = ? AND b.table_no = ?", uint64(id), id.Table())
	if rings != agreeing {
		tb.Errorf("task %s: %d of %d rings differ from its row", id, rings-agreeing, rings)
	}
	return rings
}

// bizOn gives a biz_id whose table is in the database.
func bizOn(l tocsin.Layout, database int, from uint64) uint64 {
	for id := from; ; id++ {
		if l.DatabaseOf(l.TableOf(id)) == database {
			return id
		}
	}
}

const day = 24 * time.Hour
