package main

import (
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// played is what a role must be able to do, and what not.
type played struct {
	site      func(*testing.T) *site // before the user comes
	act       func(*roleUser) error  // a user's work; its error holds "denied" if the server refused a part
	forbidden string                 // a statement that the server refuses; {db} is database 0
}

// plays has every role of `tocsin ddl grants`.
func plays() map[string]played {
	return map[string]played{
		"ddl":           {emptySite, (*roleUser).actDDL, "DELETE FROM {db}.task_0000"},
		"move":          {newSite, (*roleUser).actMove, "UPDATE {db}.task_0000 SET status = 2"},
		"restore":       {newSite, (*roleUser).actRestore, "DELETE FROM {db}.task_0000"},
		"biz":           {newSite, (*roleUser).actBiz, "SELECT COUNT(*) FROM {db}.task_0000"},
		"biz-delete":    {newSite, (*roleUser).actBizDelete, "UPDATE {db}.biz_type SET policy = '{}'"},
		"node":          {remindingSite, (*roleUser).actNode, "DELETE FROM {db}.task_0000"},
		"sweep":         {remindingSite, (*roleUser).actSweep, "DELETE FROM {db}.task_0000"},
		"purge":         {newSite, (*roleUser).actPurge, "UPDATE {db}.task_0000 SET status = 2"},
		"audit":         {newSite, (*roleUser).actAudit, "DELETE FROM {db}.task_0000"},
		"client-add":    {newSite, (*roleUser).actAdd, "UPDATE {db}.task_0000 SET status = 3"},
		"client-cancel": {newSite, (*roleUser).actCancel, "DELETE FROM {db}.task_0000"},
		"relay":         {newSite, (*roleUser).actRelay, "DELETE FROM {db}.task_0000"},
		"schedule":      {newSite, (*roleUser).actSchedule, "DELETE FROM {db}.task_0000"},
		"read-only":     {newSite, (*roleUser).actRead, "INSERT INTO {db}.doorbell (table_no, job_id, biz_type, action_time) VALUES (0, 1, 1, NOW())"},
	}
}

func emptySite(t *testing.T) *site {
	s := bareSite(t)
	for db := range s.layout.Databases { // for GRANTs on tables that `ddl apply` makes later
		s.exec("CREATE DATABASE IF NOT EXISTS " + s.layout.Database(db) + " DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
	}
	return s
}

func remindingSite(t *testing.T) *site {
	s, _ := callbackSite(t)
	s.write("biz.yaml", s.text("biz.yaml")+"    history: true\n")
	s.run("biz", "apply", "biz.yaml").ok(t)
	return s
}

// roleUser is a user that has what `tocsin ddl grants` prints for a role. tocsin.yaml names it.
type roleUser struct {
	*site
	name   string
	args   []string                    // of `tocsin ddl grants`
	keep   func(right, on string) bool // nil: every right is granted
	lacks  bool                        // a right is missing: the act is over when the server has refused something
	byRows bool                        // what is missing shows without etcd only
	atEnd  bool                        // what is missing shows when the node leaves
}

// newRoleUser makes the user, with its grants on the site's server.
func newRoleUser(s *site, role string, keep func(right, on string) bool, more ...string) *roleUser {
	s.t.Helper()
	u := &roleUser{site: s, name: s.prefix + "r", keep: keep, lacks: keep != nil}
	u.args = append([]string{"ddl", "grants", "--json", "--role", role, "--user", u.name}, more...)
	u.grant(s.db, "db1", "tocsin.yaml")
	s.write("tocsin.yaml", u.asUser(s.text("tocsin.yaml")))
	return u
}

// asUser puts the user's name into a config.
func (u *roleUser) asUser(text string) string { return strings.ReplaceAll(text, "root@", u.name+"@") }

var grantForm = regexp.MustCompile("^GRANT (.+) ON (.+) TO `.+`@`%`;$")

// grant runs what `tocsin ddl grants` prints for a server.
func (u *roleUser) grant(db *sql.DB, server, config string) {
	u.t.Helper()
	if _, err := db.Exec("CREATE USER IF NOT EXISTS '" + u.name + "'@'%'"); err != nil {
		u.t.Fatal(err)
	}
	u.t.Cleanup(func() { _, _ = db.Exec("DROP USER IF EXISTS '" + u.name + "'@'%'") })
	plans := decode[[]plannedServer](u.t, u.run(append(u.args, "--config", config)...))
	i := slices.IndexFunc(plans, func(p plannedServer) bool { return p.Server == server })
	for line := range strings.Lines(plans[i].SQL) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "--") {
			continue
		}
		m := grantForm.FindStringSubmatch(line)
		if m == nil {
			u.t.Fatalf("not a GRANT: %s", line)
		}
		rights := strings.Split(m[1], ", ")
		if u.keep != nil {
			rights = slices.DeleteFunc(rights, func(right string) bool { return !u.keep(right, m[2]) })
		}
		if len(rights) == 0 {
			continue
		}
		if _, err := db.Exec(fmt.Sprintf("GRANT %s ON %s TO '%s'@'%%'", strings.Join(rights, ", "), m[2], u.name)); err != nil && u.keep == nil { // without CREATE, a table must be there
			u.t.Fatalf("%s: %v", line, err)
		}
	}
}

