package house

import (
	"strings"
	"testing"
)

// source is one file that a rule reads, and what the rule's one complaint contains; "" for none.
type source struct{ path, src, want string }

const ours = modulePath

func TestImportsComplain(t *testing.T) {
	each(t, Imports, map[string]source{
		"an engine imports another":          {"scanner/x.go", `package scanner; import _ "` + ours + `/assign"`, "engine scanner imports assign"},
		"an engine's test imports another":   {"upkeep/x_test.go", `package upkeep; import _ "` + ours + `/dispatcher"`, "engine upkeep imports dispatcher"},
		"an engine imports config":           {"assign/x.go", `package assign; import _ "` + ours + `/config"`, "engine assign imports config"},
		"an engine imports itself in a test": {"assign/x_test.go", `package assign_test; import _ "` + ours + `/assign"`, ""},
		"an engine imports the store":        {"scanner/x.go", `package scanner; import _ "` + ours + `/internal/store"`, ""},
		"the root imports a package of ours": {"x.go", `package tocsin; import _ "` + ours + `/internal/store"`, ". may not import internal/store"},
		"the root imports a logger":          {"x.go", `package tocsin; import _ "github.com/rs/zerolog"`, ". may not import github.com/rs/zerolog"},
		"the root imports a driver":          {"x.go", `package tocsin; import _ "github.com/go-sql-driver/mysql"`, ""},
		"its machinery imports a logger":     {"internal/client/x.go", `package client; import _ "github.com/rs/zerolog"`, "internal/client may not import github.com/rs/zerolog"},
		"a worker imports the node":          {"worker/x.go", `package worker; import _ "` + ours + `/node"`, "worker may not import node"},
		"a worker imports a client of HTTP":  {"worker/x.go", `package worker; import _ "github.com/x/rest"`, "worker may not import github.com/x/rest"},
		"a worker imports the back-off":      {"worker/x.go", `package worker; import _ "github.com/cenkalti/backoff/v5"`, ""},
		"the root's test imports ddl":        {"x_test.go", `package tocsin_test; import _ "` + ours + `/ddl"`, ""},
		"the queue imports the store":        {"internal/duequeue/x.go", `package duequeue; import _ "` + ours + `/internal/store"`, "duequeue may not import internal/store"},
		"the queue imports the root":         {"internal/duequeue/x.go", `package duequeue; import _ "` + ours + `"`, ""},
		"the sink imports the dispatcher":    {"webhook/x.go", `package webhook; import _ "` + ours + `/dispatcher"`, "webhook may not import dispatcher"},
		"a receiver needs etcd":              {"webhook/x.go", `package webhook; import _ "` + ours + `/biztype"`, "webhook may not import biztype"},
		"a package that nobody placed":       {"alarm/x.go", `package alarm; import _ "` + ours + `"`, "alarm may not import ."},
		"etcd in the node":                   {"node/x.go", `package node; import _ "go.etcd.io/etcd/client/v3"`, "node may not import go.etcd.io/etcd/client/v3"},
		"etcd in assign":                     {"assign/x.go", `package assign; import _ "go.etcd.io/etcd/client/v3"`, ""},
		"testing in shipped code":            {"internal/store/x.go", `package store; import _ "testing"`, "internal/store may not import testing"},
		"a server for tests in the node":     {"node/x.go", `package node; import _ "` + ours + `/internal/devserver"`, "node may not import " + ours + "/internal/devserver"},
	})
}

func TestPagesComplains(t *testing.T) {
	none := func(m Module) []string { return pages(m, nil) }
	each(t, none, map[string]source{
		"a page that is not listed": {"internal/store/x.go", "package store\nconst a = `SELECT /* tocsin a page */ b FROM c\nLIMIT ?`", `"a page" reads a part of the rows`},
		"all of the rows":           {"internal/store/x.go", "package store\nconst a = `SELECT /* tocsin a page */ b FROM c`", ""},
	})
}

func TestPagesComplainsOfItsList(t *testing.T) {
	each(t, func(m Module) []string { return pages(m, map[string]string{"a page": bounded}) }, map[string]source{
		"as the list says":        {"internal/store/x.go", "package store\nconst a = `SELECT /* tocsin a page */ b FROM c\nLIMIT ?`", ""},
		"the list is out of date": {"internal/store/x.go", "package store", `no statement is "a page"`},
	})
}

