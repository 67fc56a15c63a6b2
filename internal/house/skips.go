package house

import (
	"go/ast"
	"slices"
)

// maySkip is the one list of tests that do not run everywhere: file, function and reason. All other tests run on every
// server of README, MariaDB and MySQL alike.
var maySkip = []skip{
	{"test/chaos/main_test.go", "onlyLong", "the long scenarios take minutes: make faults, make matrix, make alerts and make cluster run them"},
	{"docs/languages_test.go", "onlyJava", "the JDK is large: make test-java installs it, and runs the programs of docs/sql.md and docs/http.md that are in Java"},
	{"docs/npm_test.go", "onlyNpm", "it needs npm's registry: make test-node gets the package standardwebhooks, and verifies callbacks with it"},
	{"cmd/tocsin/units_test.go", "bootSystemd", "it boots systemd, which takes root and namespaces: make units does it"},
	{"cmd/tocsin/chart_test.go", "rendered", "Helm takes minutes to build: make deploy-check does it, and renders the chart"},
	{"api/console/shop_test.go", "onlyShop", "a cluster under load, which takes minutes: make axe has axe-core of npm's registry look at it, make console-pictures takes pictures"},
	{"internal/devserver/devtest/proxy.go", "NewProxy", "TOCSIN_TEST_DSN names a unix socket, and the proxy needs TCP"},
}

type skip struct{ path, function, reason string }

// skippers are the methods of a testing.TB that end a test without a verdict.
var skippers = []string{"Skip", "Skipf", "SkipNow"}

// Skips checks that a test is skipped only where the list says so, and that the list names no other place.
func Skips(m Module) []string { return skips(m, maySkip) }

func skips(m Module, allowed []skip) []string {
	var bad []string
	used := make([]bool, len(allowed))
	for _, f := range m.Go {
		for _, d := range f.AST.Decls {
			function, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			at := slices.IndexFunc(allowed, func(s skip) bool { return s.path == f.Path && s.function == function.Name.Name })
			for _, call := range skipsIn(function) {
				if at < 0 {
					bad = append(bad, f.at(call.Pos(), "a test is skipped: let it run, or name the place and the reason in internal/house/skips.go"))
					continue
				}
				used[at] = true
			}
		}
	}
	for i, s := range allowed {
		if !used[i] || s.reason == "" {
			bad = append(bad, s.path+": "+s.function+" skips nothing, or gives no reason: see internal/house/skips.go")
		}
	}
	return bad
}

// skipsIn returns the calls in a function that skip a test.
func skipsIn(function *ast.FuncDecl) (found []*ast.CallExpr) {
	ast.Inspect(function, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if s, ok := call.Fun.(*ast.SelectorExpr); ok && slices.Contains(skippers, s.Sel.Name) {
			found = append(found, call)
		}
		return true
	})
	return found
}
