// Package devtest gives tests one MariaDB, or MySQL with TOCSIN_TEST_SERVER=mysql, one etcd and one PostgreSQL per test process,
// started on first use and stopped by Main.
//
// A package's TestMain calls Main; its tests call DSN, Etcd and Prefix. Each test works in databases of its own prefix
// and under an own etcd prefix, so that tests run in parallel on the same servers. TOCSIN_TEST_DSN points the tests at
// any other server instead; nothing is started or stopped then, and Prefix removes what the tests made.
//
// A server that cannot start fails the test that asked for it, and every later one, with the same message.
package devtest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tocsinhq/tocsin/internal/devserver"
)

// EnvDSN names the environment variable with the DSN of the server to test against, without a database.
const EnvDSN = "TOCSIN_TEST_DSN"

// startTimeout bounds the start of a server, on a machine that has other things to do as well.
const startTimeout = 3 * time.Minute

// Main runs the tests, stops the servers they used, fails if a goroutine is left that the options do not allow, and exits.
func Main(m *testing.M, options ...goleak.Option) { os.Exit(run(m, options)) }

func run(m *testing.M, options []goleak.Option) int {
	code := m.Run()
	if err := devserver.StopShared(); err != nil {
		code = fail(code, err)
	}
	if code == 0 { // a failed test may well leave goroutines, and its message matters more
		if err := goleak.Find(options...); err != nil {
			code = fail(code, err)
		}
	}
	return code
}

func fail(code int, err error) int {
	fmt.Fprintln(os.Stderr, "devtest:", err)
	return max(code, 1)
}

// DSN returns the go-sql-driver DSN of the server shared by all tests of this process, without a database.
func DSN(tb testing.TB) string {
	tb.Helper()
	if dsn := os.Getenv(EnvDSN); dsn != "" {
		return dsn
	}
	m, _, err := devserver.SharedMariaDB.Use() // until Main stops it
	if err != nil {
		tb.Fatalf("%v (or set %s)", err, EnvDSN)
	}
	return m.DSN()
}

// FreeAddress returns an address, "127.0.0.1:port", that nobody listens on, and that no other test of this process gets. A
// listener on port 0 that is closed again tells of none: the next such listener may get the same port.
func FreeAddress() string { return fmt.Sprintf("127.0.0.1:%d", devserver.FreePort()) }

// Etcd returns the endpoint, "127.0.0.1:port", of the etcd shared by all tests of this process.
func Etcd(tb testing.TB) string {
	tb.Helper()
	e, _, err := devserver.SharedEtcd.Use() // until Main stops it
	if err != nil {
		tb.Fatal(err)
	}
	return e.Endpoint()
}

// PostgreSQL returns the URL of a database of the PostgreSQL shared by all tests of this process: for "postgres", which is
// always there, and others that the tests make.
func PostgreSQL(tb testing.TB, database string) string {
	tb.Helper()
	p, _, err := devserver.SharedPostgreSQL.Use() // until Main stops it
	if err != nil {
		tb.Fatal(err)
	}
	return p.URL(database)
}
