package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// ownServer is a server of its own. It has the database shop with the table line, and the user shop, without rights that lift a refusal.
type ownServer struct {
	*devserver.MariaDB
	t   *testing.T
	dir string
}

func startServer(t *testing.T, settings ...string) *ownServer {
	t.Helper()
	s := &ownServer{t: t, dir: t.TempDir()}
	s.start()
	t.Cleanup(func() {
		_ = s.Kill()
		_ = s.Stop()
	})
	s.exec("CREATE DATABASE shop", "CREATE TABLE shop.line (id INT PRIMARY KEY) ENGINE = InnoDB", "CREATE USER shop", "GRANT ALL ON shop.* TO shop")
	s.exec(settings...)
	return s
}

func (s *ownServer) start(options ...string) {
	s.t.Helper()
	m, err := devserver.StartMariaDB(context.Background(), devserver.MariaDBConfig{Dir: s.dir, Memory: 64 << 20, Args: options})
	if err != nil {
		s.t.Fatal(err)
	}
	s.MariaDB = m
}

// restart starts the server with further options.
func (s *ownServer) restart(options ...string) {
	s.t.Helper()
	if err := s.Stop(); err != nil {
		s.t.Fatal(err)
	}
	s.start(options...)
}

// exec runs statements as root.
func (s *ownServer) exec(statements ...string) {
	s.t.Helper()
	db, err := sql.Open("mysql", s.DSN())
	if err != nil {
		s.t.Fatal(err)
	}
	defer db.Close()
	for _, statement := range statements {
		mustExec(s.t, db, statement)
	}
}

// asUser returns a DSN of a server for a user.
func asUser(user, address string) string { return user + "@tcp(" + address + ")/" }

// TestAServerSaysWhyItTakesNoWrites tries each way that forbids writes. What a server says is believed of root too, who may write to some of them.
func TestAServerSaysWhyItTakesNoWrites(t *testing.T) {
	t.Parallel()
	settings := map[string]string{"read_only": "read_only is on"}
	options := [][2]string{{"--innodb-read-only=ON", "innodb_read_only is on"}, {"--innodb-force-recovery=5", "innodb_force_recovery is 5"}, {"--innodb-force-recovery=3", ""}}
	if devtest.IsMySQL(t) {
		settings["super_read_only"], settings["offline_mode"], settings["transaction_read_only"] = "read_only is on", "offline_mode is on", ""
		options = [][2]string{{"--innodb-read-only=ON", "innodb_read_only is on"}, {"--innodb-force-recovery=1", "innodb_force_recovery is 1"}}
	}
	s := startServer(t)
	for setting, want := range settings {
		s.exec("SET GLOBAL " + setting + " = 1")
		s.says(setting, want)
		s.exec("SET GLOBAL "+setting+" = 0", "SET GLOBAL read_only = 0")
	}
	for _, option := range options {
		s.restart(option[0])
		s.says(option[0], option[1])
	}
}

// says asks the server why it takes no writes, and compares a write.
func (s *ownServer) says(when, want string) {
	s.t.Helper()
	why, err := mysql.ReadOnly(s.t.Context(), open(s.t, s.DSN()).DB)
	if err != nil || why != want {
		s.t.Errorf("%s: says %q, %v, want %q", when, why, err, want)
	}
	_, err = open(s.t, asUser("shop", s.Endpoint())).DB.ExecContext(s.t.Context(), "REPLACE INTO shop.line VALUES (1)")
	if refused := mysql.Away(err); refused != (want != "") || err != nil && !refused {
		s.t.Errorf("%s: a write: %s: %v", when, mysql.ClassOf(err), err)
	}
}

// judgedSettings are all settings of the servers whose name speaks of refusing writes or clients, with what is made of each.
var judgedSettings = map[string]string{
	"read_only":             "asked",
	"super_read_only":       "sets read_only",
	"innodb_read_only":      "asked",
	"innodb_force_recovery": "asked",
	"offline_mode":          "asked",
	"tx_read_only":          "the session sets it",
	"transaction_read_only": "the session sets it",

	"innodb_read_only_compressed":       "of compressed tables only, and ours are none",
	"innodb_force_load_corrupted":       "of the start",
	"aria_recover_options":              "of Aria tables, and ours are InnoDB's",
	"myisam_recover_options":            "of MyISAM tables",
	"wsrep_reject_queries":              "refuses each statement with 1047",
	"wsrep_sst_donor_rejects_queries":   "refuses each statement with 1047",
	"idle_readonly_transaction_timeout": "ends sessions",
}

var aboutRefusal = regexp.MustCompile(`read_?only|offline|force_recovery|reject|maintenance|standby`)

