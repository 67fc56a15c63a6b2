package devserver

import (
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func startTestPostgreSQL(t *testing.T) *PostgreSQL {
	t.Helper()
	p, err := StartPostgreSQL(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func TestPostgreSQLAnswersUntilItIsStopped(t *testing.T) {
	t.Parallel()
	p := startTestPostgreSQL(t)
	if u, err := url.Parse(p.URL("shop")); err != nil || u.Path != "/shop" || !listens(u.Host) {
		t.Error(u, err)
	}
	if !strings.HasPrefix(p.Version(), "postgres (PostgreSQL) ") {
		t.Errorf("version %q", p.Version())
	}
	for range 2 {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(p.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is left: %v", err)
	}
	if listens(p.Endpoint()) {
		t.Error("it still listens")
	}
}

func TestAPostgreSQLThatCannotStartSaysWhy(t *testing.T) {
	t.Parallel()
	_, err := StartPostgreSQL(t.Context(), "no_such_setting=1")
	if err == nil || !strings.HasPrefix(err.Error(), "start PostgreSQL in ") || !strings.Contains(err.Error(), "no_such_setting") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
}

func TestPostgreSQLIsFoundAndItsLogRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeProgram(t, filepath.Join(dir, "postgres"), "")
	if path, err := firstProgram([]string{t.TempDir(), dir}, ErrNoPostgreSQL, "postgres"); path != filepath.Join(dir, "postgres") || err != nil {
		t.Error(path, err)
	}
	if got := postgresFailure(`2026 [1] LOG:  could not bind IPv4 address "127.0.0.1": Address already in use`); !strings.Contains(got, "already in use") {
		t.Error(got)
	}
	for _, line := range []string{`2026 [1] FATAL:  no room`, `initdb: error: no room`} {
		if got := postgresFailure(line); got != "no room" {
			t.Error(got)
		}
	}
}

// A PostgreSQL that was killed comes back on its port, with its folder. A session of it may still hold the data when it is
// started again: Restart waits for that.
func TestAKilledPostgreSQLComesBack(t *testing.T) {
	t.Parallel()
	p := startTestPostgreSQL(t)
	before := p.URL("postgres")
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if listens(p.Endpoint()) {
		t.Fatal("it listens after it was killed")
	}
	if err := p.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !listens(p.Endpoint()) || p.URL("postgres") != before {
		t.Errorf("it does not listen at %s, and is now at %s", before, p.URL("postgres"))
	}
}

// listens reports whether a server takes connections at an address.
func listens(address string) bool {
	conn, err := net.Dial("tcp", address)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}
