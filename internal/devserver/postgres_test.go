package devserver

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestPostgreSQLAnswersUntilItIsStopped(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p, err := StartPostgreSQL(ctx)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(p.URL("shop"))
	if err != nil || u.Path != "/shop" {
		t.Error(u, err)
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Error(err)
	} else {
		_ = conn.Close()
	}
	for range 2 {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(p.folder.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is left: %v", err)
	}
	if conn, err := net.Dial("tcp", u.Host); err == nil {
		_ = conn.Close()
		t.Error("it still listens")
	}
}

func TestPostgreSQLIsFoundByAllItsPrograms(t *testing.T) {
	t.Parallel()
	half, whole := t.TempDir(), t.TempDir()
	for _, name := range []string{"postgres", "initdb", "pg_isready"} {
		writeProgram(t, filepath.Join(whole, name), "")
		if name != "pg_isready" {
			writeProgram(t, filepath.Join(half, name), "")
		}
	}
	if dir, err := findPostgreSQL([]string{half, whole}); dir != whole || err != nil {
		t.Error(dir, err)
	}
	if _, err := findPostgreSQL([]string{half}); !errors.Is(err, ErrNoPostgreSQL) {
		t.Error(err)
	}
	if got := postgresFailure(`2026 [1] LOG:  could not bind IPv4 address "127.0.0.1": Address already in use`); !strings.Contains(got, "already in use") {
		t.Error(got)
	}
	if got := postgresFailure(`2026 [1] FATAL:  no room`); got != "no room" {
		t.Error(got)
	}
}

// A PostgreSQL that was killed comes back on its port, with its folder. A session of it may still hold the data when it is
// started again: Restart waits for that.
func TestAKilledPostgreSQLComesBack(t *testing.T) {
	t.Parallel()
	p, err := StartPostgreSQL(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	before := p.URL("postgres")
	p.Kill()
	if ready(t.Context(), p, before) {
		t.Fatal("it answers after it was killed")
	}
	if err := p.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !ready(t.Context(), p, before) || p.URL("postgres") != before {
		t.Errorf("it does not answer at %s, and is now at %s", before, p.URL("postgres"))
	}
}

// ready asks a server whether it answers.
func ready(ctx context.Context, p *PostgreSQL, at string) bool {
	return exec.CommandContext(ctx, p.program("pg_isready"), "-q", "-d", at, "-t", "1").Run() == nil
}
