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
	slow    bool                 // it needs the small disk, and its effect lasts up to a minute after its end
	harm
}

// faults are the rows; the short form has one of a database and one of a server.
func (m *matrix) faults() []fault {
	all := append(m.databaseFaults(), m.serverFaults()...)
	if long() {
		return all
	}
	return slices.DeleteFunc(all, func(f fault) bool { return f.name != "task table dropped" && f.name != "access denied" })
}

// ofDatabase and ofServer report whether a table is in the sick database, and on the sick server.
func (m *matrix) ofDatabase(table int) bool { return m.opts.Layout.DatabaseOf(table) == sickDatabase }
func (m *matrix) ofServer(table int) bool   { return m.opts.serverOf(table) == sickServer }

// databaseFaults are the faults of one database, whose neighbours on the same server go on.
func (m *matrix) databaseFaults() []fault {
	const missing = "doesn't exist|missing|lacks"
	name := m.opts.Layout.Database(sickDatabase)
	run := func(begin, end string) harm {
		return m.run(sickServer, strings.ReplaceAll(begin, "{db}", name), strings.ReplaceAll(end, "{db}", name))
	}
	away := func(table string) harm {
		return run("RENAME TABLE "+table+" TO "+table+"_away", "RENAME TABLE "+table+"_away TO "+table)
	}
	dropped := func(table string) harm {
		return harm{run("DROP TABLE "+table, "").begin, func() { m.must("ddl", "apply") }}
	}
	all := []fault{
		{name: "layout row gone", why: "layout", closed: noticed,
			harm: run("CREATE TABLE {db}.layout_kept AS SELECT * FROM {db}.layout; DELETE FROM {db}.layout",
				"INSERT INTO {db}.layout SELECT * FROM {db}.layout_kept; DROP TABLE {db}.layout_kept")},
		{name: "foreign cluster id", why: "cluster", closed: noticed, harm: m.of(Step{Fault: WrongCluster, Server: sickServer, Database: sickDatabase})},
		{name: "task table dropped", why: missing, takes: func(table int) bool { return table == sickDatabase*m.opts.Layout.Tables },
			quiet: true, free: map[string]bool{startingNode: true}, // the node may get other tables
			harm: away(m.opts.Layout.Table(sickDatabase * m.opts.Layout.Tables))},
		{name: "owner table dropped", why: missing, harm: dropped("{db}.owner"),
			no: map[string]bool{runningNode: true, adder: true, sweep: true, purge: true, audit: true}},
		{name: "doorbell table dropped", why: missing, harm: dropped("{db}.doorbell"), no: map[string]bool{sweep: true, audit: true}},
		{name: "biz_type table dropped", why: missing, harm: away("{db}.biz_type"),
			no: map[string]bool{adder: true, sweep: true, purge: true, audit: true}},
		{name: "layout table dropped", why: "layout", closed: noticed, harm: m.of(Step{Fault: NoLayout, Server: sickServer, Database: sickDatabase})},
	}
	for i := range all {
		all[i].where = name + `\b`
		if all[i].takes == nil {
			all[i].takes = m.ofDatabase
		}
	}
	return all
}

// serverFaults are the faults of a whole server.
func (m *matrix) serverFaults() []fault {
	denied := m.run(sickServer, "ALTER USER tocsin@'%' IDENTIFIED BY 'changed'", "ALTER USER tocsin@'%' IDENTIFIED BY ''")
	elsewhere := harm{func() { m.moveTo(m.other) }, func() { m.moveTo(m.databases[sickServer]) }}
	certified := func(by [2]string) { m.tls.use(m.t, by); m.reloadTLS() }
	all := []fault{
		{name: "empty server behind the address", why: "doesn't exist|missing|lacks|Unknown database", closed: foreign, harm: elsewhere},
		{name: "foreign server behind the address", why: "cluster", closed: foreign, another: true, harm: elsewhere},
		{name: "access denied", why: "denied", harm: harm{func() { denied.begin(); m.disconnect() }, denied.end}},
		{name: "may only SELECT", why: "denied|may not", quiet: true, no: map[string]bool{audit: true}, free: map[string]bool{startingNode: true},
			harm: m.run(sickServer, "REVOKE ALL ON `chaos\\_%`.* FROM tocsin@'%'; GRANT SELECT ON `chaos\\_%`.* TO tocsin@'%'",
				strings.ReplaceAll(grantSQL, "{prefix}", m.opts.Layout.Prefix))},
		{name: "certificate expired", why: "certificate|expired", harm: harm{func() { certified(m.tls.late); m.disconnect() }, func() { certified(m.tls.good) }}},
		{name: "read-only", why: "read.only|not take writes|takes no writes", no: map[string]bool{audit: true}, harm: m.of(Step{Fault: ReadOnly, Server: sickServer})},
		{name: "too many connections", why: "[Tt]oo many connections", harm: harm{m.hog, m.unhog}},
		{name: "disk full", why: "full|hang|answer|time.?out|deadline|not committed", no: map[string]bool{audit: true}, slow: true,
			free: map[string]bool{startingNode: true}, harm: m.of(Step{Fault: FullDisk, Server: sickServer})},
		{name: "frozen", why: "time.?out|answer|deadline", harm: m.of(Step{Fault: FreezeServer, Server: sickServer})},
	}
	for i := range all {
		all[i].takes, all[i].where = m.ofServer, fmt.Sprintf(`\bdb%d\b`, sickServer)
	}
	return all
}

