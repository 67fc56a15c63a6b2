package client_test

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

const day = 24 * time.Hour

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
const insertBizType = `.biz_type (number, name, group_name, policy, revision, gmt_modified)
VALUES (?, ?, 'shop', '{}', 1, UTC_TIMESTAMP(3))`

// applyTypes stores biz types, by number, in every database.
func applyTypes(tb testing.TB, cfg tocsin.Config, types map[int]string) {
	tb.Helper()
	for _, server := range cfg.Servers {
		db := session(tb, server.DSN, "")
		for number := range cfg.Layout.Databases {
			if len(server.Databases) > 0 && !slices.Contains(server.Databases, number) {
				continue
			}
			for id, name := range types {
				exec(tb, db, "INSERT INTO "+cfg.Layout.Database(number)+insertBizType, id, name)
			}
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
	must[ddl.Result](tb)(ddl.Apply(tb.Context(), cfg, ddl.Options{}))
	applyTypes(tb, cfg, policies)
	return cfg
}

// onTwoServers is a cluster whose database 1 is on a server of its own, db2.
func onTwoServers(tb testing.TB) (cfg tocsin.Config, second *devserver.MariaDB) {
	tb.Helper()
	second = secondServer(tb)
	return cluster(tb, tocsin.Server{Name: "db1", DSN: devtest.DSN(tb), Databases: []int{0}}, tocsin.Server{Name: "db2", DSN: second.DSN(), Databases: []int{1}}), second
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

// start makes a cluster and opens a client of it, and a pool that a service on the same server has.
func start(tb testing.TB) (*tocsin.Client, *sql.DB) {
	tb.Helper()
	return open(tb, cluster(tb)), session(tb, devtest.DSN(tb), "")
}

// throughProxy is a client that reaches its server through a proxy.
func throughProxy(t *testing.T) (*tocsin.Client, *devtest.Proxy) {
	t.Helper()
	cfg := cluster(t)
	p, dsn := devtest.NewProxy(t, devtest.DSN(t))
	cfg.Servers = []tocsin.Server{{Name: "db1", DSN: dsn}}
	return open(t, cfg), p
}

// session is a connection pool as a user's own program has it.
func session(tb testing.TB, dsn, params string) *sql.DB {
	tb.Helper()
	db := must[*sql.DB](tb)(sql.Open("mysql", dsn+"?"+params))
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
	m := must[*devserver.MariaDB](tb)(devserver.StartMariaDB(tb.Context(), devserver.MariaDBConfig{Dir: tb.TempDir()}))
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

// listed reads all tasks of a biz_id.
func listed(tb testing.TB, c *tocsin.Client, bizID uint64) []tocsin.Info {
	tb.Helper()
	return must[[]tocsin.Info](tb)(c.List(tb.Context(), bizID))
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

// eventually repeats a call until its error is as wanted; nil as want: until it succeeds.
func eventually(t *testing.T, says string, call func() error) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		err := call()
		if says == "" && err == nil || says != "" && err != nil && strings.Contains(err.Error(), says) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("got %v, want %q", err, says)
		}
	}
}

// begin begins a transaction as a program in China may do it, and takes its
// snapshot. Rows that are newer may be locked, which MariaDB from 11.6.2 on refuses
// by default.
func begin(tb testing.TB, db *sql.DB) *sql.Tx {
	tb.Helper()
	return beginWith(tb, db, "OFF")
}

// beginWith is begin with a value of MariaDB's innodb_snapshot_isolation.
func beginWith(tb testing.TB, db *sql.DB, snapshotIsolation string) *sql.Tx {
	tb.Helper()
	tx := must[*sql.Tx](tb)(db.BeginTx(tb.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead}))
	tb.Cleanup(func() { _ = tx.Rollback() })
	zone := "SET time_zone = '+08:00' /*M!110602 , innodb_snapshot_isolation = " + snapshotIsolation + " */"
	for _, q := range []string{zone, "START TRANSACTION WITH CONSISTENT SNAPSHOT"} {
		_ = must[*sql.Rows](tb)(tx.QueryContext(tb.Context(), q)).Close()
	}
	return tx
}

func commit(tb testing.TB, tx *sql.Tx) {
	tb.Helper()
	if err := tx.Commit(); err != nil {
		tb.Fatal(err)
	}
}

// rolledBack calls do in a transaction that does not last.
func rolledBack(t *testing.T, db *sql.DB, do func(*sql.Tx) error) error {
	t.Helper()
	tx := begin(t, db)
	defer func() { _ = tx.Rollback() }()
	return do(tx)
}
