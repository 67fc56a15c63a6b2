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
	"github.com/tocsinhq/tocsin/internal/name"
)

// client feeds an SQL file to the command-line client.
func client(t *testing.T, dsn, path string) {
	t.Helper()
	if out, err := runClient(t, dsn, path); err != nil {
		t.Fatalf("%s: %v: %s", path, err, out)
	}
}

// runClient runs a file with the server's own client, with more options, and returns what it prints.
func runClient(t *testing.T, dsn, path string, options ...string) (string, error) {
	t.Helper()
	program, err := exec.LookPath("mariadb")
	if err != nil {
		if program, err = exec.LookPath("mysql"); err != nil {
			t.Fatal("no mariadb or mysql client: run scripts/install-deps.sh test")
		}
	}
	cfg, err := driver.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(cfg.Addr)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	options = append([]string{"--no-defaults", "-h", host, "-P", port, "--protocol=tcp", "-u", cfg.User}, options...)
	cmd := exec.CommandContext(t.Context(), program, options...)
	cmd.Env = append(os.Environ(), "MYSQL_PWD="+cfg.Passwd)
	cmd.Stdin = bytes.NewReader(text)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// dump gives the full DDL and the layout rows of a cluster with its prefix
// taken out.
func dump(t *testing.T, cfg tocsin.Config) []string {
	t.Helper()
	sites, err := openSites(cfg, 1)
	if err != nil {
		t.Fatal(err)
	}
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
			row, err := s.readLayout(t.Context(), db)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, fmt.Sprint(row))
		}
	}
	for i := range all {
		all[i] = strings.ReplaceAll(all[i], cfg.Layout.Prefix, "prefix")
	}
	return all
}

func TestWhatPlanWritesGivesExactlyWhatApplyGives(t *testing.T) {
	t.Parallel()
	applied, planned := config(t, 2, 3), config(t, 2, 3)
	opt := Options{Cluster: "c1", Identity: "i1"}
	if _, err := Apply(t.Context(), applied, opt); err != nil {
		t.Fatal(err)
	}
	plans, err := Plan(planned, opt)
	if err != nil {
		t.Fatal(err)
	}
	paths, err := WritePlan(filepath.Join(t.TempDir(), "new", "plan"), plans)
	if err != nil || len(paths) != 1 || filepath.Base(paths[0]) != "db1.sql" {
		t.Fatal(paths, err)
	}
	for range 2 { // running it again does no harm
		client(t, planned.Servers[0].DSN, paths[0])
	}
	if got, want := dump(t, planned), dump(t, applied); !slices.Equal(got, want) {
		t.Errorf("planned:\n%s\n\napplied:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if findings, err := Verify(t.Context(), planned); err != nil || len(findings) != 0 {
		t.Errorf("verify: %v, %v", findings, err)
	}
	if res, err := Apply(t.Context(), planned, opt); err != nil || res != (Result{Cluster: "c1", Identity: "i1", Existing: 24, From: 3, WorksWith: 3}) {
		t.Errorf("Apply after the plan: %+v, %v", res, err)
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
	plans, err := Plan(cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
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
	if _, err := WritePlan(dir, []ServerPlan{{"u@h:1", "one"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := WritePlan(dir, []ServerPlan{{"u@h:1", "one"}}); err != nil {
		t.Errorf("the same again: %v", err)
	}
	if _, err := WritePlan(dir, []ServerPlan{{"u@h:1", "two"}}); err == nil || !strings.Contains(err.Error(), "u_h_1.sql is there") {
		t.Errorf("other text: %v", err)
	}
	if _, err := WritePlan(t.TempDir(), []ServerPlan{{"a@b", ""}, {"a:b", ""}}); err == nil || !strings.Contains(err.Error(), "would share the file a_b.sql") {
		t.Errorf("names that collide: %v", err)
	}
}
