package chaos

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// fault is a row of the matrix.
type fault struct {
	name    string
	takes   func(table int) bool // the tables that can't be used meanwhile
	where   string               // regular expression for the place that every actor must name
	why     string               // regular expression for the cause
	no      map[string]bool      // actors that the fault does not affect: they succeed and need not name it
	free    map[string]bool      // actors that may succeed or fail
	quiet   bool                 // only tasks show it, not the look at databases: the status page need not name it
	closed  closing              // the databases that must not be written meanwhile
	another bool                 // the other server belongs to another cluster
	slow    bool                 // its effect lasts up to a minute after its end
	cannot  string               // why it can't be played here; "": it can
	begin   func(*matrix)
	end     func(*matrix)
}

// faults are the rows; the short form has one of a database and one of a server.
func (m *matrix) faults() []fault {
	all := append(m.databaseFaults(), m.serverFaults()...)
	if long() {
		return all
	}
	return slices.DeleteFunc(all, func(f fault) bool { return f.name != "task table dropped" && f.name != "access denied" })
}

func isTable(table int) func(int) bool { return func(t int) bool { return t == table } }

// ofDatabase and ofServer report whether a table is in the sick database, and on the sick server.
func (m *matrix) ofDatabase(table int) bool { return m.opts.Layout.DatabaseOf(table) == sickDatabase }
func (m *matrix) ofServer(table int) bool   { return m.opts.serverOf(table) == sickServer }

// databaseFaults are the faults of one database, whose neighbours on the same server go on.
func (m *matrix) databaseFaults() []fault {
	name := m.opts.Layout.Database(sickDatabase)
	task := m.opts.Layout.Table(sickDatabase * m.opts.Layout.Tables)
	apply := func(m *matrix) { m.must("ddl", "apply") }
	away := func(table string) (func(*matrix), func(*matrix)) {
		return run("RENAME TABLE " + table + " TO " + table + "_away"), run("RENAME TABLE " + table + "_away TO " + table)
	}
	all := []fault{
		{name: "layout row gone", why: "layout", closed: noticed,
			begin: run("CREATE TABLE {db}.layout_kept AS SELECT * FROM {db}.layout", "DELETE FROM {db}.layout"),
			end:   run("INSERT INTO {db}.layout SELECT * FROM {db}.layout_kept", "DROP TABLE {db}.layout_kept")},
		{name: "foreign cluster id", why: "cluster", closed: noticed,
			begin: run("UPDATE {db}.layout SET cluster_id = 'other'"), end: run("UPDATE {db}.layout SET cluster_id = 'chaos'")},
		{name: "task table dropped", why: "doesn't exist|missing|lacks", takes: isTable(sickDatabase * m.opts.Layout.Tables),
			quiet: true, free: map[string]bool{startingNode: true}}, // the node may get other tables
		{name: "owner table dropped", why: "doesn't exist|missing|lacks", begin: run("DROP TABLE {db}.owner"), end: apply,
			no: map[string]bool{runningNode: true, adder: true, sweep: true, purge: true, audit: true}},
		{name: "doorbell table dropped", why: "doesn't exist|missing|lacks", begin: run("DROP TABLE {db}.doorbell"), end: apply,
			no: map[string]bool{sweep: true, audit: true}},
		{name: "biz_type table dropped", why: "doesn't exist|missing|lacks",
			no: map[string]bool{adder: true, sweep: true, purge: true, audit: true}},
		{name: "layout table dropped", why: "layout", closed: noticed},
	}
	for i := range all {
		f := &all[i]
		f.where = name + `\b`
		if f.takes == nil {
			f.takes = m.ofDatabase
		}
		if table, dropped := strings.CutSuffix(f.name, " table dropped"); dropped && f.begin == nil {
			if table = name + "." + table; f.name == "task table dropped" {
				table = task
			}
			f.begin, f.end = away(table)
		}
	}
	return all
}