// TestEachSettingThatMayForbidWritesIsJudged fails with a version that has a new one.
func TestEachSettingThatMayForbidWritesIsJudged(t *testing.T) {
	t.Parallel()
	rows, err := open(t, devtest.DSN(t)).DB.QueryContext(t.Context(), "SHOW GLOBAL VARIABLES")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			t.Fatal(err)
		}
		name = strings.ToLower(name)
		if aboutRefusal.MatchString(name) && judgedSettings[name] == "" {
			t.Errorf("%s is not judged: does the server refuse writes when it is set? See roleSQL", name)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

// balancer passes each connection to the next of its backends.
type balancer struct {
	net.Listener
	backends atomic.Pointer[[]string]
	next     atomic.Int64
}

func startBalancer(t *testing.T, backends ...string) *balancer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{Listener: l}
	b.lead(backends...)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go b.pass(client)
		}
	}()
	return b
}

// lead names other backends, for new connections.
func (b *balancer) lead(backends ...string) { b.backends.Store(&backends) }

func (b *balancer) pass(client net.Conn) {
	defer client.Close()
	all := *b.backends.Load()
	server, err := net.Dial("tcp", all[int(b.next.Add(1)-1)%len(all)])
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(client, server)
}

// TestOneAddressMayLeadToAnotherServerEachTime is a balancer, or a name with several addresses, in front of a primary and a reader.
func TestOneAddressMayLeadToAnotherServerEachTime(t *testing.T) {
	t.Parallel()
	writer := startServer(t)
	replica, reader := startServer(t, "SET GLOBAL read_only = 1"), startServer(t)
	reader.restart("--innodb-read-only=ON")
	for option, reader := range map[string]*ownServer{"read_only": replica, "innodb_read_only": reader} {
		b := startBalancer(t, reader.Endpoint(), writer.Endpoint())
		for i := range 10 {
			db := open(t, asUser("shop", b.Addr().String())).DB
			db.SetMaxOpenConns(1) // each connection is the next of the balancer
			if _, err := db.ExecContext(t.Context(), fmt.Sprintf("REPLACE INTO shop.line VALUES (%d)", i)); err != nil {
				t.Fatalf("%s: write %d: %v", option, i, err)
			}
			_ = db.Close()
		}
	}
}

// TestAServerThatStaysReadOnlyIsNotFlooded counts the connections of a pool whose server takes no writes: the pool looks for another server at most every few seconds.
func TestAServerThatStaysReadOnlyIsNotFlooded(t *testing.T) {
	t.Parallel()
	b := startBalancer(t, startServer(t, "SET GLOBAL read_only = 1").Endpoint())
	db := open(t, asUser("shop", b.Addr().String())).DB
	const pool = 12
	for range pool { // all stay in use
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	if made := b.next.Load(); made > 2*pool { // each would make three
		t.Errorf("%d connections were made for %d", made, pool)
	}
}

// TestAReaderNamedFirstIsNotUsed is a cluster's reader and its writer, in that order, neither of them with read_only.
func TestAReaderNamedFirstIsNotUsed(t *testing.T) {
	t.Parallel()
	reader, writer := startServer(t), startServer(t, "SET GLOBAL server_id = 2")
	reader.restart("--innodb-read-only=ON")
	s := open(t, asUser("shop", reader.Endpoint()+","+writer.Endpoint()))
	awaitServer(t, s, 2)
	awaitWhy(t, s, 0, "is read-only: innodb_read_only is on")
	if _, err := s.DB.ExecContext(t.Context(), "INSERT INTO shop.line VALUES (1)"); err != nil {
		t.Error(err)
	}
}

// TestAPoolLeavesAServerThatTurnedReadOnly: the address leads to another server after a fail-over. Connections to the old one that only read see
// none of that, until one that writes is refused.
func TestAPoolLeavesAServerThatTurnedReadOnly(t *testing.T) {
	t.Parallel()
	old, promoted := startServer(t), startServer(t, "SET GLOBAL server_id = 2")
	b := startBalancer(t, old.Endpoint())
	s := open(t, asUser("shop", b.Addr().String()))
	var conns [2]*sql.Conn
	for i := range conns {
		conn, err := s.DB.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns[i] = conn
	}
	_ = conns[1].Close() // the write is its next statement
	old.exec("SET GLOBAL read_only = 1")
	b.lead(promoted.Endpoint())
	if _, err := s.DB.ExecContext(t.Context(), "INSERT INTO shop.line VALUES (1)"); err != nil {
		t.Errorf("a write: %v", err)
	}
	_ = conns[0].Close() // to the pool, which does not keep it
	for range 3 {
		var id int
		if err := s.DB.QueryRowContext(t.Context(), "SELECT @@server_id").Scan(&id); err != nil || id != 2 {
			t.Errorf("server %d answers, %v", id, err)
		}
	}
}
