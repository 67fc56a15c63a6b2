package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited too long until %s", what)
		}
	}
}

func TestWhatTheServerHasNotAnsweredIsKnown(t *testing.T) {
	t.Parallel()
	s := open(t, devtest.DSN(t))
	if _, err := s.DB.ExecContext(t.Context(), "SELECT 1"); err != nil {
		t.Fatal(err)
	}
	if waiting := s.Waiting(); waiting != 0 {
		t.Errorf("idle, and something has waited for %s", waiting)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 2)
	go func() { _, err := s.DB.ExecContext(ctx, "DO SLEEP(3600)"); ended <- err }()
	until(t, "the statement has waited for a while", func() bool { return s.Waiting() > 200*time.Millisecond })
	go func() { _, err := s.DB.ExecContext(t.Context(), "DO SLEEP(0.1)"); ended <- err }()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if waiting := s.Waiting(); waiting < 200*time.Millisecond {
		t.Errorf("after a younger statement has ended, the oldest has waited for %s", waiting)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("slept for an hour")
	}
	until(t, "the canceled statement is forgotten", func() bool { return s.Waiting() == 0 })
}

// The first of several statements sent together is answered before the others have run.
func TestALaterResultIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := open(t, devtest.DSN(t))
	ended := make(chan error, 1)
	read := func() error {
		rows, err := s.DB.QueryContext(t.Context(), "SELECT 1; DO SLEEP(2); SELECT 2")
		if err != nil {
			return err
		}
		defer rows.Close()
		for n := 1; ; n++ {
			for rows.Next() {
				var got int
				if err := rows.Scan(&got); err != nil || got != n {
					return fmt.Errorf("read %d of result %d: %w", got, n, err)
				}
			}
			if !rows.NextResultSet() {
				return rows.Err()
			}
		}
	}
	go func() { ended <- read() }()
	until(t, "the later statement has waited for a while", func() bool { return s.Waiting() > 200*time.Millisecond })
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if waiting := s.Waiting(); waiting != 0 {
		t.Errorf("idle, and something has waited for %s", waiting)
	}
}

func TestAServerThatNeverGreetsIsWaitedFor(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // like a frozen process: the kernel accepts connections
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	s := open(t, "root@tcp("+silent.Addr().String()+")/")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.DB.PingContext(ctx) }()
	until(t, "the attempt to connect has waited for a while", func() bool { return s.Waiting() > 200*time.Millisecond })
	cancel()
	if err := <-ended; mysql.ClassOf(err) != mysql.Canceled {
		t.Error(err)
	}
	until(t, "the attempt is forgotten", func() bool { return s.Waiting() == 0 })
}

// TestAStatementWithoutAnAnswerSaysSo: the driver's own words are "invalid connection".
func TestAStatementWithoutAnAnswerSaysSo(t *testing.T) {
	t.Parallel()
	s := open(t, devtest.DSN(t)+"?readTimeout=300ms")
	_, err := s.DB.ExecContext(t.Context(), "DO SLEEP(3)")
	if err == nil || err.Error() != "no answer within 300ms" || mysql.ClassOf(err) != mysql.Lost {
		t.Errorf("%v, of class %s", err, mysql.ClassOf(err))
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	_, err = open(t, "root@tcp("+silent.Addr().String()+")/?readTimeout=300ms").DB.ExecContext(t.Context(), "DO 1")
	if err == nil || err.Error() != "no answer within 300ms" || mysql.ClassOf(err) != mysql.Lost {
		t.Errorf("connect: %v, of class %s", err, mysql.ClassOf(err))
	}
}

// TestAServerThatTakesNoWritesSaysSo: the error names the server's reason. Each time a new connection is made, since
// the server may have been demoted and the address may lead to another by now.
func TestAServerThatTakesNoWritesSaysSo(t *testing.T) {
	t.Parallel()
	s := open(t, devtest.DSN(t))
	s.DB.SetMaxOpenConns(1)
	connection := func() (id int) {
		t.Helper()
		if err := s.DB.GetContext(t.Context(), &id, "SELECT CONNECTION_ID()"); err != nil {
			t.Fatal(err)
		}
		return id
	}
	before := connection()
	const refused = "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1290, MESSAGE_TEXT = 'read-only, says the server'"
	_, err := s.DB.ExecContext(t.Context(), refused)
	if err == nil || err.Error() != "Error 1290 (HY000): read-only, says the server" || mysql.ClassOf(err) != mysql.Demoted {
		t.Errorf("%v, of class %s", err, mysql.ClassOf(err))
	}
	if after := connection(); after < before+3 {
		t.Errorf("connection %d, then %d: it was not made anew for each of three tries", before, after)
	}
	err = mysql.InTx(t.Context(), s.DB, func(conn *sql.Conn) error {
		_, err := mysql.ExecMulti(t.Context(), conn, "DO 1; "+refused)
		return err
	})
	if err == nil || err.Error() != "Error 1290 (HY000): read-only, says the server" || mysql.ClassOf(err) != mysql.Demoted {
		t.Errorf("in a transaction: %v, of class %s", err, mysql.ClassOf(err))
	}
}
