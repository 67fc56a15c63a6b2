package devserver

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver of DSN
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(parentEnv) != "" {
		os.Exit(runParent())
	}
	goleak.VerifyTestMain(m)
}

// startTest starts a server that ends with the test, and logs how long the start took.
func startTest(t *testing.T, cfg MariaDBConfig) *MariaDB {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	begin := time.Now()
	m, err := StartMariaDB(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("started in %s", time.Since(begin).Round(time.Millisecond))
	t.Cleanup(func() {
		if err := m.Stop(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func exec1(t *testing.T, db *sql.DB, q string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), q); err != nil {
		t.Fatalf("%s: %v", q, err)
	}
}

func query[T any](t *testing.T, db *sql.DB, q string) (v T) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), q).Scan(&v); err != nil {
		t.Fatalf("%s: %v", q, err)
	}
	return v
}

func TestServerAnswersOnBothWays(t *testing.T) {
	t.Parallel()
	m := startTest(t, MariaDBConfig{})
	for _, dsn := range []string{m.DSN(), "root@unix(" + m.Socket() + ")/"} {
		db := open(t, dsn)
		if got := query[int](t, db, "SELECT @@port"); got != m.Port() {
			t.Errorf("%s leads to port %d", dsn, got)
		}
		db.Close() // before its server ends, of which the driver would complain
	}
}

func TestServerHasRealRights(t *testing.T) {
	t.Parallel()
	m := startTest(t, MariaDBConfig{})
	root := open(t, m.DSN())
	exec1(t, root, "CREATE DATABASE d")
	exec1(t, root, "CREATE TABLE d.t (a INT)")
	exec1(t, root, "CREATE USER reader@'127.0.0.1' IDENTIFIED BY 'secret'")
	exec1(t, root, "GRANT SELECT ON d.* TO reader@'127.0.0.1'")
	reader := open(t, strings.Replace(m.DSN(), "root@", "reader:secret@", 1))
	query[int](t, reader, "SELECT COUNT(*) FROM d.t")
	if _, err := reader.Exec("INSERT INTO d.t VALUES (1)"); err == nil {
		t.Error("a reader may write")
	}
	if err := open(t, strings.Replace(m.DSN(), "root@", "reader@", 1)).Ping(); err == nil {
		t.Error("a password is not asked for")
	}
}

func TestTableCachesHoldAllTables(t *testing.T) {
	t.Parallel()
	m := startTest(t, MariaDBConfig{})
	want := min(maxCache, (fileLimit()-maxConnections-spareFiles)/2)
	db := open(t, m.DSN())
	for _, name := range []string{"table_open_cache", "innodb_open_files"} {
		if got := query[int](t, db, "SELECT @@"+name); got < want {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	}
	if got := query[int](t, db, "SELECT @@max_connections"); got != maxConnections {
		t.Errorf("max_connections was shrunk to %d", got)
	}
}

func TestCommittedRowsSurviveAKill(t *testing.T) {
	t.Parallel()
	for name, durable := range map[string]bool{"durable": true, "fast": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := startTest(t, MariaDBConfig{Dir: t.TempDir(), Durable: durable})
			db := open(t, m.DSN())
			exec1(t, db, "CREATE DATABASE d")
			exec1(t, db, "CREATE TABLE d.t (a INT)")
			exec1(t, db, "INSERT INTO d.t VALUES (7)")
			if err := errors.Join(m.Kill(), m.Restart(t.Context())); err != nil {
				t.Fatal(err)
			}
			if got := query[int](t, open(t, m.DSN()), "SELECT a FROM d.t"); got != 7 {
				t.Errorf("read %d", got)
			}
		})
	}
}

// What is measured on one server is compared with another's: memory and durability are the same on all.
func TestDurableServersOfAllProductsHaveTheSameSettings(t *testing.T) {
	t.Parallel()
	const memory = 384 << 20
	db := open(t, startTest(t, MariaDBConfig{Durable: true, Memory: memory}).DSN())
	for name, want := range map[string]string{
		"innodb_buffer_pool_size":        strconv.Itoa(memory),
		"innodb_flush_log_at_trx_commit": "1",
		"innodb_flush_method":            "O_DIRECT",
		"innodb_doublewrite":             "1",
		"log_bin":                        "0",
	} {
		if got := query[string](t, db, "SELECT @@"+name); got != want && !(want == "1" && got == "ON") {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// The kernel ends the server with the thread that forked it, which here would be the caller's.
func TestServerOutlivesTheThreadThatStartedIt(t *testing.T) {
	t.Parallel()
	started := make(chan *MariaDB)
	go func() {
		runtime.LockOSThread() // not unlocked: the thread ends with the goroutine
		m, err := StartMariaDB(t.Context(), MariaDBConfig{})
		if err != nil {
			t.Error(err)
		}
		started <- m
	}()
	m := <-started
	if m == nil {
		return
	}
	defer m.Stop()
	db := open(t, m.DSN())
	defer db.Close()
	for range 20 {
		query[int](t, db, "SELECT SLEEP(0.01)")
	}
}

func TestCleanStopKeepsTheCallersFolder(t *testing.T) {
	t.Parallel()
	m := startTest(t, MariaDBConfig{Dir: t.TempDir()})
	if err := m.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(m.Dir(), dataName, "ibdata1")); err != nil {
		t.Error(err)
	}
}

func TestFolderInUseIsRefused(t *testing.T) {
	t.Parallel()
	m := startTest(t, MariaDBConfig{Dir: t.TempDir()})
	_, err := StartMariaDB(t.Context(), MariaDBConfig{Dir: m.Dir()})
	if !errors.Is(err, ErrFolderInUse) {
		t.Errorf("got %v", err)
	}
	query[int](t, open(t, m.DSN()), "SELECT 1")
}

func TestLongFolderGetsItsSocketElsewhere(t *testing.T) {
	t.Parallel()
	m := startTest(t, MariaDBConfig{Dir: filepath.Join(t.TempDir(), strings.Repeat("long", 30))})
	db := open(t, "root@unix("+m.Socket()+")/")
	query[int](t, db, "SELECT 1")
	db.Close()
	if err := m.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Dir(m.Socket())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket's folder is still there: %v", err)
	}
}

func TestEndedContextEndsTheStart(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := StartMariaDB(ctx, MariaDBConfig{}); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
}