func TestAtOnceComplains(t *testing.T) {
	each(t, func(m Module) []string { return atOnce(m, nil) }, map[string]source{
		"a function":                   {"ddl/x.go", "package ddl\nfunc ApplyIt() {}", "ddl.ApplyIt: programs may call it at once"},
		"a command":                    {"cmd/tocsin/x.go", "package main\nvar a = cobra.Command{Use: \"apply FILE\"}", "command x.go apply: programs"},
		"a method of an inner type":    {"ddl/x.go", "package ddl\nfunc (a *thing) Apply() {}", ""},
		"a function with another name": {"ddl/x.go", "package ddl\nfunc Settle() {}", ""},
	})
}

func TestAtOnceComplainsOfItsList(t *testing.T) {
	each(t, func(m Module) []string { return atOnce(m, map[string]string{"ddl.Apply": "TestNone"}) }, map[string]source{
		"the list is out of date": {"ddl/x.go", "package ddl\nfunc Apply() {}", `there is no "TestNone"`},
	})
}

func TestSkipsComplains(t *testing.T) {
	none := func(m Module) []string { return skips(m, nil) }
	each(t, none, map[string]source{
		"a skip":           {"x_test.go", "package x\nfunc TestA(t *testing.T) { t.Skip(1) }", "a test is skipped"},
		"in a closure":     {"x_test.go", "package x\nfunc TestA(t *testing.T) { t.Run(``, func(t *testing.T) { t.SkipNow() }) }", "a test is skipped"},
		"in a helper":      {"x.go", "package x\nfunc need(tb testing.TB) { tb.Skipf(``) }", "a test is skipped"},
		"a skipped folder": {"x.go", "package x\nfunc f() error { return fs.SkipDir }", ""},
	})
}

func TestSkipsComplainsOfItsList(t *testing.T) {
	list := func(m Module) []string { return skips(m, []skip{{"x_test.go", "slow", "it is slow"}}) }
	each(t, list, map[string]source{
		"as the list says":        {"x_test.go", "package x\nfunc slow(t *testing.T) { t.Skip(1) }", ""},
		"the list is out of date": {"x_test.go", "package x\nfunc slow(t *testing.T) {}", "slow skips nothing"},
	})
}

// opensSQL is the import that shows a test with a database.
const opensSQL = `import _ "database/sql"`

func TestServersComplains(t *testing.T) {
	none := func(m Module) []string { return servers(m, nil) }
	each(t, none, map[string]source{
		"a test with a server":            {"x/x_test.go", "package x\n" + opensSQL + "\nvar dsn = devtest.DSN", ""},
		"a database without a server":     {"x/x_test.go", "package x\n" + opensSQL, "make test-sql does not run it"},
		"a driver without a server":       {"x/x_test.go", `package x; import _ "github.com/go-sql-driver/mysql"`, "make test-sql does not run it"},
		"shipped code that opens another": {"x/x.go", "package x\n" + opensSQL, ""},
	})
}

func TestServersComplainsOfItsList(t *testing.T) {
	list := func(m Module) []string { return servers(m, []skip{{path: "x", reason: "it takes minutes"}}) }
	each(t, list, map[string]source{
		"as the list says":          {"x/x_test.go", "package x\n" + opensSQL, ""},
		"the list names no package": {"y/y.go", "package y", "x is left out of make test-sql, and is no package"},
	})
}

func TestSQLComplains(t *testing.T) {
	each(t, SQL, map[string]source{
		"a query in the dispatcher":      {"dispatcher/x.go", "package dispatcher; const q = `/* tocsin x */ SELECT job_id FROM t`", "SQL text belongs to"},
		"an insert in lower case":        {"node/x.go", `package node; var q = "insert into t values (1)"`, "SQL text belongs to"},
		"an update in a function":        {"cmd/tocsin/x.go", "package main\nfunc f() { g(\"UPDATE t SET a = 1\") }", "SQL text belongs to"},
		"DDL in the command":             {"cmd/tocsin/x.go", `package main; const q = "DROP TABLE IF EXISTS t"`, "SQL text belongs to"},
		"a query of a variable":          {"scanner/x.go", `package scanner; const q = "SELECT @@version"`, "SQL text belongs to"},
		"a query in a test":              {"dispatcher/x_test.go", `package dispatcher; const q = "SELECT a FROM t"`, ""},
		"English that sounds like SQL":   {"cmd/tocsin/x.go", `package main; const q = "select one from the list, update all, delete from it, create tables"`, ""},
		"a statement without its sender": {"internal/store/x.go", `package store; const q = "SELECT a FROM t"`, "does not name its sender"},
		"a statement with its sender":    {"internal/store/x.go", `package store; const q = "SELECT /* tocsin peek */ a FROM t"`, ""},
		"all columns":                    {"internal/store/x.go", `package store; const q = "SELECT /* tocsin x */ * FROM t"`, "does not name its columns"},
		"an insert without columns":      {"internal/store/x.go", `package store; const q = "INSERT /* tocsin x */ INTO t VALUES (1)"`, "does not name its columns"},
		"an insert of a select":          {"internal/store/x.go", `package store; const q = "INSERT /* tocsin x */ IGNORE INTO t SELECT a FROM u"`, "does not name its columns"},
		"an insert with columns":         {"internal/store/x.go", `package store; const q = "INSERT /* tocsin x */ INTO t (a) SELECT a FROM u"`, ""},
		"a statement in a function":      {"internal/store/x.go", "package store\nfunc f() { g(\"DELETE /* tocsin x */ FROM toc.t\") }", "no named constant"},
		"DDL in its home":                {"ddl/x.go", `package ddl; const q = "CREATE DATABASE IF NOT EXISTS "`, ""},
	})
}

