package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/ddl"
)

func TestDDLPlanShowsEveryStatementWithoutAServer(t *testing.T) {
	t.Parallel()
	s := bareSite(t)
	s.write("tocsin.yaml", s.yaml(s.layout, "nobody@tcp(127.0.0.1:1)/"))
	out := s.run("ddl", "plan").ok(t)
	for _, part := range []string{s.prefix + "_1", "task_0003", "cluster " + s.prefix} {
		if !strings.Contains(out, part) {
			t.Errorf("the plan lacks %q", part)
		}
	}
	planned := decode[[]plannedServer](t, s.run("ddl", "plan", "--json"))
	if len(planned) != 1 || planned[0].Server != "db1" || strings.TrimSpace(planned[0].SQL) != strings.TrimSpace(out) {
		t.Errorf("the JSON of %d servers is not the plan", len(planned))
	}
	s.run("ddl", "plan", "--out", "sql").says(t, filepath.Join("sql", "db1.sql"))
	if text, err := os.ReadFile(filepath.Join(s.dir, "sql", "db1.sql")); err != nil || string(text) != planned[0].SQL {
		t.Errorf("the file is not the plan: %v", err)
	}
	files := decode[[]plannedServer](t, s.run("ddl", "plan", "--out", "sql", "--json"))
	if want := []plannedServer{{Server: "db1", File: filepath.Join("sql", "db1.sql")}}; !reflect.DeepEqual(files, want) {
		t.Errorf("got %+v, want %+v", files, want)
	}
}

func TestDDLApplyCreatesOnceAndSaysHowLongItTook(t *testing.T) {
	t.Parallel()
	s := bareSite(t)
	first := s.run("ddl", "apply") // on a slow machine with lines of progress
	if want := "cluster " + s.prefix + ", layout 2x4: 2 databases and 26 tables created, 0 tables were there; in "; first.code != exitOK || !strings.HasPrefix(first.stdout, want) {
		t.Errorf("exit code %d, want 0 and %q:\n%s%s", first.code, want, first.stdout, first.stderr)
	}
	again := decode[appliedDDL](t, s.run("ddl", "apply", "--json"))
	if again.Cluster != s.prefix || again.Databases != 0 || again.Tables != 0 || again.Existing < s.layout.Total() || again.Seconds <= 0 {
		t.Errorf("second apply: %+v", again)
	}
	s.run("ddl", "apply", "--cluster", "another").refused(t, exitFailed, "another", s.prefix)
}

func TestDDLVerifyNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.run("ddl", "verify").says(t, "all tables of layout 2x4 are as they should be")
	if found := decode[[]ddl.Finding](t, s.run("ddl", "verify", "--json")); len(found) != 0 {
		t.Errorf("findings: %+v", found)
	}
	s.verifyWarns(t)
	s.exec("DROP INDEX uk_biz ON {prefix}_1.task_0002")
	s.exec("ALTER TABLE {prefix}_0.task_0001 DROP COLUMN last_error")
	r := s.run("ddl", "verify")
	if r.code != exitFailed || r.stderr != "" {
		t.Errorf("exit code %d, stderr %q", r.code, r.stderr)
	}
	for _, part := range []string{s.prefix + "_1.task_0002", "uk_biz", s.prefix + "_0.task_0001", "last_error"} {
		if !strings.Contains(r.stdout, part) {
			t.Errorf("verify does not name %q:\n%s", part, r.stdout)
		}
	}
	r = s.run("ddl", "verify", "--json")
	found := decodeText[[]ddl.Finding](t, r.stdout)
	if r.code != exitFailed || len(found) != strings.Count(s.run("ddl", "verify").stdout, "\n") || found[0].Server != "db1" {
		t.Errorf("exit code %d, findings %+v", r.code, found)
	}
	s.applyDDL() // it creates what is missing, and alters nothing
	if r := s.run("ddl", "verify"); r.code != exitFailed {
		t.Errorf("apply altered a table: exit code %d", r.code)
	}
}

// verifyWarns makes a table as earlier versions did: that is a warning, and no failure. It mends it again.
func (s *site) verifyWarns(t *testing.T) {
	t.Helper()
	s.exec("ALTER TABLE {prefix}_1.task_0003 STATS_AUTO_RECALC = DEFAULT")
	mend := "ALTER TABLE " + s.prefix + "_1.task_0003 STATS_AUTO_RECALC = 0"
	s.run("ddl", "verify").says(t, "warning: server db1: "+s.prefix+"_1 has 1 of 13 tables ", mend, "no table of layout 2x4 is missing or differs")
	found := decode[[]ddl.Finding](t, s.run("ddl", "verify", "--json"))
	if len(found) != 1 || !found[0].Warning || !strings.Contains(found[0].Detail, mend) {
		t.Errorf("findings: %+v", found)
	}
	s.exec(mend)
	s.run("ddl", "verify").says(t, "all tables of layout 2x4 are as they should be")
}

func TestGrantsNeedNoPasswords(t *testing.T) {
	t.Parallel()
	s := bareSite(t)
	want := s.run("ddl", "grants", "--role", "node").ok(t)
	_, server, _ := strings.Cut(s.dsn(), "@")
	s.write("tocsin.yaml", s.yaml(s.layout, "${TOCSIN_TEST_UNSET_USER}:${TOCSIN_TEST_UNSET_PASSWORD}@"+server)+
		"node: {status: {token: \"${TOCSIN_TEST_UNSET_TOKEN}\"}}\n")
	if got := s.run("ddl", "grants", "--role", "node").ok(t); got != want {
		t.Errorf("without the variables:\n%s\nwith a password:\n%s", got, want)
	}
	s.run("ddl", "verify").refused(t, exitFailed, "TOCSIN_TEST_UNSET_USER")
}
