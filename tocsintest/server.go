package tocsintest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/tocsinhq/tocsin/internal/devserver"
)

// serverDSN returns the DSN of the server that all tests of this process share.
func serverDSN(tb testing.TB) string {
	tb.Helper()
	m, leave, err := devserver.SharedMariaDB.Use()
	tb.Cleanup(leave)
	if err != nil {
		tb.Fatalf("tocsintest: %v", err)
	}
	return m.DSN()
}

// newPrefix returns a prefix of database names that no other test has.
func newPrefix() string { return "t" + strconv.FormatUint(rand.Uint64(), 36) }

// tests are those of a package, as testing.M has them.
type tests struct{ m interface{ Run() int } }

// Main is for the TestMain of a package: its Run runs the tests and stops the servers that they shared.
//
//	func TestMain(m *testing.M) { os.Exit(tocsintest.Main(m).Run()) }
//
// With goleak it is goleak.VerifyTestMain(tocsintest.Main(m)). Without Main a server ends with the test's process, and the next
// one removes its temporary folder. On systems other than Linux, where a server would outlive the process, it ends with
// the last of the tests that run at the same time.
func Main(m interface{ Run() int }) interface{ Run() int } { return tests{m} }

// Run runs the tests.
func (t tests) Run() int {
	code := t.m.Run()
	if err := devserver.StopShared(); err != nil {
		fmt.Fprintln(os.Stderr, "tocsintest:", err)
		return max(code, 1)
	}
	return code
}
