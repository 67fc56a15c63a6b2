package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

func TestMain(m *testing.M) { devtest.Main(m) }

func open(t *testing.T, dsn string) *mysql.Server {
	t.Helper()
	s, err := mysql.Open(mysql.Spec{DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.DB.Close() })
	return s
}

// TestADialThatTakesTooLongIsNotTheCallersDoing tells the time-out of the dial
// from the end of the caller's context: both are a context's deadline to Go.
func TestADialThatTakesTooLongIsNotTheCallersDoing(t *testing.T) {
	t.Parallel()
	s := open(t, "root@tcp(127.0.0.1:1)/?timeout=1ns")
	_, err := s.DB.ExecContext(t.Context(), "DO 1")
	if class := mysql.ClassOf(err); class != mysql.Lost {
		t.Errorf("%s: %v", class, err)
	}
	ended, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	_, err = open(t, devtest.DSN(t)).DB.ExecContext(ended, "DO 1")
	if class := mysql.ClassOf(err); class != mysql.Canceled {
		t.Errorf("%s: %v", class, err)
	}
}

func TestATransactionThatFailsLeavesNothingOpen(t *testing.T) {
	t.Parallel()
	s := open(t, devtest.DSN(t))
	s.DB.SetMaxOpenConns(1)
	refused := errors.New("refused")
	for name, fn := range map[string]func(*sql.Conn) error{
		"by its own error":        func(*sql.Conn) error { return refused },
		"by the server's refusal": func(c *sql.Conn) error { _, err := c.ExecContext(t.Context(), "nonsense"); return err },
	} {
		if err := mysql.InTx(t.Context(), s.DB, fn); err == nil {
			t.Errorf("%s: no error", name)
		}
		// The server refuses this inside a transaction.
		if _, err := s.DB.ExecContext(t.Context(), "SET TRANSACTION READ ONLY"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRedactLeavesOutThePasswordAlone(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]string{
		"toc:hush@tcp(db1:3306)/toc_0?timeout=1s": "toc@db1:3306",
		"toc:hush@tcp(db1)/":                      "toc@db1:3306",
		"toc:hush@tcp([::1]:3307)/":               "toc@[::1]:3307",
		"toc:hu@sh/@unix(/run/mysqld.sock)/":      "toc@/run/mysqld.sock",
		"tcp(db1:3306)/":                          "db1:3306",
		"mysql://toc:hush@db1:3306/":              "(not a DSN)",
	} {
		if got := mysql.Redact(dsn); got != want {
			t.Errorf("%s: %s, want %s", dsn, got, want)
		}
	}
}

func TestConnectionsThatNobodyNeedsAreClosed(t *testing.T) {
	t.Parallel()
	s, err := mysql.Open(mysql.Spec{DSN: devtest.DSN(t), MaxConns: 8, IdleTime: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer s.DB.Close()
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := s.DB.ExecContext(t.Context(), "DO SLEEP(0.1)"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if open := s.DB.Stats().OpenConnections; open != 8 {
		t.Errorf("%d connections under load, want the 8 that it may open", open)
	}
	for end := time.Now().Add(20 * time.Second); s.DB.Stats().OpenConnections > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d connections are left of an idle pool", s.DB.Stats().OpenConnections)
		}
	}
}

func TestAReadWaitsAsLongAsThePoolOrTheDSNSays(t *testing.T) {
	t.Parallel()
	for params, want := range map[string]string{"": "no answer within 200ms", "?readTimeout=30s": ""} {
		s, err := mysql.Open(mysql.Spec{DSN: devtest.DSN(t) + params, ReadTime: 200 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		defer s.DB.Close()
		var slept int
		switch err := s.DB.QueryRowContext(t.Context(), "SELECT SLEEP(0.5)").Scan(&slept); {
		case want == "" && err == nil:
		case want == "" || err == nil || !strings.Contains(err.Error(), want):
			t.Errorf("%s: %v, want %q", params, err, want)
		}
	}
}
