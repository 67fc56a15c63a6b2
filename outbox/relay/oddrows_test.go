package relay

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/outbox"
)

// oddSession is that of a program that checks nothing, in a time zone and a character set of its own.
const oddSession = "SET SESSION sql_mode = 'NO_AUTO_VALUE_ON_ZERO,ANSI_QUOTES,NO_BACKSLASH_ESCAPES', time_zone = '-09:30', character_set_client = latin1, character_set_connection = latin1"

// Whatever a program writes is moved, or set aside with a reason, and holds up nothing else.
func TestRowsOfProgramsThatCheckNothing(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	conn, err := s.DB.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	aside := 0
	rows := []struct {
		name, values string // id, biz_id, due_time, delay_ms, created, attribute
		aside        string // the beginning of the reason; "": it is moved
	}{
		{"id 0", "0, 1, NULL, 86400000, NOW(6), 'x'", ""},
		{"the last biz_id", "NULL, 18446744073709551615, NULL, 86400000, NOW(6), 'x'", ""},
		{"a delay below 0 is cut to 0", "NULL, 2, NULL, -5, NOW(6), 'x'", ""},
		{"the longest delay", "NULL, 3, NULL, 18446744073709551615, NOW(6), 'x'", "action time"},
		{"the last time", "NULL, 4, '9999-12-31 23:59:59.999', NULL, NOW(6), 'x'", "action time 9999-12-31T23:59:59Z: more than"},
		{"a time before the year 1000", "NULL, 5, '0001-01-02 00:00:00', NULL, NOW(6), 'x'", "action time 0001-01-02"},
		{"no date", "NULL, 6, '0000-00-00', NULL, NOW(6), 'x'", "give either due_time or delay_ms"},
		{"a date without a month", "NULL, 7, '2026-00-31', NULL, NOW(6), 'x'", "give either due_time or delay_ms"},
		{"no time of creation", "NULL, 8, NULL, 5, 0, 'x'", "created is 0"},
		{"made in 1970", "NULL, 9, NULL, 5, FROM_UNIXTIME(1), 'x'", ""},
		{"made in the future", "NULL, 10, NULL, 86400000, NOW(6) + INTERVAL 1 YEAR, 'x'", ""},
		{"a text in Latin-1", "NULL, 11, NULL, 86400000, NOW(6), '\xe4\\'", ""},
		{"long texts", "NULL, 12, NULL, 86400000, NOW(6), REPEAT(_utf8mb4 X'F09F9494', 8192)", ""},
		{"the last id", "18446744073709551614, 13, NULL, 86400000, NOW(6), 'x'", ""},
	}
	for _, c := range rows {
		statement := s.Fill("INSERT INTO {outbox} (id, biz_id, due_time, delay_ms, created, attribute, biz_type) VALUES (" + c.values + ", 'order.close')")
		for _, text := range []string{oddSession, statement} {
			if _, err := conn.ExecContext(t.Context(), text); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
		}
		if c.aside != "" {
			aside++
		}
	}
	s.relay(s.config())
	s.Rows(aside)
	s.Await("rows to be set aside", func() bool { return s.Number("SELECT COUNT(*) FROM {outbox} WHERE last_error <> ''") == aside })
	for _, c := range rows {
		bizID := strings.Split(c.values, ", ")[1]
		if c.aside != "" && s.Number("SELECT COUNT(*) FROM {outbox} WHERE biz_id = "+bizID+" AND last_error LIKE CONCAT(?, '%')", c.aside) != 1 {
			t.Errorf("%s: is not set aside for %q\n%s", c.name, c.aside, s.Dump())
		}
	}
	for id, want := range map[uint64]string{1: "x", 2: "x", 9: "x", 10: "x", 11: `ä\`, 12: strings.Repeat("🔔", 8192), 13: "x", 1<<64 - 1: "x"} {
		if got := s.Tasks(id); got != want+" pending" {
			t.Errorf("biz_id %d: %.20s, %d bytes, want %.20s", id, got, len(got), want)
		}
	}
	if n, err := s.Outbox().Drop(t.Context(), nil, true); n != aside || err != nil {
		t.Error(n, err)
	}
}

// An operator's list of ids means these ids alone. Nothing waits for a service's transaction that is open.
func TestOperatorsChangeTheRowsThatTheyName(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.put(5, "no room")
	s.put(6, "no room")
	s.Exec("UPDATE {outbox} SET id = 0 WHERE id = 6")
	open := s.Begin()
	if err := s.AddTx(open, 8, "x", tocsin.In(day)); err != nil {
		t.Fatal(err)
	}
	from := s.Outbox()
	for _, ids := range [][]uint64{nil, {4}} {
		if n, err := from.Drop(t.Context(), ids, false); n != 0 || err != nil {
			t.Errorf("%d dropped, %v", n, err)
		}
	}
	if n, err := from.Retry(t.Context(), []uint64{5, 77}, false); n != 1 || err != nil {
		t.Errorf("%d retried, %v", n, err)
	}
	if n, err := from.Drop(t.Context(), []uint64{0}, false); n != 1 || err != nil {
		t.Errorf("%d dropped, %v", n, err)
	}
	if got := s.Dump(); !strings.HasPrefix(got, "5 add") {
		t.Errorf("left: %s", got)
	}
	s.put(9, "no room")
	if n, err := from.Drop(t.Context(), nil, true); n != 1 || err != nil {
		t.Errorf("%d dropped, %v", n, err)
	}
}

// A migration rebuilds the table while rows come and are moved.
func TestTheTableIsAlteredWhileItIsRelayed(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.relay(s.config())
	for n := range uint64(10) {
		for i := range uint64(5) {
			s.Add(5*n+i+1, "x", tocsin.In(day))
		}
		s.Exec(fmt.Sprintf("ALTER TABLE {outbox} ADD COLUMN tenant_%d INT NULL, FORCE", n))
	}
	s.Rows(0)
	for id := range uint64(50) {
		s.Want(id+1, "x pending")
	}
}

// The business server takes no writes for a while, after a fail-over, say: a row that was moved and can't be deleted is not
// moved again.
func TestARowOfAServerThatTakesNoWritesIsMovedOnce(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	m, err := devserver.StartMariaDB(t.Context(), devserver.MariaDBConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Stop() })
	s.DB, s.Config.Outbox.Table = s.openDB(m.DSN()), "shop.tocsin_outbox"
	s.Exec("CREATE DATABASE shop")
	s.applyOutbox(outbox.Config{DSN: m.DSN(), Table: s.Config.Outbox.Table})
	s.Exec("CREATE USER relay IDENTIFIED BY 'secret'")
	s.Exec("GRANT SELECT, DELETE, UPDATE (attempts, last_error) ON {outbox} TO relay")
	dsn, err := mysql.ParseDSN(m.DSN())
	if err != nil {
		t.Fatal(err)
	}
	dsn.User, dsn.Passwd = "relay", "secret"
	s.From.DSN, s.From.Table = dsn.FormatDSN(), s.Config.Outbox.Table
	s.Exec("SET GLOBAL read_only = ON") // which does not bind the user of the test
	s.In(func(tx *sql.Tx) error {
		_, err := tx.Exec(s.Fill("INSERT INTO {outbox} (biz_type, biz_id, delay_ms, attribute) VALUES ('order.close', 1, 86400000, 'x')"))
		return err
	})
	var log devtest.Log
	cfg := s.config()
	cfg.Logger = log.Logger()
	s.relay(cfg)
	s.Want(1, "x pending")
	t.Log(log.Await(t, "outbox can't be relayed: its rows wait"))
	s.Exec("SET GLOBAL read_only = OFF")
	s.Rows(0)
	s.Want(1, "x pending")
}
