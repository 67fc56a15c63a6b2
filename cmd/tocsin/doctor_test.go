package main

import (
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/internal/devserver"
)

// examined is the JSON of `doctor`.
type examined struct {
	OK     bool `json:"ok"`
	Checks []struct {
		Level   string `json:"level"`
		Subject string `json:"subject"`
		Check   string `json:"check"`
		Is      string `json:"is"`
		Fix     string `json:"fix"`
	} `json:"checks"`
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

// ownServer starts a server for this test alone and gives its DSN: settings are
// what is tested, whatever server the other tests use.
func ownServer(t *testing.T, cfg devserver.MariaDBConfig) string {
	t.Helper()
	m, err := devserver.StartMariaDB(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Stop(); err != nil {
			t.Error(err)
		}
	})
	return m.DSN()
}

func TestDoctorOfAHealthyClusterSucceeds(t *testing.T) {
	t.Parallel()
	s := bareSite(t)
	s.write("tocsin.yaml", s.yaml(s.layout, ownServer(t, devserver.MariaDBConfig{Durable: true})))
	s.write("biz.yaml", bizYAML)
	s.applyDDL()
	s.run("doctor").says(t, "warn  biz types    stored: none", "1 to warn of, 0 failed")
	s.run("biz", "apply", "biz.yaml").ok(t)
	s.run("doctor").says(t,
		"ok    config       valid: layout 2x4 on db1",
		"ok    server db1   reachable: answers in ",
		"ok    server db1   durability: every commit reaches the disk",
		"ok    server db1   layout: as in the config; 8 task tables",
		"ok    biz types    stored: 2, of which 1 paused",
		"ok    etcd         health: ",
		"ok    etcd         identity: ",
		"19 ok, 0 to warn of, 0 failed")
	if got := decode[examined](t, s.run("doctor", "--json")); !got.OK || len(got.Checks) != 19 {
		t.Errorf("got %+v", got)
	}
}

func TestDoctorReadsTheSettingsOfTheServer(t *testing.T) {
	t.Parallel()
	s := bareSite(t)
	s.write("tocsin.yaml", s.yaml(s.layout, ownServer(t, devserver.MariaDBConfig{
		Args: []string{"--read-only", "--max-connections=12", "--max-allowed-packet=2M", "--table-definition-cache=400"},
	})))
	s.applyDDL() // root may, on a replica too
	r := s.run("doctor")
	if r.code != exitFailed {
		t.Errorf("exit code %d, want %d", r.code, exitFailed)
	}
	for _, want := range []string{
		"fail  server db1   read-only: read_only is on: it is a replica, or was demoted\n      -> point this server's dsn at the primary\n",
		"fail  server db1   durability: innodb_flush_log_at_trx_commit is 2: a crash of the host may lose committed tasks\n" +
			"      -> set innodb_flush_log_at_trx_commit = 1 in my.cnf\n",
		"ok    server db1   table_definition_cache: 400 for 8 task tables\n",
		"fail  server db1   max_connections: max_connections is 12, and 2 nodes and a sweeper may open 48, 16 each\n" +
			"      -> set max_connections = 1000 in my.cnf, or lower max_conns in the config\n",
		"warn  server db1   max_allowed_packet: max_allowed_packet is 2097152 bytes\n      -> set max_allowed_packet = 16M in my.cnf\n",
		", 3 failed\n",
	} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("stdout lacks %q:\n%s", want, r.stdout)
		}
	}
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

// The tables of a server that is away may be all right, so doctor does not advise to make them.
func TestDoctorOfAServerThatIsAwayOnlySaysThat(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.write("tocsin.yaml", s.yaml(s.layout, "toc@tcp(127.0.0.1:1)/"))
	r := s.run("doctor")
	for _, part := range []string{"start it, or correct the dsn of db1", "identity: not compared with the databases: no server can be reached", "stored: ", "mend the server first"} {
		if !strings.Contains(r.stdout, part) {
			t.Errorf("no %q in\n%s", part, r.stdout)
		}
	}
	if r.code != exitFailed || strings.Contains(r.stdout, "ddl apply") {
		t.Errorf("exit code %d; it advises ddl apply while no server can be reached:\n%s", r.code, r.stdout)
	}
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
			"server db1: reachable, biz types: stored", "start it, or correct the dsn of db1",
		},
		"etcd down": {
			good[:strings.Index(good, "etcd:")] + "etcd:\n  endpoints: [\"127.0.0.1:1\"]\n",
			"etcd: health", "start it, or correct etcd.endpoints",
		},
		"another layout": {
			strings.Replace(good, "tables: 4", "tables: 8", 1),
			"server db1: layout, biz types: stored", "run `tocsin ddl apply`, or correct layout",
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
		})
	}
}
