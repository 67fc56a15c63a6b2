package ddl

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/name"
)

// runClient runs a file with the server's own client, with more options, and returns what it prints.
func runClient(t *testing.T, dsn, path string, options ...string) (string, error) {
	t.Helper()
	program, err := exec.LookPath("mariadb")
	if err != nil {
		if program, err = exec.LookPath("mysql"); err != nil {
			t.Fatal("no mariadb or mysql client: run scripts/install-deps.sh test")
		}
	}
	cfg := must(driver.ParseDSN(dsn))
	host, port, err := net.SplitHostPort(cfg.Addr)
	if err != nil {
		t.Fatal(err)
	}
	options = append([]string{"--no-defaults", "-h", host, "-P", port, "--protocol=tcp", "-u", cfg.User}, options...)
	cmd := exec.CommandContext(t.Context(), program, options...)
	cmd.Env = append(os.Environ(), "MYSQL_PWD="+cfg.Passwd)
	cmd.Stdin = bytes.NewReader(must(os.ReadFile(path)))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// dump gives the full DDL and the layout rows of a cluster with its prefix
// taken out.
func dump(t *testing.T, cfg tocsin.Config) []string {
	t.Helper()
	sites := must(openSites(cfg, 1))
	defer closeSites(sites)
	var all []string
	for _, s := range sites {
		for _, db := range s.Databases {
			name := s.layout.Database(db)
			var ignored, text string
			if err := s.DB.QueryRowContext(t.Context(), "SHOW CREATE DATABASE "+name).Scan(&ignored, &text); err != nil {
				t.Fatal(err)
			}
			all = append(all, text)
			for _, table := range tablesOf(s.layout, db) {
				if err := s.DB.QueryRowContext(t.Context(), "SHOW CREATE TABLE "+table.full()).Scan(&ignored, &text); err != nil {
					t.Fatal(err)
				}
				all = append(all, text)
			}
			all = append(all, fmt.Sprint(must(s.readLayout(t.Context(), db))))
		}
	}
	for i := range all {
		all[i] = strings.ReplaceAll(all[i], cfg.Layout.Prefix, "prefix")
	}
	return all
}

func TestWhatPlanWritesGivesExactlyWhatApplyGives(t *testing.T) {
	t.Parallel()
	direct, planned := config(t, 2, 3), config(t, 2, 3)
	opt := Options{Cluster: "c1", Identity: "i1"}
	applied(t, direct, opt)
	plans := must(Plan(planned, opt))
	paths, err := WritePlan(filepath.Join(t.TempDir(), "new", "plan"), plans)
	if err != nil || len(paths) != 1 || filepath.Base(paths[0]) != "db1.sql" {
		t.Fatal(paths, err)
	}
	for range 2 { // running it again does no harm
		run(t, planned, plans)
	}
	if got, want := dump(t, planned), dump(t, direct); !slices.Equal(got, want) {
		t.Errorf("planned:\n%s\n\ndirect:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	verified(t, planned)
	if res := applied(t, planned, opt); res != (Result{Cluster: "c1", Identity: "i1", Existing: 28, From: 3, WorksWith: 3}) {
		t.Errorf("Apply after the plan: %+v", res)
	}
}

// What is printed for people to run gives the same, whatever their session begins with.
func TestAPlanIsRunWhateverTheSession(t *testing.T) {
	t.Parallel()
	direct := config(t, 1, 2)
	opt := Options{Cluster: "c1", Identity: "i1"}
	applied(t, direct, opt)
	want := dump(t, direct)
	begins := []string{"autocommit = 0, completion_type = 1, sql_safe_updates = 1, sql_select_limit = 0, foreign_key_checks = 0", "character_set_client = gbk, collation_connection = 'latin1_bin'"}
	if devtest.IsMySQL(t) {
		begins = append(begins, "transaction_read_only = 1, sql_generate_invisible_primary_key = 1", "default_storage_engine = MyISAM, sql_require_primary_key = 1")
	} else {
		begins = append(begins, "tx_read_only = 1, sql_if_exists = 1, max_statement_time = 60", "default_storage_engine = MyISAM, innodb_strict_mode = 0")
	}
	for _, mode := range devtest.SQLModes(t) {
		begins = append(begins, "sql_mode = '"+mode+"'")
	}
	for _, begin := range begins {
		planned := config(t, 1, 2)
		path := filepath.Join(t.TempDir(), "plan.sql")
		text := must(Plan(planned, opt))[0].Text + must(PlanOutbox(Outbox{Table: planned.Layout.Database(0) + ".tocsin_outbox"}))
		if err := os.WriteFile(path, []byte("SET SESSION "+begin+";\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := runClient(t, planned.Servers[0].DSN, path); err != nil {
			t.Errorf("%s: %v\n%s", begin, err, out)
			continue
		}
		if got := dump(t, planned); !slices.Equal(got, want) {
			t.Errorf("%s: planned:\n%s\n\ndirect:\n%s", begin, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		o := Outbox{DSN: planned.Servers[0].DSN, Table: planned.Layout.Database(0) + ".tocsin_outbox"}
		if findings, err := VerifyOutbox(t.Context(), o); err != nil || len(findings) > 0 {
			t.Errorf("%s: outbox: %+v, %v", begin, findings, err)
		}
	}
}

// A GRANT to a missing user creates no user.
func TestGrantsMakeNoUser(t *testing.T) {
	t.Parallel()
	cfg := config(t, 1, 1)
	applied(t, cfg, Options{})
	path := filepath.Join(t.TempDir(), "grants.sql")
	plans, err := Grants(cfg, GrantOptions{Roles: []string{"node"}, User: cfg.Layout.Prefix + "nobody"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("SET SESSION sql_mode = '';\n"+plans[0].Text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := runClient(t, cfg.Servers[0].DSN, path)
	if err == nil || !strings.Contains(out, "ERROR 1133 ") && !strings.Contains(out, "ERROR 1410 ") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestPlanNeedsNoServerAndSharesOneClusterIDAndIdentity(t *testing.T) {
	t.Parallel()
	cfg := tocsin.Config{
		Layout: tocsin.Layout{Databases: 2, Tables: 1},
		Servers: []tocsin.Server{
			{Name: "a", DSN: "u:secret@tcp(127.0.0.1:1)/", Databases: []int{1}},
			{Name: "b", DSN: "u:secret@tcp(127.0.0.1:1)/", Databases: []int{0}},
		},
	}
	plans := must(Plan(cfg, Options{}))
	if !strings.Contains(plans[0].Text, "`toc_1`.`task_0000`") || strings.Contains(plans[0].Text, "`toc_0`") {
		t.Errorf("server a gets another's databases:\n%s", plans[0].Text)
	}
	for _, what := range []string{"cluster ", "identity is "} {
		id := func(p ServerPlan) string {
			_, rest, _ := strings.Cut(p.Text, what)
			id, _, _ := strings.Cut(strings.ReplaceAll(rest, ", on all servers", ""), ".\n")
			return id
		}
		if id(plans[0]) != id(plans[1]) || name.Check(what, id(plans[0])) != nil {
			t.Errorf("%s: %q and %q", what, id(plans[0]), id(plans[1]))
		}
	}
	if strings.Contains(plans[0].Text+plans[1].Text, "secret") {
		t.Error("a plan holds the password")
	}
}

func TestWritePlanRefusesWhatWouldBeOverwritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for range 2 { // the same again is no harm
		must(WritePlan(dir, []ServerPlan{{"u@h:1", "one"}}))
	}
	if _, err := WritePlan(dir, []ServerPlan{{"u@h:1", "two"}}); err == nil || !strings.Contains(err.Error(), "u_h_1.sql is there") {
		t.Errorf("other text: %v", err)
	}
	if _, err := WritePlan(t.TempDir(), []ServerPlan{{"a@b", ""}, {"a:b", ""}}); err == nil || !strings.Contains(err.Error(), "would share the file a_b.sql") {
		t.Errorf("names that collide: %v", err)
	}
}

func TestAPlanOfAMigrationGivesWhatApplyGives(t *testing.T) {
	t.Parallel()
	direct, planned := version2(t), version2(t)
	applied(t, direct, Options{Identity: "i1"})
	plans, err := PlanMigration(t.Context(), planned, Options{Identity: "i1"})
	if err != nil || len(plans) != 1 {
		t.Fatal(plans, err)
	}
	wantSaid(t, versions(t, planned), "2/2", "2/2")
	if strings.Contains(plans[0].Text, "NOWAIT") { // a client stops where the server itself uses a table for a moment
		t.Error("the plan fails where it should wait")
	}
	run(t, planned, plans)
	if got, want := shapes(t, planned), shapes(t, direct); !slices.Equal(got, want) {
		t.Errorf("planned:\n%s\n\ndirect:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	wantSaid(t, versions(t, planned), "3/2", "3/2")
	for _, cfg := range []tocsin.Config{direct, planned} {
		plans, err := PlanMigration(t.Context(), cfg, Options{})
		if err != nil || strings.Contains(plans[0].Text, "ALTER /*") || !strings.Contains(plans[0].Text, "-- Nothing: all its databases are of that version.") {
			t.Errorf("a plan when all is done: %v, %v", plans, err)
		}
	}
}

// On MariaDB a file may be run again as it is. On MySQL its errors say what is done, and --force goes on.
func TestAPlanOfAMigrationGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	cfg := version2(t)
	plans := must(PlanMigration(t.Context(), cfg, Options{}))
	path := must(WritePlan(t.TempDir(), plans))[0]
	release := hold(t, cfg, cfg.Layout.Database(1)+".task_0002")
	out, err := runClient(t, cfg.Servers[0].DSN, path)
	if err == nil || !strings.Contains(out, "ERROR 1205") {
		t.Errorf("while a table is held: %v, %s", err, out)
	}
	wantSaid(t, versions(t, cfg), "3/2", "2/2")
	release()
	var force []string
	if devtest.IsMySQL(t) {
		out, err := runClient(t, cfg.Servers[0].DSN, path)
		if err == nil || !strings.Contains(out, "ERROR 1060") || !strings.Contains(out, "Duplicate column name 'sweep_grace_ms'") {
			t.Errorf("again: %v, %s", err, out)
		}
		force = []string{"--force"}
	}
	if out, err := runClient(t, cfg.Servers[0].DSN, path, force...); err != nil && !devtest.IsMySQL(t) {
		t.Errorf("when it is free: %v, %s", err, out)
	}
	wantSaid(t, versions(t, cfg), "3/2", "3/2")
}

func TestAPlanOfAMigrationMakesWhatIsMissing(t *testing.T) {
	t.Parallel()
	cfg := version2(t)
	execute(t, cfg, "DROP DATABASE $1")
	run(t, cfg, must(PlanMigration(t.Context(), cfg, Options{})))
	wantSaid(t, versions(t, cfg), "3/2", "3/2") // a new database takes the old programs of the others
	verified(t, cfg, "warning: ")
}
