package devtest

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/jmoiron/sqlx"

	"github.com/tocsinhq/tocsin/internal/devserver"
)

// Pair is a primary and its replica by GTID, two servers of their own. Server 0 is the primary at
// first. All methods end the test if they fail.
type Pair struct {
	tb      testing.TB
	semi    bool
	env     []string // of the replica
	servers [2]*devserver.MariaDB
	dirs    [2]string
	ports   [2]int
}

// ackTimeout is how long a commit waits for the replica: longer than any test. Milliseconds.
const ackTimeout = 3600_000

// NewPair starts both. With semi, a commit returns after the replica has it, and is not seen by
// others before (AFTER_SYNC). env are variables of the replica's environment.
func NewPair(tb testing.TB, semi bool, env ...string) *Pair {
	tb.Helper()
	p := &Pair{tb: tb, semi: semi, env: env, dirs: [2]string{tb.TempDir(), tb.TempDir()}}
	for i := range p.servers {
		p.Start(i, i == 1)
	}
	p.Follow(1, 0)
	return p
}

// Start starts a server that was never started or was killed, with its data.
func (p *Pair) Start(i int, readOnly bool) {
	p.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	cfg := devserver.MariaDBConfig{Dir: p.dirs[i], Port: p.ports[i], Memory: 128 << 20, Args: p.args(i, readOnly)}
	if i == 1 {
		cfg.Env = p.env
	}
	m, err := devserver.StartMariaDB(ctx, cfg)
	if err != nil {
		p.tb.Fatal(err)
	}
	p.servers[i], p.ports[i] = m, m.Port()
	p.tb.Cleanup(func() {
		_ = m.Kill() // nobody sees its data again
		_ = m.Stop()
	})
}

func (p *Pair) args(i int, readOnly bool) []string {
	args := []string{fmt.Sprintf("--server-id=%d", i+1), "--log-bin=binlog", "--log-slave-updates=ON", "--skip-slave-start"}
	if IsMySQL(p.tb) {
		args = []string{fmt.Sprintf("--server-id=%d", i+1), "--log-bin=binlog", "--gtid-mode=ON", "--enforce-gtid-consistency=ON", "--skip-replica-start",
			"--plugin-load-add=semisync_source.so", "--plugin-load-add=semisync_replica.so"}
	}
	if readOnly {
		args = append(args, "--read-only=ON")
	}
	return append(args, p.semiArgs(i)...)
}

// semiArgs enable the side of each server. A replica with the primary's side enabled would wait for a
// replica of its own with all that it applies.
func (p *Pair) semiArgs(i int) []string {
	switch mysql := IsMySQL(p.tb); {
	case !p.semi:
		return nil
	case mysql && i == 0:
		return []string{"--rpl-semi-sync-source-enabled=ON", fmt.Sprintf("--rpl-semi-sync-source-timeout=%d", ackTimeout), "--rpl-semi-sync-source-wait-point=AFTER_SYNC"}
	case mysql:
		return []string{"--rpl-semi-sync-replica-enabled=ON"}
	case i == 0:
		return []string{"--rpl-semi-sync-master-enabled=ON", fmt.Sprintf("--rpl-semi-sync-master-timeout=%d", ackTimeout), "--rpl-semi-sync-master-wait-point=AFTER_SYNC"}
	}
	return []string{"--rpl-semi-sync-slave-enabled=ON"}
}

// Follow makes server i the replica of server of.
func (p *Pair) Follow(i, of int) {
	p.tb.Helper()
	change := "CHANGE MASTER TO master_host = '127.0.0.1', master_port = %d, master_user = 'root', master_use_gtid = slave_pos, master_connect_retry = 1"
	start := "START SLAVE"
	if IsMySQL(p.tb) {
		change = "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = %d, SOURCE_USER = 'root', SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1, SOURCE_CONNECT_RETRY = 1"
		start = "START REPLICA"
	}
	p.Exec(i, fmt.Sprintf(change, p.ports[of]))
	p.Exec(i, start)
}

// StopReceiving makes a replica miss what its primary commits from now on.
func (p *Pair) StopReceiving(i int) {
	p.tb.Helper()
	if IsMySQL(p.tb) {
		p.Exec(i, "STOP REPLICA IO_THREAD")
	} else {
		p.Exec(i, "STOP SLAVE IO_THREAD")
	}
}

// DSN returns a DSN with both addresses.
func (p *Pair) DSN() string {
	return fmt.Sprintf("root@tcp(127.0.0.1:%d,127.0.0.1:%d)/", p.ports[0], p.ports[1])
}

// Address returns the address of one server.
func (p *Pair) Address(i int) string { return fmt.Sprintf("127.0.0.1:%d", p.ports[i]) }

// Open opens one server directly.
func (p *Pair) Open(i int) *sql.DB {
	p.tb.Helper()
	db, err := sql.Open("mysql", fmt.Sprintf("root@tcp(%s)/", p.Address(i)))
	if err != nil {
		p.tb.Fatal(err)
	}
	return db
}

// Exec runs a statement on one server.
func (p *Pair) Exec(i int, statement string) {
	p.tb.Helper()
	db := p.Open(i)
	defer db.Close()
	must(p.tb, db, statement)
}

// Kill ends a server with SIGKILL.
func (p *Pair) Kill(i int) {
	p.tb.Helper()
	if err := p.servers[i].Kill(); err != nil {
		p.tb.Fatal(err)
	}
	_ = p.servers[i].Stop() // its port and folder are free for Start
}

// Freeze stops a server's process, which then answers nobody, or lets it go on.
func (p *Pair) Freeze(i int, frozen bool) {
	p.tb.Helper()
	signal := syscall.SIGCONT
	if frozen {
		signal = syscall.SIGSTOP
	}
	if err := p.servers[i].Signal(signal); err != nil {
		p.tb.Fatal(err)
	}
}

// Promote makes the replica i a primary, as an operator does: it applies what it has received,
// and then takes writes.
func (p *Pair) Promote(i int) {
	p.tb.Helper()
	db := p.Open(i)
	defer db.Close()
	for _, statement := range p.promotion(db) {
		must(p.tb, db, statement)
	}
}

func (p *Pair) promotion(db *sql.DB) []string {
	if IsMySQL(p.tb) {
		must(p.tb, db, "STOP REPLICA IO_THREAD")
		received := p.status(db, "SHOW REPLICA STATUS", "Retrieved_Gtid_Set")
		return []string{
			"DO WAIT_FOR_EXECUTED_GTID_SET('" + strings.ReplaceAll(received, "\n", "") + "')", "STOP REPLICA", "RESET REPLICA ALL", "SET GLOBAL read_only = 0",
		}
	}
	must(p.tb, db, "STOP SLAVE IO_THREAD")
	received := p.status(db, "SHOW SLAVE STATUS", "Gtid_IO_Pos")
	return []string{"DO MASTER_GTID_WAIT('" + received + "')", "STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL read_only = 0"}
}

// status reads one column of a replica's status.
func (p *Pair) status(db *sql.DB, show, column string) string {
	p.tb.Helper()
	row := map[string]any{}
	if err := sqlx.NewDb(db, "mysql").QueryRowx(show).MapScan(row); err != nil {
		p.tb.Fatalf("%s: %v", show, err)
	}
	text, _ := row[column].([]byte) // NULL is none
	if _, there := row[column]; !there {
		p.tb.Fatalf("%s has no column %s", show, column)
	}
	return string(text)
}

func must(tb testing.TB, db *sql.DB, statement string) {
	tb.Helper()
	if _, err := db.Exec(statement); err != nil {
		tb.Fatalf("%.200s: %v", statement, err)
	}
}
