package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// openPair opens a pool with both addresses of a pair.
func openPair(t *testing.T, p *devtest.Pair) *mysql.Server {
	t.Helper()
	s, err := mysql.Open(mysql.Spec{DSN: p.DSN(), MaxConns: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.DB.Close() })
	return s
}

// serverID asks the pool's server who it is, and waits until that is as wanted.
func awaitServer(t *testing.T, s *mysql.Server, want int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		var id int
		err := s.DB.QueryRowContext(ctx, "SELECT @@server_id").Scan(&id)
		if err == nil && id == want {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("server_id %d, %v, want %d; seen: %+v", id, err, want, s.Sightings(t.Context()))
		}
	}
}

// awaitWhy waits until what is seen at an address is as said.
func awaitWhy(t *testing.T, s *mysql.Server, i int, part string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for tick := time.Tick(10 * time.Millisecond); !strings.Contains(s.Sightings(ctx)[i].Why, part); <-tick {
		if ctx.Err() != nil {
			t.Fatalf("seen %+v, want %q at %d", s.Sightings(t.Context()), part, i)
		}
	}
}

func TestThePrimaryIsUsedWhateverTheOrder(t *testing.T) {
	t.Parallel()
	p := devtest.NewPair(t, false)
	p.Exec(0, "SET GLOBAL read_only = 1")
	s := openPair(t, p)
	if err := s.DB.PingContext(t.Context()); mysql.ClassOf(err) != mysql.Demoted || !strings.Contains(err.Error(), p.Address(0)+": is read-only") {
		t.Errorf("while both are read-only: %v", err)
	}
	p.Promote(1)
	awaitServer(t, s, 2)
	if s.Term() != 0 {
		t.Errorf("term %d: nothing was in use before", s.Term())
	}
}