func TestPackageDocsComplain(t *testing.T) {
	each(t, PackageDocs, map[string]source{
		"no package comment":              {"internal/store/x.go", "package store", "package comment has 0 characters"},
		"a package comment without words": {"internal/store/x.go", "// Package store stores.\npackage store", "package comment has"},
		"a package comment":               {"internal/store/x.go", "// Package store " + strings.Repeat("is it ", 20) + "\npackage store", ""},
	})
}

func TestExportedDocsComplain(t *testing.T) {
	each(t, ExportedDocs, map[string]source{
		"an exported function without comment": {"internal/store/x.go", "package store\nfunc Peek() {}", "no doc comment: Peek"},
		"an exported method without comment":   {"internal/store/x.go", "package store\nfunc (*S[T]) Peek() {}", "no doc comment: S.Peek"},
		"a method of an unexported type":       {"internal/store/x.go", "package store\nfunc (s) Peek() {}", ""},
		"a method Error":                       {"internal/store/x.go", "package store\nfunc (S) Error() string { return \"\" }", ""},
		"an exported type without comment":     {"internal/store/x.go", "package store\ntype S struct{}", "no doc comment: S"},
		"an exported constant without comment": {"internal/store/x.go", "package store\nconst (\n\tA = 1 // has one\n\tB = 2\n)", "no doc comment: B"},
		"a group with a comment":               {"internal/store/x.go", "package store\n// The statuses.\nconst (\n\tA = 1\n\tB = 2\n)", ""},
		"a program's exported name":            {"cmd/tocsin/x.go", "package main\nfunc Peek() {}", ""},
	})
}

func TestNamesComplain(t *testing.T) {
	each(t, Names, map[string]source{
		"a package of helpers": {"store/helper/x.go", "package helper", "package helper says nothing"},
		"a manager":            {"store/x_test.go", "package store; type leaseManager struct{}", "type leaseManager"},
		"a lease":              {"internal/store/x.go", "package store; type lease struct{}", ""},
	})
}

func TestWalksComplains(t *testing.T) {
	const walk = "func f() { for range slices.Chunk(s.TablesOf(0), 64) {} }"
	each(t, Walks, map[string]source{
		"a walk":          {"upkeep/x.go", "package upkeep\n" + walk, "use store.Walk"},
		"a walk in tests": {"upkeep/x_test.go", "package upkeep\n" + walk, ""},
		"other chunks":    {"internal/store/x.go", "package store\nfunc f() { for range slices.Chunk(tables, 64) {} }", ""},
	})
}

func TestGroupsComplains(t *testing.T) {
	const file = "package store\nimport \"golang.org/x/sync/errgroup\"\nfunc f() error { var g errgroup.Group; "
	each(t, Groups, map[string]source{
		"an error thrown away": {"internal/store/x.go", file + "_ = g.Wait(); return nil }", "use sync.WaitGroup.Go"},
		"a limit":              {"internal/store/x.go", file + "g.SetLimit(2); _ = g.Wait(); return nil }", ""},
		"an error returned":    {"internal/store/x.go", file + "return g.Wait() }", ""},
		"another wait":         {"internal/store/x.go", "package store\nfunc f() { _ = cmd.Wait() }", ""},
	})
}

func TestSleepComplains(t *testing.T) {
	each(t, Sleep, map[string]source{
		"a sleep":           {"internal/store/x.go", "package store\nfunc f() { time.Sleep(1) }", "time.Sleep outside a test"},
		"a sleep in a test": {"store/x_test.go", "package store\nfunc f() { time.Sleep(1) }", ""},
	})
}

