package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/operator"
)

// examined is the JSON of `doctor`.
type examined struct {
	OK     bool      `json:"ok"`
	Checks []checked `json:"checks"`
}

type checked struct {
	Level   string `json:"level"`
	Subject string `json:"subject"`
	Check   string `json:"check"`
	Is      string `json:"is"`
	Fix     string `json:"fix"`
}

// failures are "subject: check" of what failed, but for durability, which the
// servers of tests trade for speed.
func (e examined) failures() string {
	var all []string
	for _, c := range e.Checks {
		if c.Level == "fail" && c.Check != "durability" {
			all = append(all, c.Subject+": "+c.Check)
		}
	}
	return strings.Join(all, ", ")
}

// A healthy cluster, then one whose commits wait for a lock, and at last one whose server takes no writes.
func TestDoctorOfAHealthyClusterSucceeds(t *testing.T) {
	t.Parallel()
	s, dsn := bareSite(t), startServer(t, devserver.MariaDBConfig{Durable: true}).DSN()
	s.write("tocsin.yaml", s.yaml(s.layout, dsn))
	s.write("biz.yaml", bizYAML)
	s.applyDDL()
	s.run("doctor").says(t, "warn  biz types    stored: none", "1 to warn of, 0 failed")
	s.run("biz", "apply", "biz.yaml").ok(t)
	s.run("doctor").says(t,
		"ok    config       valid: layout 2x4 on db1; grace of sweeps 1m0s",
		"ok    server db1   reachable: answers in ",
		"ok    server db1   durability: every commit reaches the disk",
		"ok    server db1   layout: as in the config; 8 task tables",
		"ok    server db1   replicas: none is connected, and nothing tells that there was one",
		"ok    tables       schema: version 3, as this program's",
		"ok    biz types    stored: 2, of which 1 paused",
		"ok    schedules    paused: none",
		"ok    etcd         health: ",
		"ok    etcd         identity: ",
		"ok    tables       copies: no database is held",
		"ok    tables       structure: all are as they should be",
		" ok, 0 to warn of, 0 failed")
	if got := decode[examined](t, s.run("doctor", "--json")); !got.OK {
		t.Errorf("got %+v", got)
	}
	one := s.text("tocsin.yaml")
	s.write("tocsin.yaml", strings.Replace(one, `endpoints: [`, `endpoints: ["127.0.0.1:1", `, 1))
	s.run("doctor").says(t, "warn  etcd         endpoints: etcd 127.0.0.1:1: not reachable", "start it, or correct etcd.endpoints", " 1 to warn of, 0 failed")
	s.write("tocsin.yaml", one)
	holder, err := openDB(t, dsn).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	on := func(statement string) {
		t.Helper()
		if _, err := holder.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	on("FLUSH TABLES WITH READ LOCK")
	s.doctor().finding(t, "fail", "commit", "waits for a lock in vain", "FLUSH TABLES WITH READ LOCK")
	on("UNLOCK TABLES")
	s.doctor().finding(t, "ok", "commit", "committed in")
	on("SET GLOBAL read_only = 1") // root may write
	says(t, s.why(s.adding("order.close", 1, "0s")), operator.StateReadOnly, "server db1 is read-only", "group orders has no node")
}

// A value of the server that stops writes, or those of others, is one finding, with what to change.
func TestDoctorNamesTheVariableThatIsInTheWay(t *testing.T) {
	t.Parallel()
	s, dsn := bareSite(t), startServer(t, devserver.MariaDBConfig{Durable: true, Args: []string{"--log-bin=bin", "--server-id=2", "--sync-binlog=1"}}).DSN()
	s.write("tocsin.yaml", s.yaml(s.layout, strings.Replace(dsn, "root@", "shop@", 1)))
	db, readOnly := openDB(t, dsn), "transaction_read_only"
	if !devtest.IsMySQL(t) {
		readOnly = "tx_read_only"
	}
	on := func(statement string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	on("CREATE USER shop@'%'")
	on("GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON *.* TO shop@'%'")
	s.applyAll()
	for _, c := range []struct{ set, back, level, check, is, fix string }{
		{"SET GLOBAL " + readOnly + " = 1", "SET GLOBAL " + readOnly + " = 0", "warn", "read-only", "its default transaction_read_only is on", "turn transaction_read_only (in MariaDB tx_read_only) off"},
		{"SET GLOBAL binlog_format = 'STATEMENT'", "SET GLOBAL binlog_format = 'ROW'", "fail", "read-only", "binlog_format is STATEMENT", "set binlog_format = ROW"},
		{"SET GLOBAL read_only = 1", "SET GLOBAL read_only = 0", "fail", "read-only", "read_only is on", "at the primary"},
		{"SET GLOBAL init_connect = 'SET insert_id = 7'", "SET GLOBAL init_connect = ''", "fail", "reachable", "sets insert_id", "remove that from the server's init_connect"},
		{"SET GLOBAL completion_type = 1", "SET GLOBAL completion_type = 0", "", "", "", ""},
	} {
		on(c.set)
		got, bad := s.doctor(), 0
		for _, check := range got.Checks {
			if check.Level != "ok" && check.Subject == "server db1" {
				bad++
			}
		}
		if c.check != "" {
			got.finding(t, c.level, c.check, c.is, c.fix)
			bad--
		}
		if bad != 0 {
			t.Errorf("%s: %d other findings: %+v", c.set, bad, got.Checks)
		}
		on(c.back)
	}
}

func TestDoctorSeesThatCommitsWaitForAReplica(t *testing.T) {
	t.Parallel()
	args, name := []string{"--rpl-semi-sync-master-timeout=3600000"}, "rpl_semi_sync_master_enabled"
	if devtest.IsMySQL(t) {
		args, name = []string{"--plugin-load-add=semisync_source.so", "--rpl-semi-sync-source-timeout=3600000"}, "rpl_semi_sync_source_enabled"
	}
	s, dsn := bareSite(t), startServer(t, devserver.MariaDBConfig{Durable: true, Args: append(args, "--log-bin=bin", "--server-id=1")}).DSN()
	s.write("tocsin.yaml", s.yaml(s.layout, dsn))
	s.applyAll()
	db := openDB(t, dsn)
	if _, err := db.Exec("SET GLOBAL " + name + " = 1"); err != nil {
		t.Fatal(err)
	}
	s.doctor().finding(t, "fail", "commit", "a write is not committed after 10", "semi-synchronous replica")
	if _, err := db.Exec("SET GLOBAL " + name + " = 0"); err != nil {
		t.Fatal(err)
	}
	s.doctor().finding(t, "ok", "commit", "committed in")
}

func TestDoctorComparesTheNodesWithTheServersConnections(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	if r := s.run("doctor", "--nodes", "200"); !strings.Contains(r.stdout, "200 nodes and a sweeper may open 3216, 16 each") {
		t.Errorf("exit code %d:\n%s", r.code, r.stdout)
	}
	for range 3 {
		s.node("orders", "host", 1)
	}
	if r := s.run("doctor"); !strings.Contains(r.stdout, "3 nodes and a sweeper open 64 at most") {
		t.Errorf("exit code %d:\n%s", r.code, r.stdout)
	}
	s.run("doctor", "--nodes", "-1").refused(t, exitUsage, "--nodes -1")
}

func TestDoctorNamesWhatFailsAndWhatToChange(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	good := s.yaml(s.layout, s.dsn())
	for name, c := range map[string]struct {
		yaml     string
		failures string
		fix      string
	}{
		"a key unknown": {
			strings.Replace(good, "etcd:", "ectd:", 1),
			"config: valid", "correct the config file",
		},
		"server down": {
			s.yaml(s.layout, "toc:hunter2@tcp(127.0.0.1:1)/"),
			"server db1: reachable", "start it, or correct the dsn of db1",
		},
		"etcd down": {
			good[:strings.Index(good, "etcd:")] + "etcd:\n  endpoints: [\"127.0.0.1:1\"]\n",
			"etcd: health", "start it, or correct etcd.endpoints",
		},
		"a file of etcd's TLS that is not there": {
			good[:strings.Index(good, "etcd:")] + "etcd:\n  endpoints: [\"127.0.0.1:1\"]\n  tls: {ca: /no/such.pem}\n",
			"etcd: health", "correct etcd in the config",
		},
		"another layout": {
			strings.Replace(good, "tables: 4", "tables: 8", 1),
			"server db1: layout", "do what it says, or correct layout",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s.write("tocsin.yaml", c.yaml)
			r := s.run("doctor", "--json")
			got := decodeText[examined](t, r.stdout)
			if r.code != exitFailed || r.stderr != "" || got.OK || got.failures() != c.failures {
				t.Errorf("exit code %d, stderr %q, failures %q, want %q", r.code, r.stderr, got.failures(), c.failures)
			}
			if !strings.Contains(r.stdout, c.fix) || strings.Contains(r.stdout, "hunter2") {
				t.Errorf("want %q and no password:\n%s", c.fix, r.stdout)
			}
			if strings.Contains(r.stdout, "a node would not start") { // the cause has its finding
				t.Errorf("one cause is told twice:\n%s", r.stdout)
			}
			if name != "server down" {
				return
			}
			if got.finding(t, "ok", "identity", "not compared with the databases"); strings.Contains(r.stdout, "ddl apply") { // its tables may be all right
				t.Errorf("it advises ddl apply while no server can be reached:\n%s", r.stdout)
			}
		})
	}
}

// A pair without semi-synchronous replication, then with it, then without its primary, then promoted.
func TestDoctorOfAPairSaysWhatAFailOverNeeds(t *testing.T) {
	t.Parallel()
	pair := devtest.NewPair(t, false)
	s := bareSite(t)
	s.write("tocsin.yaml", s.yaml(s.layout, pair.DSN()))
	s.applyAll()
	says := func(what, level, check string, parts ...string) {
		t.Helper()
		s.waitFor(what, func() bool {
			return slices.ContainsFunc(s.doctor().Checks, func(c checked) bool {
				text := c.Is + " -> " + c.Fix
				return c.Check == check && c.Level == level && !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) })
			})
		})
	}
	says("commits wait for none", "warn", "replicas", "1 connected, and commits wait for none", "docs/operations.md#set-replication-up")
	s.doctor().finding(t, "warn", "exemption", "may write to a read-only server")
	if !devtest.IsMySQL(t) {
		pair.Exec(1, "SET GLOBAL rpl_semi_sync_slave_enabled = 1")
		pair.Exec(1, "STOP SLAVE IO_THREAD")
		pair.Exec(1, "START SLAVE IO_THREAD")
		pair.Exec(0, "SET GLOBAL rpl_semi_sync_master_timeout = 100")
		pair.Exec(0, "SET GLOBAL rpl_semi_sync_master_enabled = 1")
		says("commits wait", "ok", "replicas", "1 connected, and commits wait for one")
	}
	pair.Kill(0)
	says("fail over", "fail", "reachable", pair.Address(1)+": is read-only: read_only is on; to fail over see docs/operations.md#fail-over", "start "+pair.Address(0)+", or fail over to "+pair.Address(1)+" as docs/operations.md#fail-over tells: first make sure that "+pair.Address(0)+" stays off")
	pair.Promote(1)
	says("nothing to fail over to", "warn", "replicas", "none is connected, and the config names 2 addresses: there is nothing to fail over to")
	s.write("tocsin.yaml", s.yaml(s.layout, "root@tcp("+pair.Address(1)+")/"))
	says("it was a replica", "warn", "replicas", "none is connected, and this server was a replica itself")
}