// pool opens a pool of the user, on root's DSN of a server.
func (u *roleUser) pool(dsn string) *sql.DB {
	u.t.Helper()
	db, err := sql.Open("mysql", u.asUser(dsn))
	if err != nil {
		u.t.Fatal(err)
	}
	u.t.Cleanup(func() { _ = db.Close() })
	return db
}

// runAll runs commands until one fails, and returns what that says. No command may say "denied" and yet succeed.
func (u *roleUser) runAll(commands ...string) error {
	for _, c := range commands {
		r := u.run(strings.Fields(c)...)
		if said := r.stdout + r.stderr; r.code != exitOK || strings.Contains(said, "denied") {
			return fmt.Errorf("%s: exit code %d: %s", c, r.code, said)
		}
	}
	return nil
}

func TestEachRoleDoesItsWorkWithItsGrantsAndNoMore(t *testing.T) {
	t.Parallel()
	for _, role := range ddl.Roles() {
		for _, flags := range [][]string{nil, {"--per-table"}} {
			t.Run(strings.Join(append([]string{role.Name}, flags...), " "), func(t *testing.T) {
				t.Parallel()
				p := plays()[role.Name]
				s := p.site(t)
				u := newRoleUser(s, role.Name, nil, flags...)
				if err := p.act(u); err != nil {
					t.Fatal(err)
				}
				u.isRefused(p.forbidden)
				neighbour := s.prefix + "x0" // which `prefix_0` means too, where its _ is not escaped
				s.exec("CREATE DATABASE " + neighbour)
				t.Cleanup(func() { _, _ = s.db.Exec("DROP DATABASE " + neighbour) })
				s.exec("CREATE TABLE " + neighbour + ".task_0000 (status INT)")
				u.isRefused("SELECT COUNT(*) FROM " + neighbour + ".task_0000")
				u.isRefused("INSERT INTO " + neighbour + ".task_0000 (status) VALUES (1)")
			})
		}
	}
}

// isRefused expects that the server refuses a statement for lack of a right.
func (u *roleUser) isRefused(statement string) {
	u.t.Helper()
	_, err := u.pool(u.dsn()).Exec(strings.ReplaceAll(statement, "{db}", u.layout.Database(0)))
	if err == nil || !strings.Contains(err.Error(), "denied") {
		u.t.Errorf("%s: %v, want it to be denied", statement, err)
	}
}

// changing are the roles whose work, broken off, leaves more behind than rows that emptied deletes.
var changing = []string{"ddl", "move", "restore", "biz", "node"}

// TestEachRightOfARoleIsNeeded takes one right after the other away: then something of the role's work is refused. The rights of a
// role that is not one of changing are tried one after the other, with the same tables.
func TestEachRightOfARoleIsNeeded(t *testing.T) {
	t.Parallel()
	s := bareSite(t)
	for _, role := range ddl.Roles() {
		rights, p := rightsIn(s, role.Name), plays()[role.Name]
		t.Run(role.Name, func(t *testing.T) {
			t.Parallel()
			if !slices.Contains(changing, role.Name) {
				s := p.site(t)
				config := s.text("tocsin.yaml")
				p.site = func(t *testing.T) *site {
					again := *s
					again.t = t
					again.write("tocsin.yaml", config)
					again.emptied()
					return &again
				}
			}
			for _, right := range rights {
				t.Run("without "+right.verb+" on "+right.table, func(t *testing.T) {
					if slices.Contains(changing, role.Name) {
						t.Parallel()
					}
					u := newRoleUser(p.site(t), role.Name, right.isAnother, "--per-table")
					u.byRows = right.table == "node"
					u.atEnd = right.verb == "DELETE"
					err := p.act(u)
					if err == nil || !strings.Contains(err.Error(), "denied") && !strings.Contains(err.Error(), "is missing") { // ddl verify does not see the table
						t.Errorf("got %v, want it to be denied", err)
					}
				})
			}
		})
	}
}

