package ddl

import (
	"database/sql"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// TestMain makes this binary an Apply where a test that kills it asks for one.
func TestMain(m *testing.M) {
	if text := os.Getenv(envApply); text != "" {
		os.Exit(applyAlone(text))
	}
	if text := os.Getenv(envMigrate); text != "" {
		os.Exit(migrateHalf(text))
	}
	devtest.Main(m)
}

// config is a small cluster of its own on the shared server.
func config(tb testing.TB, databases, tables int) tocsin.Config {
	tb.Helper()
	return tocsin.Config{
		Layout:  tocsin.Layout{Databases: databases, Tables: tables, Prefix: devtest.Prefix(tb)},
		Servers: []tocsin.Server{{Name: "db1", DSN: devtest.DSN(tb)}},
	}
}

// applied runs Apply, which has to succeed.
func applied(tb testing.TB, cfg tocsin.Config, opt Options) Result {
	tb.Helper()
	res, err := Apply(tb.Context(), cfg, opt)
	if err != nil {
		tb.Fatal(err)
	}
	return res
}

// verified wants Verify to find this much, each with its text; nothing: all is well.
func verified(t *testing.T, cfg tocsin.Config, want ...string) {
	t.Helper()
	findings, err := Verify(t.Context(), cfg)
	if err != nil || len(findings) != len(want) {
		t.Errorf("verify: %v, %v, want %q", findings, err, want)
		return
	}
	for i, f := range findings {
		if !strings.Contains(f.String(), want[i]) {
			t.Errorf("verify: %s, want %s", f, want[i])
		}
	}
}

// said returns what the layout row of each database says.
func said(t *testing.T, cfg tocsin.Config, what func(layoutRow) string) []string {
	t.Helper()
	sites, err := surveySites(t.Context(), cfg, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer closeSites(sites)
	all := make([]string, cfg.Layout.Databases)
	for _, s := range sites {
		for _, db := range s.Databases {
			all[db] = what(s.rows[db])
		}
	}
	return all
}

func identities(t *testing.T, cfg tocsin.Config) []string {
	t.Helper()
	return said(t, cfg, func(r layoutRow) string { return r.Identity })
}

// versions are schema_version and works_with: "3/2".
func versions(t *testing.T, cfg tocsin.Config) []string {
	t.Helper()
	return said(t, cfg, func(r layoutRow) string { return fmt.Sprintf("%d/%d", r.Version, r.WorksWith) })
}

// wantSaid compares what the layout rows say.
func wantSaid(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("the layout rows say %q, want %q", got, want)
	}
}

// pool opens a pool to a cluster's first server.
func pool(t *testing.T, cfg tocsin.Config) *sql.DB {
	t.Helper()
	server, err := mysql.Open(client.Specs(cfg)[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.DB.Close() })
	return server.DB.DB
}

// execute runs one statement on the first server; $0 stands for the name of
// database 0, and so on.
func execute(t *testing.T, cfg tocsin.Config, query string) {
	t.Helper()
	server, err := mysql.Open(client.Specs(cfg)[0])
	if err != nil {
		t.Fatal(err)
	}
	defer server.DB.Close()
	if _, err := server.DB.ExecContext(t.Context(), strings.ReplaceAll(query, "$", cfg.Layout.Prefix+"_")); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// otherServer starts a server for this test alone, in a folder; "": one of its own.
func otherServer(t *testing.T, dir string, args ...string) *devserver.MariaDB {
	t.Helper()
	m, err := devserver.StartMariaDB(t.Context(), devserver.MariaDBConfig{Dir: dir, Args: args})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Stop() })
	return m
}

// run gives the plan of one server to its command-line client.
func run(t *testing.T, cfg tocsin.Config, plans []ServerPlan) {
	t.Helper()
	paths, err := WritePlan(t.TempDir(), plans)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := runClient(t, cfg.Servers[0].DSN, paths[0]); err != nil {
		t.Fatalf("%s: %v: %s", paths[0], err, out)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