func TestPathsComplain(t *testing.T) {
	each(t, Paths, map[string]source{
		"a path of one machine":     {"internal/store/x.go", "package store // see /" + "work/main", "store/x.go:1: a path of one machine"},
		"a home folder in a string": {"internal/store/x.go", `package store; const d = "/` + `home/me/x"`, "a path of one machine"},
		"a word with that path":     {"internal/store/x.go", "package store // net" + "work/x, a/ro" + "ot/b", ""},
	})
}

// each feeds the rule one file after the other: some break it, some just do not.
func each(t *testing.T, rule func(Module) []string, cases map[string]source) {
	t.Helper()
	t.Parallel()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect(t, rule(oneFile(t, c.path, c.src)), c.want)
		})
	}
}

func TestSizesComplain(t *testing.T) {
	t.Parallel()
	function := func(lines int) string { return "package x\nfunc f() {" + strings.Repeat("\n", lines-1) + "}\n" }
	small := strings.Repeat("func f() {}\n", 9)
	cases := map[string]struct{ path, src, want string }{
		"a function of 60 lines":         {"x.go", function(60) + small, ""},
		"a function of 61 lines":         {"x.go", function(61) + small, "x.go f: has 61 lines, more than 60"},
		"a test function of 61 lines":    {"x_test.go", function(61) + small, "x_test.go f: has 61 lines"},
		"a long function inside another": {"x.go", "package x\nfunc f() {\nfunc() {" + strings.Repeat("\n", 60) + "}()\n}\n" + small, "x.go f: has"},
		"a file of 401 lines":            {"x.go", "package x" + strings.Repeat("\n", 401), "x.go: has 401 lines, more than 400"},
		"a file of 400 lines":            {"x.go", "package x" + strings.Repeat("\n", 400), ""},
		"a test file of 600 lines":       {"x_test.go", "package x" + strings.Repeat("\n", 600), ""},
		"a test file of 601 lines":       {"x_test.go", "package x" + strings.Repeat("\n", 601), "x_test.go: has 601 lines, more than 600"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, bad := Sizes(oneFile(t, c.path, c.src))
			expect(t, bad, c.want)
		})
	}
}

func TestWallsComplain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ path, src, want string }{
		"111 names at the top": {"x.go", "package x\n" + strings.Repeat("func F() {}\n", 111), ". exports 111 names, more than 110"},
		"110 names at the top": {"x.go", "package x\ntype T int\nvar A, b = 1, 2\nfunc (T) M() {}\n" + strings.Repeat("const C = 1\n", 108), ""},
		"names of tests":       {"x_test.go", "package x\n" + strings.Repeat("func F() {}\n", 111), ""},
		"names of a package":   {"internal/store/x.go", "package x\n" + strings.Repeat("func F() {}\n", 111), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect(t, Walls(oneFile(t, c.path, c.src)), c.want)
		})
	}
}

func TestSizesAreMeasured(t *testing.T) {
	t.Parallel()
	m := oneFile(t, "internal/store/x.go", "package store\n\nfunc a() {}\nfunc b() {\n}\nfunc (*S) c() {\n\n}\n")
	m.Go = append(m.Go, oneFile(t, "store/x_test.go", "package store\nfunc d() {\n\n\n}\n").Go...)
	got, _ := Sizes(m)
	want := Figures{
		Funcs: 3, Median: 2, Percentile9: 3,
		LongestFunc: Size{"store/x_test.go d", 4},
		LongestFile: Size{"internal/store/x.go", 8}, LongestTest: Size{"store/x_test.go", 5},
	}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestTargetsComplain(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ text, want string }{
		"a target":                       {"Type `make run` and wait.", ""},
		"a target with a number":         {"Type `make run2`.", "README.md: make run2 is no target"},
		"no target":                      {"Type `make rum` and wait.", "README.md: make rum is no target"},
		"a line of a script":             {"\nmake rum ARGS=\"-x\"\n", "make rum is no target"},
		"a line of a session":            {"$ make rum", "make rum is no target"},
		"English at the start of a line": {"and\nmake sure of it", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := Module{Texts: []Text{{"Makefile", "run: ## it\n\techo\n"}, {"README.md", c.text}}}
			expect(t, Targets(m), c.want)
		})
	}
}

// oneFile is a module of one file.
func oneFile(t *testing.T, path, src string) Module {
	t.Helper()
	f, err := Parse(path, []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	return Module{Go: []*File{f}, Texts: []Text{{path, src}}}
}

// expect wants one complaint with the text, or none.
func expect(t *testing.T, bad []string, want string) {
	t.Helper()
	switch {
	case want == "" && len(bad) > 0:
		t.Errorf("complains of what is right: %q", bad)
	case want != "" && (len(bad) != 1 || !strings.Contains(bad[0], want)):
		t.Errorf("complaints %q, want one with %q", bad, want)
	}
}