func TestDoctorListsPausedSchedules(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	text := "schedules:\n"
	for n := range 7 {
		text += fmt.Sprintf("  - {name: nightly-%d, biz_type: order.close, cron: \"0 4 * * *\"}\n", n)
	}
	s.write("schedules.yaml", text)
	s.run("schedule", "apply", "schedules.yaml").ok(t)
	for database := range s.layout.Databases {
		s.exec(fmt.Sprintf("UPDATE {prefix}_%d.schedule SET state = 'paused'", database))
	}
	s.doctor().finding(t, "warn", "paused", "by pause_after, as their runs failed: nightly-0, nightly-1, nightly-2, nightly-3, nightly-4 and 2 more", "`tocsin schedule activate NAME`")
	s.user("SELECT, INSERT, UPDATE, DELETE ON `{prefix}\\_0`.*", "SELECT, INSERT, UPDATE, DELETE ON {prefix}_1.biz_type", "SELECT ON {prefix}_1.layout")
	s.doctor().finding(t, "ok", "paused", "could not look everywhere: ", "denied")
}

// finding expects a check of a level whose text and fix contain the parts.
func (e examined) finding(t *testing.T, level, check string, parts ...string) {
	t.Helper()
	for _, c := range e.Checks {
		if c.Check != check || c.Level != level {
			continue
		}
		for _, part := range parts {
			if !strings.Contains(c.Is+" -> "+c.Fix, part) {
				t.Errorf("%s lacks %q: %s -> %s", check, part, c.Is, c.Fix)
			}
		}
		return
	}
	t.Errorf("no %s of %s: %+v", level, check, e.Checks)
}