// serverFaults are the faults of a whole server.
func (m *matrix) serverFaults() []fault {
	d := m.databases[sickServer]
	all := []fault{
		{name: "empty server behind the address", why: "doesn't exist|missing|lacks|Unknown database", closed: foreign,
			begin: (*matrix).moveToEmpty, end: (*matrix).moveBack},
		{name: "foreign server behind the address", why: "cluster", closed: foreign, another: true,
			begin: (*matrix).moveToForeign, end: (*matrix).moveBack},
		{name: "access denied", why: "denied",
			begin: func(m *matrix) { m.root("ALTER USER tocsin@'%' IDENTIFIED BY 'changed'"); m.disconnect() },
			end:   run("ALTER USER tocsin@'%' IDENTIFIED BY ''")},
		{name: "may only SELECT", why: "denied|may not", quiet: true, no: map[string]bool{audit: true}, free: map[string]bool{startingNode: true},
			begin: run("REVOKE ALL ON `chaos\\_%`.* FROM tocsin@'%'", "GRANT SELECT ON `chaos\\_%`.* TO tocsin@'%'"),
			end:   run(strings.ReplaceAll(grantSQL, "{prefix}", m.opts.Layout.Prefix))},
		{name: "certificate expired", why: "certificate|expired",
			begin: func(m *matrix) { m.tls.use(m.t, true); m.reloadTLS(); m.disconnect() },
			end:   func(m *matrix) { m.tls.use(m.t, false); m.reloadTLS() }},
		{name: "read-only", why: "read.only|not take writes|takes no writes", no: map[string]bool{audit: true},
			begin: run(readOnlySQL), end: run(readWriteSQL)},
		{name: "too many connections", why: "[Tt]oo many connections", begin: (*matrix).hog, end: (*matrix).unhog},
		{name: "disk full", why: "full|hang|answer|time.?out|deadline|not committed", cannot: m.noDisk, no: map[string]bool{audit: true}, slow: true,
			free:  map[string]bool{startingNode: true},
			begin: func(m *matrix) { m.orFail(m.disk.Fill()) }, end: func(m *matrix) { m.orFail(m.disk.Free()) }},
		{name: "frozen", why: "time.?out|answer|deadline",
			begin: func(*matrix) { d.server.Signal(syscall.SIGSTOP) }, end: func(*matrix) { d.server.Signal(syscall.SIGCONT) }},
	}
	for i := range all {
		all[i].takes, all[i].where = m.ofServer, fmt.Sprintf(`\bdb%d\b`, sickServer)
	}
	return all
}

// run runs statements as root on the sick server; {db} is the sick database.
func run(statements ...string) func(*matrix) {
	return func(m *matrix) {
		m.t.Helper()
		for _, s := range statements {
			m.root(strings.ReplaceAll(s, "{db}", m.opts.Layout.Database(sickDatabase)))
		}
	}
}

// root runs a statement as root on the sick server.
func (m *matrix) root(statement string) {
	m.t.Helper()
	m.orFail(m.databases[sickServer].exec(m.t.Context(), statement))
}

