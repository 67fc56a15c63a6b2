package biztype_test

import (
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/ddl"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// cluster is a small cluster of its own, with its tables.
func cluster(t *testing.T, servers ...tocsin.Server) tocsin.Config {
	t.Helper()
	if servers == nil {
		servers = []tocsin.Server{{Name: "db1", DSN: devtest.DSN(t)}}
	}
	cfg := tocsin.Config{
		Layout:  tocsin.Layout{Databases: 2, Tables: 1, Prefix: devtest.Prefix(t)},
		Servers: servers,
	}
	if _, err := ddl.Apply(t.Context(), cfg, ddl.Options{}); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// secondServer starts another MariaDB for this test alone.
func secondServer(t *testing.T) *devserver.MariaDB {
	t.Helper()
	m, err := devserver.StartMariaDB(t.Context(), devserver.MariaDBConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Stop(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// execute runs one statement on database 0 or 1; {db} stands for its name.
func execute(t *testing.T, cfg tocsin.Config, query string, args ...any) {
	t.Helper()
	server, err := mysql.Open(client.Specs(cfg)[0])
	if err != nil {
		t.Fatal(err)
	}
	defer server.DB.Close()
	if _, err := server.DB.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatal(err)
	}
}

func apply(t *testing.T, cfg tocsin.Config, policies ...biztype.Policy) biztype.Result {
	t.Helper()
	res, err := biztype.Apply(t.Context(), cfg, policies)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// load reads the stored policies.
func load(t *testing.T, cfg tocsin.Config) []biztype.Policy {
	t.Helper()
	policies, err := biztype.Load(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return policies
}

// verdicts gives them in order.
func verdicts(res biztype.Result) []biztype.Verdict {
	var v []biztype.Verdict
	for _, r := range res.Types {
		v = append(v, r.Verdict)
	}
	return v
}
