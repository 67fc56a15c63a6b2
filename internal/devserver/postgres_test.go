package devserver

import (
	"net/url"
	"path/filepath"
	"strings"
	"testing"
)

func TestPostgreSQLSaysWhereAndWhatItIs(t *testing.T) {
	t.Parallel()
	p, err := StartPostgreSQL(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if u, err := url.Parse(p.URL("shop")); err != nil || u.Path != "/shop" || !listens(u.Host) {
		t.Error(u, err)
	}
	if !strings.HasPrefix(p.Version(), "postgres (PostgreSQL) ") {
		t.Errorf("version %q", p.Version())
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
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