// The primary lets nobody in any more, and its replica was left writable. A switch-over makes the primary read-only before.
func TestAServerThatRefusesConnectionsStaysInUseUnlessItWasReadOnly(t *testing.T) {
	t.Parallel()
	p := devtest.NewPair(t, false)
	primary := p.Open(0)
	defer primary.Close()
	s := openAsShop(t, p, primary)
	p.Exec(1, "SET GLOBAL read_only = 0")
	awaitWhy(t, s, 1, "takes writes")

	conn, err := primary.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	lock := func() {
		t.Helper()
		for _, statement := range []string{"SET sql_log_bin = 0", "ALTER USER shop ACCOUNT LOCK"} {
			if _, err := conn.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		killAll(t, primary, "shop")
		awaitWhy(t, s, 0, "locked")
	}
	lock()
	awaitWhy(t, s, 1, "takes writes")
	if all := s.Sightings(t.Context()); !all[0].Used || all[0].Silent || s.Term() != 0 {
		t.Errorf("term %d, seen %+v", s.Term(), all)
	}
	if err := s.DB.PingContext(t.Context()); mysql.ClassOf(err) != mysql.Barred {
		t.Errorf("got %v", err)
	}
	mustExec(t, primary, "ALTER USER shop ACCOUNT UNLOCK")
	awaitServer(t, s, 1)

	p.Exec(1, "SET GLOBAL read_only = 1")
	awaitWhy(t, s, 1, "read-only")
	mustExec(t, primary, "SET GLOBAL read_only = 1")
	awaitWhy(t, s, 0, "read-only")
	lock()
	p.Exec(1, "SET GLOBAL read_only = 0")
	awaitServer(t, s, 2)
}

// openAsShop opens a pool with both addresses of a pair, as a user that it makes.
func openAsShop(t *testing.T, p *devtest.Pair, primary *sql.DB) *mysql.Server {
	t.Helper()
	for _, statement := range []string{"CREATE USER shop", "GRANT ALL ON *.* TO shop"} {
		mustExec(t, primary, statement)
	}
	s, err := mysql.Open(mysql.Spec{DSN: strings.Replace(p.DSN(), "root@", "shop@", 1), MaxConns: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.DB.Close() })
	awaitServer(t, s, 1)
	return s
}

func mustExec(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.Exec(statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// killAll ends the connections of a user.
func killAll(t *testing.T, db *sql.DB, user string) {
	t.Helper()
	rows, err := db.Query("SELECT id FROM information_schema.processlist WHERE user = ?", user)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id int
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		_, _ = db.Exec(fmt.Sprint("KILL ", id)) // it may have ended
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

// A statement that hangs on the old primary fails. One that was killed is played below.
func TestAConnectionMovesWithThePrimary(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*devtest.Pair){
		"frozen":    func(p *devtest.Pair) { p.Freeze(0, true) },
		"read-only": func(p *devtest.Pair) { p.Exec(0, "SET GLOBAL read_only = 1") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := devtest.NewPair(t, false)
			s := openPair(t, p)
			awaitServer(t, s, 1)
			conn, err := s.DB.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			failed := make(chan error, 1)
			go func() {
				_, err := s.DB.ExecContext(context.Background(), "DO SLEEP(3600)")
				failed <- err
			}()
			for running := 0; running == 0; {
				if err := s.DB.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'DO SLEEP%'").Scan(&running); err != nil {
					t.Fatal(err)
				}
			}
			fault(p)
			p.Promote(1)
			awaitServer(t, s, 2)
			if s.Term() != 1 {
				t.Errorf("term %d after one move", s.Term())
			}
			if err := <-failed; mysql.ClassOf(err) != mysql.Lost {
				t.Errorf("the statement ended with %v", err)
			}
			var id int
			if err := conn.QueryRowContext(t.Context(), "SELECT @@server_id").Scan(&id); err == nil {
				t.Errorf("a connection to the old primary still answers: server %d", id)
			}
			if name == "frozen" {
				p.Freeze(0, false)
				awaitWhy(t, s, 0, "it was no replica since: not used")
			}
		})
	}
}

func TestAnOldPrimaryIsUsedAgainOnlyAfterItWasAReplica(t *testing.T) {
	t.Parallel()
	p := devtest.NewPair(t, false)
	s := openPair(t, p)
	awaitServer(t, s, 1)
	p.Kill(0)
	p.Promote(1)
	awaitServer(t, s, 2)
	if s.Term() != 1 {
		t.Errorf("term %d after one move", s.Term())
	}

	p.Start(0, false) // by mistake it takes writes
	awaitWhy(t, s, 0, "not used")
	if !s.Sightings(t.Context())[0].Split {
		t.Error("two servers take writes, and nobody says so")
	}
	p.Exec(1, "SET GLOBAL read_only = 1") // there is no other now
	awaitWhy(t, s, 1, "is read-only")
	if err := s.DB.PingContext(t.Context()); mysql.ClassOf(err) != mysql.Demoted {
		t.Errorf("connected: %v", err)
	}

	p.Exec(0, "SET GLOBAL read_only = 1")
	awaitWhy(t, s, 0, "is read-only")
	p.Exec(0, "SET GLOBAL read_only = 0")
	awaitServer(t, s, 1)
}

// TestAServerWithOtherDatabasesIsNotUsed has a marker that only the first server has.
func TestAServerWithOtherDatabasesIsNotUsed(t *testing.T) {
	t.Parallel()
	p := devtest.NewPair(t, false)
	p.Promote(1) // it is none of ours
	read := func(ctx context.Context, conn *sql.Conn) (string, error) {
		var id int
		if err := conn.QueryRowContext(ctx, "SELECT @@server_id").Scan(&id); err != nil || id == 2 {
			return "", err
		}
		return "ours", nil
	}
	s, err := mysql.Open(mysql.Spec{DSN: p.DSN(), Marker: mysql.Marker{Key: "test", Read: read}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.DB.Close()
	awaitServer(t, s, 1)
	p.Kill(0)
	awaitWhy(t, s, 1, "its databases are not those")
	if err := s.DB.PingContext(t.Context()); err == nil {
		t.Error("the foreign server is used")
	}
}
