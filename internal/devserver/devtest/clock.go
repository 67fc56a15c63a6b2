package devtest

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/internal/devserver"
)

// FakeTime returns the library that shifts a server's time: see libfaketime's manual for its variables.
func FakeTime(tb testing.TB) string {
	tb.Helper()
	found, _ := filepath.Glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
	if len(found) == 0 {
		tb.Fatal("libfaketime is missing: run scripts/install-deps.sh test")
	}
	return found[0]
}

// ClockOf starts a server whose clock a variable of libfaketime sets, such as FAKETIME=+120s.
func ClockOf(tb testing.TB, setting string) *devserver.MariaDB {
	tb.Helper()
	m, err := devserver.StartMariaDB(tb.Context(), devserver.MariaDBConfig{
		Env: []string{"LD_PRELOAD=" + FakeTime(tb), setting, "FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1", "FAKETIME_FORCE_MONOTONIC_FIX=0"},
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = m.Stop() })
	return m
}

// WrongClock starts a server whose clock is off by so many seconds.
func WrongClock(tb testing.TB, off time.Duration) *devserver.MariaDB {
	tb.Helper()
	return ClockOf(tb, fmt.Sprintf("FAKETIME=%+ds", int(off.Seconds())))
}