// doctor runs the command; it may find failures.
func (s *site) doctor() examined {
	s.t.Helper()
	r := s.run("doctor", "--json")
	if r.stderr != "" {
		s.t.Errorf("stderr %q", r.stderr)
	}
	return decodeText[examined](s.t, r.stdout)
}

// user makes the site's config use a user with some rights, and returns its name.
func (s *site) user(grants ...string) string {
	s.t.Helper()
	name := s.prefix + "u"
	s.exec("DROP USER IF EXISTS '" + name + "'@'%'")
	s.exec("CREATE USER '" + name + "'@'%'")
	s.t.Cleanup(func() { _, _ = s.db.Exec("DROP USER '" + name + "'@'%'") })
	for _, grant := range grants {
		s.exec("GRANT " + grant + " TO '" + name + "'@'%'")
	}
	s.write("tocsin.yaml", s.yaml(s.layout, strings.Replace(s.dsn(), "root@", name+"@", 1)))
	return name
}

func TestDoctorNamesTheRightsThatTheUserLacks(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	name := s.user("SELECT ON `{prefix}\\_%`.*")
	got, escaped := s.doctor(), strings.ReplaceAll(s.prefix+"_0", "_", `\_`)
	got.finding(t, "fail", "rights", name+"@% may not INSERT "+s.prefix+"_0.owner", "UPDATE "+s.prefix+"_0.owner",
		"GRANT INSERT, UPDATE, DELETE ON `"+escaped+"`.* TO '"+name+"'@'%'")
	got.finding(t, "warn", "commit", "not tried", "denied")

	all := "SELECT, INSERT, UPDATE, DELETE ON {prefix}_1."
	grants := []string{"ALL ON {prefix}_0.*", "SELECT ON {prefix}_1.*", all + "doorbell", all + "biz_type"}
	for table := range s.layout.Tables {
		grants = append(grants, all+fmt.Sprintf("task_%04d", table))
	}
	s.user(grants...) // lacks the owner table, as after a move
	s.doctor().finding(t, "fail", "rights", name+"@% may not INSERT "+s.prefix+"_1.owner; UPDATE "+s.prefix+"_1.owner",
		"GRANT INSERT, UPDATE ON `"+s.prefix+"_1`.owner TO '"+name+"'@'%'")

	s.user("SELECT, INSERT, UPDATE ON `{prefix}\\_%`.*")
	got = s.doctor()
	if got.finding(t, "warn", "rights", "may not DELETE "+s.prefix+"_0.doorbell"); got.failures() != "" {
		t.Errorf("failures %q", got.failures())
	}
}

func TestDoctorJudgesAUserForItsRoleAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for i, role := range ddl.Roles() {
		u := &roleUser{site: s, name: fmt.Sprintf("%sr%d", s.prefix, i)}
		u.args = []string{"ddl", "grants", "--json", "--role", role.Name, "--user", u.name}
		u.grant(s.db, "db1", "tocsin.yaml")
		s.write("role.yaml", u.asUser(s.text("tocsin.yaml")))
		doctor := func() examined {
			return decodeText[examined](t, s.run("doctor", "--json", "--config", "role.yaml", "--role", role.Name).stdout)
		}
		got := doctor()
		got.finding(t, "ok", "rights", "role "+role.Name+" does")
		got.finding(t, "ok", "commit", "not tried", "the role may not")
		if got.failures() != "" {
			t.Errorf("role %s: failures %q: %+v", role.Name, got.failures(), got.Checks)
		}
		s.exec("REVOKE ALL PRIVILEGES, GRANT OPTION FROM '" + u.name + "'@'%'")
		s.exec("GRANT SELECT ON {prefix}_0.layout TO '" + u.name + "'@'%'") // it is the config's
		doctor().finding(t, "fail", "rights", u.name+"@% may not ", "tocsin ddl grants --role "+role.Name+" --user "+u.name+"`")
	}
	s.run("doctor", "--role", "root").refused(t, exitUsage, `unknown role "root": there are `)
	both := decodeText[examined](t, s.run("doctor", "--json", "--role", "client-add,purge").stdout)
	both.finding(t, "ok", "commit", "a write is committed in")
	both.finding(t, "ok", "rights", "role client-add,purge does")
}