// root runs a statement as root on the sick server.
func (m *matrix) root(statement string) {
	m.t.Helper()
	m.orFail(m.databases[sickServer].exec(m.t.Context(), statement))
}

// moveTo leads all links of the sick server to another one: a restored or new machine at the old address.
func (m *matrix) moveTo(d *database) {
	m.t.Helper()
	m.orFail(each(m.linksTo(sickServer), func(l *link) error { return l.move(d.server.Port()) }))
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
	d := m.databases[sickServer]
	ids, err := readAll[int64](m.t.Context(), d.direct, d.String(), "SELECT id FROM information_schema.processlist WHERE user = 'tocsin'")
	m.orFail(err)
	for _, id := range ids {
		_, err := d.direct.Exec(fmt.Sprintf("KILL %d", id))
		var gone *mysql.MySQLError
		if !errors.As(err, &gone) || gone.Number != 1094 { // it has ended meanwhile
			m.orFail(err)
		}
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
	m.root("SET GLOBAL max_connections = 500")
}

// tlsFiles are the certificates of the sick server, signed by an authority of the test's own.
type tlsFiles struct {
	authority  string
	cert, key  string    // what the server reads: links
	good, late [2]string // certificate and key
}

// tlsOfHarness names the authority for the DSNs of this process.
const tlsOfHarness = "matrix"

func newTLSFiles(t *testing.T) tlsFiles {
	t.Helper()
	a := devtest.NewAuthority(t)
	dir := t.TempDir()
	f := tlsFiles{authority: a.File, cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem")}
	f.good[0], f.good[1] = a.Issue(t, "server")
	f.late[0], f.late[1] = a.IssueExpired(t, "expired")
	text, err := os.ReadFile(a.File)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	if err := mysql.RegisterTLSConfig(tlsOfHarness, &tls.Config{RootCAs: pool}); err != nil {
		t.Fatal(err)
	}
	f.use(t, f.good)
	return f
}

// use puts a certificate where the server reads it, at its start and when it is told to read it again.
func (f tlsFiles) use(t *testing.T, issued [2]string) {
	t.Helper()
	for i, path := range []string{f.cert, f.key} {
		_ = os.Remove(path) // the first time there is none
		if err := os.Symlink(issued[i], path); err != nil {
			t.Fatal(err)
		}
	}
}

func (f tlsFiles) args() []string {
	return []string{durable, "--ssl-cert=" + f.cert, "--ssl-key=" + f.key}
}

// durable is the server setting without which doctor always complains.
const durable = "--innodb-flush-log-at-trx-commit=1"

// stableFor is how long nothing may be written before a database counts as closed: longer than the 2 s after which a node reads the
// layout rows again. A doorbell that says so earlier tells of one connection only.
const stableFor = 2500 * time.Millisecond

// closing tells which databases take no write while a fault lasts.
type closing int

const (
	open    closing = iota
	noticed         // the sick database, once the running node has noticed
	foreign         // databases of the other server, from the start
)

// untouched is the content of databases that must take no write.
type untouched struct {
	of    *database
	names []string
	was   map[string]string // checksum by table
}

// closeAtOnce records the databases that the fault closes from its start.
func (m *matrix) closeAtOnce(f fault) *untouched {
	m.t.Helper()
	if f.closed != foreign {
		return nil
	}
	m.startOther()
	if f.another {
		m.makeForeign(m.t.Context())
	}
	u := &untouched{of: m.other}
	var err error
	u.names, err = readAll[string](m.t.Context(), m.other.direct, m.other.String(), "SELECT schema_name FROM information_schema.schemata WHERE schema_name LIKE 'chaos%'")
	m.orFail(err)
	u.was = m.contents(u)
	return u
}

// closeLater records the databases that the fault has closed by now: earlier
// statements may still end.
func (m *matrix) closeLater(f fault) *untouched {
	m.t.Helper()
	if f.closed != noticed {
		return nil
	}
	u := &untouched{of: m.databases[sickServer], names: []string{m.opts.Layout.Database(sickDatabase)}}
	m.until(noticeWithin, func() bool {
		u.was = m.contents(u)
		m.pause(stableFor)
		return len(changed(u.was, m.contents(u))) == 0
	})
	return u
}

// stayed expects unchanged content.
func (m *matrix) stayed(r *matrixRow, all ...*untouched) {
	m.t.Helper()
	for _, u := range all {
		if u == nil {
			continue
		}
		if tables := changed(u.was, m.contents(u)); len(tables) > 0 {
			r.cells[runningNode].failf("somebody wrote to %s", strings.Join(tables, ", "))
		}
	}
}

// contents returns the current checksums of all tables.
func (m *matrix) contents(u *untouched) map[string]string {
	m.t.Helper()
	all := map[string]string{}
	for _, name := range u.names {
		sums, err := u.of.sums(m.t.Context(), name)
		m.orFail(err)
		for table, sum := range sums {
			all[name+"."+table] = sum
		}
	}
	return all
}

// startOther starts the server that does not belong to the cluster.
func (m *matrix) startOther() {
	m.t.Helper()
	if m.other != nil {
		return
	}
	d, err := startDatabase(m.t.Context(), 2, m.opts.Dir, m.opts.Layout.Prefix, "", m.tls.args())
	m.orFail(err)
	m.other = d
}