// emptied deletes all rows that tasks and schedules have made.
func (s *site) emptied() {
	s.t.Helper()
	for table := range s.layout.Total() {
		s.exec("DELETE FROM " + s.layout.Table(table))
	}
	for db := range s.layout.Databases {
		for _, table := range []string{"doorbell", "schedule", "run", "relayed"} {
			s.exec("DELETE FROM " + s.layout.Database(db) + "." + table)
		}
	}
}

// oneRight is a right on the tables of one kind, or on all tables.
type oneRight struct {
	verb, table string
}

// kind returns the table's name without numbers.
func kind(on string) string {
	name := on[strings.LastIndex(on, ".`")+2 : len(on)-1]
	if strings.HasPrefix(strings.TrimPrefix(name, "retired_"), "task_") {
		return "task"
	}
	return strings.TrimPrefix(name, "retired_")
}

// isAnother reports whether a right remains.
func (r oneRight) isAnother(right, on string) bool {
	return right != r.verb || r.table != "all" && r.table != kind(on)
}

// rightsIn lists the rights of a role: by kind of table, but those of ddl and move, which do the same with all tables, once.
func rightsIn(s *site, role string) (all []oneRight) {
	for _, p := range decode[[]plannedServer](s.t, s.run("ddl", "grants", "--json", "--per-table", "--role", role)) {
		for line := range strings.Lines(p.SQL) {
			m := grantForm.FindStringSubmatch(strings.TrimSpace(line))
			if m == nil {
				continue
			}
			for verb := range strings.SplitSeq(m[1], ", ") {
				r := oneRight{verb: verb, table: kind(m[2])}
				if role == "ddl" || role == "move" {
					r.table = "all"
				}
				if !slices.Contains(all, r) {
					all = append(all, r)
				}
			}
		}
	}
	return all
}

func TestGrantsForAServerThatTakesNamesLiterally(t *testing.T) {
	t.Parallel()
	var args []string
	if devtest.IsMySQL(t) { // MariaDB has no such setting; there the grants mean more databases than these
		args = []string{"--partial-revokes=ON"}
	}
	s := bareSite(t)
	dsn := ownServer(t, devserver.MariaDBConfig{Args: args})
	s.write("tocsin.yaml", s.yaml(s.layout, dsn))
	root, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	old := s.db
	t.Cleanup(func() { _ = old.Close() })
	s.db = root // which the site closes
	s.applyDDL()
	s.write("biz.yaml", bizYAML)
	s.run("biz", "apply", "biz.yaml").ok(t)
	u := newRoleUser(s, "audit", nil, "--partial-revokes")
	if err := u.actAudit(); err != nil {
		t.Error(err)
	}
	if _, err := u.pool(dsn).Exec("DELETE FROM " + s.layout.Table(0)); err == nil || !strings.Contains(err.Error(), "denied") {
		t.Errorf("a DELETE: %v, want it to be denied", err)
	}
}

func TestGrantsAreWrittenIntoFilesAndRefuseWhatThereIsNot(t *testing.T) {
	t.Parallel()
	s := bareSite(t)
	s.run("ddl", "grants", "--role", "node,sweep", "--out", "grants").says(t, "grants/db1.sql")
	if text := s.text("grants/db1.sql"); !strings.Contains(text, "-- Rights of node, sweep on server db1") || !strings.Contains(text, "TO `tocsin_node`@`%`;") {
		t.Error(text)
	}
	s.run("ddl", "grants").refused(t, exitUsage, "--role is needed")
	s.run("ddl", "grants", "--role", "root").refused(t, exitUsage, `unknown role "root"`)
	s.run("ddl", "grants", "--help").says(t, "client-cancel")
}