// Missing tables are named, and beside that doctor leaves no trace of its own.
func TestDoctorNamesMissingTablesAndLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, c := range []struct{ table, fix string }{
		{"task_0002", "run `tocsin ddl apply`"}, {"biz_type", "run `tocsin ddl apply`, then `tocsin biz apply FILE`"},
	} {
		s.exec("DROP TABLE {prefix}_1." + c.table)
		s.doctor().finding(t, "fail", "tables", s.prefix+"_1."+c.table+" missing", c.fix)
		s.applyAll()
	}
	for id := range 2 {
		s.exec("INSERT INTO {prefix}_0.doorbell (table_no, job_id, biz_type, action_time) VALUES (0, ?, 1, NOW())", id+1)
		if got := s.doctor(); got.failures() != "" {
			t.Errorf("after the fix: failures %q", got.failures())
		}
	}
	if s.rows() != 0 || s.answered("SELECT 1 FROM {prefix}_0.doorbell WHERE id > 2") != 0 {
		t.Error("it has left tasks, or taken an id of a doorbell")
	}
	for db := range s.layout.Databases {
		if n := s.answered("SELECT 1 FROM " + s.layout.Database(db) + ".owner"); n != 0 {
			t.Errorf("%d owner rows", n)
		}
	}
}

func TestDoctorMissesASecretInItsEnvironment(t *testing.T) {
	t.Parallel()
	s, _ := callbackSite(t)
	const variable = "TOCSIN_TEST_SECRET_OF_DOCTOR"
	s.write("signed.yaml", strings.Replace(s.text("biz.yaml"), "      allow:", "      secrets: ["+variable+"]\n      allow:", 1))
	s.run("biz", "apply", "signed.yaml").ok(t)
	s.doctor().finding(t, "fail", "secrets", "biz type coupon.remind", variable, "where doctor runs", "`tocsin serve` and `tocsin sweep`")
	with := callWith(t, s.dir, "", []string{variable + "=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}, "doctor", "--json")
	decodeText[examined](t, with.stdout).finding(t, "ok", "secrets", "1 callbacks are set")
}

// notSampled are the commands of which the next test has no sample, by the reason. A new command is to be judged here or there.
var notSampled = map[string]string{
	"operator.Examine asks what they show":     "biz list, biz show, biz stats, cluster nodes, cluster tables, schedule list, schedule show, sink test, relay, top",
	"they tell of single tasks, runs and rows": "acts, outbox list, runs, schedule next, schedule runs, task dead, task get, task list, task runs, task why",
	"they change something, and refuse what is wrong with it": "biz apply, biz delete, biz pause, biz resume, cluster adopt, cluster drain, ddl apply, ddl finish, ddl grace, " +
		"ddl ownership, outbox apply, outbox drop, outbox forget, outbox retry, purge, schedule activate, schedule apply, schedule backfill, schedule deactivate, " +
		"schedule delete, schedule run-now, sweep, task add, task bury, task cancel, task extend, task redrive, task reschedule, task reserve, task settle",
	"they are about two clusters":         "ddl move activate, ddl move check, ddl move compare, ddl move retire, ddl move undo",
	"they ask nobody, or what they start": "completion bash, completion fish, completion powershell, completion zsh, ddl grants, ddl plan, dev, outbox plan, token new, version",
	"they measure":                        "bench drain, bench idle, bench insert, bench lateness",
	"it is doctor":                        "doctor",
}

// byAdministrator is the way where a table differs: ddl apply makes tables, and changes none that is there.
const byAdministrator = "ALTER it to what `tocsin ddl plan` prints"

// spoilt are clusters with a fault that another command names.
var spoilt = map[string]struct {
	spoil   func(*site)
	command string
	says    string // both do
	check   string // the one that names it
	fix     string // in its advice
}{
	"an older copy": {func(s *site) {
		s.exec("UPDATE {prefix}_0.layout SET identity = 'id-of-both', mark = UNIX_TIMESTAMP() * 1000 - 86400000")
		s.exec("UPDATE {prefix}_1.layout SET identity = 'id-of-both', mark = UNIX_TIMESTAMP() * 1000")
		s.exec("REPLACE INTO {prefix}_1.mark (database_no, identity, mark, gmt_modified) VALUES (0, 'id-of-both', UNIX_TIMESTAMP() * 1000, UTC_TIMESTAMP(3))")
	}, "ddl restore-check", "{prefix}_0 on db1", "copies layout", ""},
	"a database that is held": {func(s *site) { s.exec("UPDATE {prefix}_1.layout SET state = 'held'") }, "ddl restore-check", "{prefix}_1 on db1", "copies layout", ""},
	"an index that is gone":   {func(s *site) { s.exec("ALTER TABLE {prefix}_1.task_0002 DROP INDEX uk_biz") }, "ddl verify", "{prefix}_1.task_0002", "structure", byAdministrator},
	"a column that differs": {func(s *site) {
		s.exec("ALTER TABLE {prefix}_0.task_0001 MODIFY last_error VARCHAR(10) NOT NULL DEFAULT ''")
	}, "ddl verify", "{prefix}_0.task_0001", "structure", byAdministrator},
	"a table of another engine":   {func(s *site) { s.exec("ALTER TABLE {prefix}_0.task_0001 ENGINE = MyISAM") }, "ddl verify", "{prefix}_0.task_0001", "structure", byAdministrator},
	"a table that no user writes": {func(s *site) { s.exec("DROP TABLE {prefix}_1.act") }, "ddl verify", "{prefix}_1.act", "structure tables", "`tocsin ddl apply` makes"},
	"an outbox that is none": {func(s *site) {
		s.write("tocsin.yaml", s.text("tocsin.yaml")+"outboxes:\n  - {name: shop, dsn: \""+s.dsn()+"\", table: "+s.prefix+"_0.none}\n")
	}, "outbox verify", "{prefix}_0.none", "shop", ""},
	"a file that serve needs": {func(s *site) {
		s.write("tocsin.yaml", s.text("tocsin.yaml")+"node:\n  status: {token_file: /no/such.token}\n")
	}, "serve", "/no/such.token", "serve", ""},
	"a certificate of the API": {func(s *site) {
		s.write("tocsin.yaml", s.text("tocsin.yaml")+"node: {listen: off, api: {listen: \"127.0.0.1:0\", tls: {cert: /no/such.pem, key: /no/such.key}}}\n")
	}, "serve", "/no/such.pem", "serve", ""},
	"the tokens of the API": {func(s *site) {
		s.write("tocsin.yaml", s.text("tocsin.yaml")+"node: {listen: off, api: {listen: \"127.0.0.1:0\", tokens_file: /no/such.tokens}}\n")
	}, "serve", "/no/such.tokens", "serve", ""},
	"an address of another host": {func(s *site) {
		s.write("tocsin.yaml", s.text("tocsin.yaml")+"node: {listen: \"192.0.2.1:8480\"}\n")
	}, "serve", "cannot assign requested address", "serve", ""},
	"an address of another host for the API": {func(s *site) {
		s.write("tocsin.yaml", s.text("tocsin.yaml")+"node: {listen: off, api: {tokens_file: "+s.dir+"/t.yaml, listen: \"192.0.2.1:8481\"}}\n")
		s.write("t.yaml", "tokens: []\n")
	}, "serve", "cannot assign requested address", "serve", ""},
	"an etcd that is away": {func(s *site) {
		s.write("tocsin.yaml", regexp.MustCompile(`endpoints: .*`).ReplaceAllString(s.text("tocsin.yaml"), `endpoints: ["127.0.0.1:1"]`))
	}, "cluster plan", "etcd 127.0.0.1:1: not reachable", "health", ""},
	"a table that is gone": {func(s *site) { s.exec("DROP TABLE {prefix}_1.task_0002") }, "audit", "{prefix}_1.task_0002", "tables", "run `tocsin ddl apply`"},
}

// What another command names, doctor names too. Nothing has looked at these tables since they came to be as they are.
func TestDoctorKnowsWhatOtherCommandsKnow(t *testing.T) {
	t.Parallel()
	judged := map[string]bool{}
	for _, c := range spoilt {
		judged[c.command] = true
	}
	for _, commands := range notSampled {
		for command := range strings.SplitSeq(commands, ", ") {
			judged[command] = true
		}
	}
	if all, judged := slices.Sorted(maps.Keys(everyCommand)), slices.Sorted(maps.Keys(judged)); !slices.Equal(all, judged) {
		t.Errorf("the commands are %q, and judged are %q", all, judged)
	}
	for name, c := range spoilt {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			c.spoil(s)
			says := strings.ReplaceAll(c.says, "{prefix}", s.prefix)
			if r := s.run(strings.Fields(c.command)...); r.code != exitFailed || !strings.Contains(r.stdout+r.stderr, says) {
				t.Errorf("%s: exit code %d, want %q: %s%s", c.command, r.code, says, r.stdout, r.stderr)
			}
			var named []checked
			for _, got := range s.doctor().Checks {
				if got.Level != "ok" && strings.Contains(got.Is, says) {
					named = append(named, got)
				}
			}
			if len(named) != 1 || !slices.Contains(strings.Fields(c.check), named[0].Check) {
				t.Errorf("doctor names %q in %+v, want one finding of %s", says, named, c.check)
			} else if fix := named[0].Fix; !strings.Contains(fix, c.fix) || c.fix == byAdministrator && strings.Contains(fix, "ddl apply`") {
				t.Errorf("doctor advises %q, want %q", fix, c.fix)
			}
		})
	}
}
