package main

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

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
	t.Run("may only read", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		name := s.user("SELECT ON `{prefix}\\_%`.*")
		got := s.doctor()
		if got.OK {
			t.Error("it is well")
		}
		escaped := strings.ReplaceAll(s.prefix+"_0", "_", `\_`)
		got.finding(t, "fail", "rights", name+"@% may not INSERT "+s.prefix+"_0.owner", "UPDATE "+s.prefix+"_0.owner",
			"GRANT INSERT, UPDATE, DELETE ON `"+escaped+"`.* TO '"+name+"'@'%'")
		got.finding(t, "warn", "commit", "not tried", "denied")
	})
	t.Run("lacks the owner table, as after a move", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		all := "SELECT, INSERT, UPDATE, DELETE ON {prefix}_1."
		grants := []string{"ALL ON {prefix}_0.*", "SELECT ON {prefix}_1.*", all + "doorbell", all + "biz_type"}
		for table := range s.layout.Tables {
			grants = append(grants, all+fmt.Sprintf("task_%04d", table))
		}
		name := s.user(grants...)
		s.doctor().finding(t, "fail", "rights", name+"@% may not INSERT "+s.prefix+"_1.owner; UPDATE "+s.prefix+"_1.owner",
			"GRANT INSERT, UPDATE ON `"+s.prefix+"_1`.owner TO '"+name+"'@'%'")
	})
	t.Run("may not delete", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		s.user("SELECT, INSERT, UPDATE ON `{prefix}\\_%`.*")
		got := s.doctor()
		got.finding(t, "warn", "rights", "may not DELETE "+s.prefix+"_0.doorbell")
		if got.failures() != "" {
			t.Errorf("failures %q", got.failures())
		}
	})
	t.Run("has what it needs", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		s.user("SELECT, INSERT, UPDATE, DELETE ON `{prefix}\\_%`.*")
		got := s.doctor()
		got.finding(t, "ok", "rights", "may do all")
		got.finding(t, "ok", "commit", "a write is committed in")
	})
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
	s.run("doctor", "--role", "root").refused(t, exitUsage, "unknown role \"root\": see `tocsin doctor --help`")
	both := decodeText[examined](t, s.run("doctor", "--json", "--role", "client-add,purge").stdout)
	both.finding(t, "ok", "commit", "a write is committed in")
	both.finding(t, "ok", "rights", "role client-add,purge does")
}

func TestDoctorNamesMissingTables(t *testing.T) {
	t.Parallel()
	for table, fix := range map[string]string{
		"task_0002": "run `tocsin ddl apply`", "owner": "run `tocsin ddl apply`", "doorbell": "run `tocsin ddl apply`",
		"biz_type": "run `tocsin ddl apply`, then `tocsin biz apply FILE`",
	} {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.exec("DROP TABLE {prefix}_1." + table)
			got := s.doctor()
			got.finding(t, "fail", "tables", s.prefix+"_1."+table+" missing", fix)
			s.applyDDL()
			s.run("biz", "apply", "biz.yaml").ok(t)
			if got := s.doctor(); got.failures() != "" {
				t.Errorf("after the fix: failures %q", got.failures())
			}
		})
	}
}

func TestDoctorLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.exec("INSERT INTO {prefix}_0.doorbell (table_no, job_id, biz_type, action_time) VALUES (0, 1, 1, NOW())")
	s.doctor()
	s.exec("INSERT INTO {prefix}_0.doorbell (table_no, job_id, biz_type, action_time) VALUES (0, 2, 1, NOW())")
	var ids string
	if err := s.db.QueryRow("SELECT GROUP_CONCAT(id ORDER BY id) FROM " + s.prefix + "_0.doorbell").Scan(&ids); err != nil || ids != "1,2" {
		t.Errorf("doorbell ids %s, %v", ids, err)
	}
	if n := s.rows(); n != 0 {
		t.Errorf("%d tasks", n)
	}
	for db := range s.layout.Databases {
		var owners int
		if err := s.db.QueryRow("SELECT COUNT(*) FROM " + s.layout.Database(db) + ".owner").Scan(&owners); err != nil || owners != 0 {
			t.Errorf("%d owner rows, %v", owners, err)
		}
	}
}

// hangingSite is a site on a server of its own that can be made to hang.
func hangingSite(t *testing.T, args ...string) (*site, *sql.DB) {
	t.Helper()
	s := bareSite(t)
	dsn := ownServer(t, devserver.MariaDBConfig{Durable: true, Args: args})
	s.write("tocsin.yaml", s.yaml(s.layout, dsn))
	s.applyDDL()
	s.write("biz.yaml", bizYAML)
	s.run("biz", "apply", "biz.yaml").ok(t)
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return s, db
}

func TestDoctorSeesThatCommitsHang(t *testing.T) {
	t.Parallel()
	t.Run("they wait for a replica", func(t *testing.T) {
		t.Parallel()
		args, name := []string{"--rpl-semi-sync-master-timeout=3600000"}, "rpl_semi_sync_master_enabled"
		if devtest.IsMySQL(t) {
			args, name = []string{"--plugin-load-add=semisync_source.so", "--rpl-semi-sync-source-timeout=3600000"}, "rpl_semi_sync_source_enabled"
		}
		s, db := hangingSite(t, append(args, "--log-bin=bin", "--server-id=1")...)
		if _, err := db.Exec("SET GLOBAL " + name + " = 1"); err != nil {
			t.Fatal(err)
		}
		s.doctor().finding(t, "fail", "commit", "a write is not committed after 10", "semi-synchronous replica")
		if _, err := db.Exec("SET GLOBAL " + name + " = 0"); err != nil {
			t.Fatal(err)
		}
		s.doctor().finding(t, "ok", "commit", "committed in")
	})
	t.Run("a read lock is held", func(t *testing.T) {
		t.Parallel()
		s, db := hangingSite(t)
		holder, err := db.Conn(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		defer holder.Close()
		if _, err := holder.ExecContext(t.Context(), "FLUSH TABLES WITH READ LOCK"); err != nil {
			t.Fatal(err)
		}
		s.doctor().finding(t, "fail", "commit", "waits for a lock in vain", "FLUSH TABLES WITH READ LOCK")
		if _, err := holder.ExecContext(t.Context(), "UNLOCK TABLES"); err != nil {
			t.Fatal(err)
		}
		s.doctor().finding(t, "ok", "commit", "committed in")
	})
}

func TestDoctorMissesASecretInItsEnvironment(t *testing.T) {
	t.Parallel()
	s, _ := callbackSite(t)
	const variable = "TOCSIN_TEST_SECRET_OF_DOCTOR"
	s.write("signed.yaml", strings.Replace(s.text("biz.yaml"), "      allow:", "      secrets: ["+variable+"]\n      allow:", 1))
	s.run("biz", "apply", "signed.yaml").ok(t)
	s.doctor().finding(t, "fail", "secrets", "biz type coupon.remind", variable, "where doctor runs", "`tocsin serve` and `tocsin sweep`")
	with := command(t.Context(), s.dir, "doctor", "--json")
	with.Env = append(with.Env, variable+"=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	out, _ := with.Output()
	decodeText[examined](t, string(out)).finding(t, "ok", "secrets", "1 callbacks are set")
}