func (m *matrix) orFail(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// moveToEmpty leads all links to a server without databases, like a restored or new machine at the old address.
func (m *matrix) moveToEmpty() {
	m.t.Helper()
	m.moveTo(m.other.server.Port())
}

// moveToForeign leads all links to a server of another cluster, with the same layout and tasks that are due.
func (m *matrix) moveToForeign() { m.moveTo(m.other.server.Port()) }

func (m *matrix) moveBack() { m.moveTo(m.databases[sickServer].server.Port()) }

// moveTo leads all links of the sick server elsewhere.
func (m *matrix) moveTo(port int) {
	m.t.Helper()
	for _, at := range []*seat{m.seats[0], m.seats[1], m.sweeper, m.harness} {
		m.orFail(at.servers[sickServer].move(port))
	}
}

// makeForeign gives the other server databases of another cluster, and tasks that are due.
func (m *matrix) makeForeign(ctx context.Context) {
	m.t.Helper()
	cfg := tocsin.Config{Layout: m.opts.Layout, Cluster: "other", Servers: []tocsin.Server{{Name: "foreign", DSN: m.other.server.DSN()}}}
	_, err := ddl.Apply(ctx, cfg, ddl.Options{Cluster: cfg.Cluster})
	m.orFail(err)
	_, err = biztype.Apply(ctx, cfg, policies(m.receiver.url()))
	m.orFail(err)
	c, err := tocsin.Open(ctx, cfg)
	m.orFail(err)
	defer c.Close()
	for i := range 64 {
		_, err := c.Add(ctx, hook.New(uint64(1_000_000+i), Work{}, tocsin.In(0)))
		m.orFail(err)
	}
}

// hog takes every connection that the sick server allows.
func (m *matrix) hog() {
	m.t.Helper()
	m.root("CREATE USER IF NOT EXISTS hog@'%'")
	m.root("SET GLOBAL max_connections = 10")
	for quiet := 0; quiet < 3; m.pause(100 * time.Millisecond) { // a place may be given back after its connection is gone from the list
		if quiet++; m.connected() > 0 {
			m.disconnect()
			quiet = 0
		}
		for {
			conn, err := m.hogOne()
			if err != nil {
				break
			}
			m.hogs = append(m.hogs, conn)
		}
	}
}

func (m *matrix) hogOne() (*sql.Conn, error) {
	db, err := openQuiet(strings.Replace(m.databases[sickServer].server.DSN(), "root@", "hog@", 1))
	m.orFail(err)
	m.t.Cleanup(func() { _ = db.Close() })
	return db.Conn(m.t.Context())
}

// connected counts the connections that belong neither to root nor to a hog.
func (m *matrix) connected() (n int) {
	m.t.Helper()
	m.orFail(m.databases[sickServer].direct.QueryRow("SELECT COUNT(*) + (@@max_connections > 10) FROM information_schema.processlist WHERE user = 'tocsin'").Scan(&n))
	return n
}

// disconnect ends all connections of Tocsin's user to the sick server.
func (m *matrix) disconnect() {
	m.t.Helper()
	var ids []int64
	rows, err := m.databases[sickServer].direct.Query("SELECT id FROM information_schema.processlist WHERE user = 'tocsin'")
	m.orFail(err)
	defer rows.Close()
	for rows.Next() {
		var id int64
		m.orFail(rows.Scan(&id))
		ids = append(ids, id)
	}
	m.orFail(rows.Err())
	for _, id := range ids {
		_, err := m.databases[sickServer].direct.Exec(fmt.Sprintf("KILL %d", id))
		var gone *mysql.MySQLError
		if errors.As(err, &gone) && gone.Number == 1094 { // it has ended meanwhile
			continue
		}
		m.orFail(err)
	}
}

// reloadTLS has the sick server read its certificate again.
func (m *matrix) reloadTLS() {
	m.t.Helper()
	if m.databases[sickServer].server.IsMySQL() {
		m.root("ALTER INSTANCE RELOAD TLS")
		return
	}
	m.root("FLUSH SSL")
}

func (m *matrix) unhog() {
	m.t.Helper()
	for _, c := range m.hogs {
		_ = c.Close()
	}
	m.hogs = nil
	m.root(fmt.Sprintf("SET GLOBAL max_connections = %d", 500))
}

// tlsFiles are the certificates of the sick server, signed by an authority of the test's own.
type tlsFiles struct {
	authority  string
	cert, key  string // what the server reads
	good, late pair
}

// pair is a certificate and its key, PEM.
type pair struct{ cert, key []byte }

// tlsOfHarness names the authority for the DSNs of this process.
const tlsOfHarness = "matrix"

func newTLSFiles(t *testing.T) tlsFiles {
	t.Helper()
	a := devtest.NewAuthority(t)
	dir := t.TempDir()
	f := tlsFiles{authority: a.File, cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem")}
	cert, key := a.Issue(t, "server")
	f.good = pair{read(t, cert), read(t, key)}
	cert, key = a.IssueExpired(t, "expired")
	f.late = pair{read(t, cert), read(t, key)}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(read(t, a.File))
	if err := mysql.RegisterTLSConfig(tlsOfHarness, &tls.Config{RootCAs: pool}); err != nil {
		t.Fatal(err)
	}
	f.use(t, false)
	return f
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// use puts a certificate where the server reads it, at its start and when it is told to read it again.
func (f tlsFiles) use(t *testing.T, expired bool) {
	t.Helper()
	p := f.good
	if expired {
		p = f.late
	}
	for path, text := range map[string][]byte{f.cert: p.cert, f.key: p.key} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func (f tlsFiles) args() []string {
	return []string{durable, "--ssl-cert=" + f.cert, "--ssl-key=" + f.key}
}

// durable is the server setting without which doctor always complains.
const durable = "--innodb-flush-log-at-trx-commit=1"
