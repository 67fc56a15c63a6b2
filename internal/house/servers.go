package house

import (
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"strings"
)

// starters are the functions that start a database server for a test, by the package that has them. The tests of these
// packages count too.
var starters = map[string][]string{
	"internal/devserver":         {"StartMariaDB"},
	"internal/devserver/devtest": {"DSN", "Prefix"},
	"internal/devcluster":        {"Start", "StartSite"},
	"tocsintest":                 {"Start"},
}

// noStatement is the reason of packages whose tests start a server for others' statements.
const noStatement = "it sends no statement of its own, and the packages that do are tested"

// onOneServer are packages whose tests start database servers, and that `make test-sql` leaves out: `make test` on that
// server runs them.
var onOneServer = []skip{
	{path: "cmd/tocsin", reason: "its tests of whole commands take three minutes, and the packages that send their statements are tested"},
	{path: "node", reason: "its tests of whole nodes wait for faults for a minute and a half, and the packages that send their statements are tested"},
	{path: "docs", reason: "its tests run the programs and commands of the pages for most of a minute, and the packages that send their statements are tested"},
	{path: "test/bench", reason: "it measures: make bench SERVER=mysql"},
	{path: "assign", reason: "its tests are of etcd, which is the same beside every database server"},
	{path: "internal/dashboards/live", reason: "its demo takes most of a minute, and its queries are of Prometheus"},
	{path: "api", reason: noStatement},
	{path: "api/console", reason: noStatement},
	{path: "config", reason: noStatement},
	{path: "dispatcher", reason: noStatement},
	{path: "operator", reason: noStatement},
	{path: "scanner", reason: noStatement},
	{path: "upkeep", reason: noStatement},
	{path: "contrib/tocsinotel", reason: noStatement},
	{path: "contrib/tocsinprom", reason: noStatement},
	{path: "contrib/tocsinpg", reason: "its tests are of PostgreSQL"},
	{path: "contrib/tocsinpg/pgtest", reason: "its tests are of PostgreSQL"},
	{path: "test/chaos", reason: "its scenarios wait for minutes for faults of processes, etcd and the network"},
}

// Databases returns the folders of the packages whose tests run on a database server, in order, without those of
// onOneServer: what `make test-sql` tests.
func Databases(m Module) []string { return databases(m, onOneServer) }

func databases(m Module, apart []skip) []string {
	found := map[string]bool{}
	for _, f := range m.Go {
		if _, own := starters[f.Dir()]; f.IsTest() && (own || f.startsServer()) {
			found[f.Dir()] = true
		}
	}
	for _, s := range apart {
		delete(found, s.path)
	}
	return slices.Sorted(maps.Keys(found))
}

// startsServer reports whether the file calls one of starters.
func (f *File) startsServer() (found bool) {
	ast.Inspect(f.AST, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			for path, names := range starters {
				found = found || isPackage(s.X, path[strings.LastIndex(path, "/")+1:]) && slices.Contains(names, s.Sel.Name)
			}
		}
		return !found
	})
	return found
}

// Servers checks the rule of Databases by another sign: a test that opens a database by itself has a server from somewhere.
func Servers(m Module) []string { return servers(m, onOneServer) }

func servers(m Module, apart []skip) []string {
	covered := databases(m, apart)
	for _, s := range apart {
		covered = append(covered, s.path)
	}
	var bad []string
	for _, f := range m.Go {
		if f.IsTest() && (f.uses("database/sql") || f.uses("github.com/go-sql-driver/mysql")) && !slices.Contains(covered, f.Dir()) {
			bad = append(bad, f.Path+": the test opens a database, and make test-sql does not run it: see internal/house/servers.go")
		}
	}
	for _, s := range apart {
		if s.reason == "" || !slices.ContainsFunc(m.Go, func(f *File) bool { return f.Dir() == s.path }) {
			bad = append(bad, s.path+" is left out of make test-sql, and is no package or gives no reason: see internal/house/servers.go")
		}
	}
	return bad
}

// NotRun returns what `make test` does not run, a line each, with the reason; and what `make test-sql` leaves out if
// only the tests of Databases are run. The lists are maySkip and onOneServer.
func NotRun(databases bool) (lines []string) {
	for _, s := range maySkip {
		lines = append(lines, fmt.Sprintf("%s, %s: %s", s.path, s.function, s.reason))
	}
	if databases {
		lines = append(lines, "tests that start no database server: they are the same on every server")
		for _, s := range onOneServer {
			lines = append(lines, s.path+": "+s.reason)
		}
	}
	return lines
}
