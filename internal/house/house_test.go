package house

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// wholeModule reads the module once for all tests.
var wholeModule = sync.OnceValues(func() (Module, error) { return Load("../..") })

// holds fails the test with every complaint of the rule about the module.
func holds(t *testing.T, rule func(Module) []string) {
	t.Helper()
	t.Parallel()
	m, err := wholeModule()
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Go) < 20 {
		t.Fatalf("only %d files: is this the module?", len(m.Go))
	}
	for _, complaint := range rule(m) {
		t.Error(complaint)
	}
}

func TestImportDirections(t *testing.T)               { holds(t, Imports) }
func TestSQLStandsInItsHomesAlone(t *testing.T)       { holds(t, SQL) }
func TestAPageDeepAmongTheRowsIsJudged(t *testing.T)  { holds(t, Pages) }
func TestWhatProgramsBringAlongIsJudged(t *testing.T) { holds(t, AtOnce) }
func TestPackagesAreDocumented(t *testing.T)          { holds(t, PackageDocs) }
func TestExportedNamesAreDocumented(t *testing.T) {
	holds(t, ExportedDocs)
}
func TestDocPagesShowValues(t *testing.T)      { holds(t, ShownValues) }
func TestNamesSayWhatIsInside(t *testing.T)    { holds(t, Names) }
func TestTheWallsGetFewer(t *testing.T)        { holds(t, Walls) }
func TestNothingSleeps(t *testing.T)           { holds(t, Sleep) }
func TestTablesAreWalkedInOneWay(t *testing.T) { holds(t, Walks) }
func TestGroupsReturnErrors(t *testing.T)      { holds(t, Groups) }
func TestNoTestIsSkippedSilently(t *testing.T) { holds(t, Skips) }
func TestMakeTestSQLMissesNone(t *testing.T)   { holds(t, Servers) }
func TestTheGateTestsASecondServer(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("../../.ci/run")
	if err != nil || !strings.Contains(string(script), "'make test-sql SERVER=mysql'") {
		t.Errorf("%v: .ci/run does not run make test-sql on MySQL:\n%s", err, script)
	}
}
func TestNoPathOfOneMachine(t *testing.T)       { holds(t, Paths) }
func TestDocumentsNameRealTargets(t *testing.T) { holds(t, Targets) }

// TestSizes prints the figures, too: go test -run TestSizes -v ./internal/house
func TestSizes(t *testing.T) {
	holds(t, func(m Module) []string {
		figures, bad := Sizes(m)
		t.Logf("%d functions: median %d lines, nine in ten at most %d", figures.Funcs, figures.Median, figures.Percentile9)
		t.Logf("longest function: %s, %d lines", figures.LongestFunc.Name, figures.LongestFunc.Lines)
		t.Logf("longest file: %s, %d lines", figures.LongestFile.Name, figures.LongestFile.Lines)
		t.Logf("longest test file: %s, %d lines", figures.LongestTest.Name, figures.LongestTest.Lines)
		return bad
	})
}

func TestScriptsAreExecutable(t *testing.T) {
	t.Parallel()
	scripts, err := filepath.Glob("../../scripts/*.sh")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, name := range append(scripts, "../../.ci/run") {
		info, err := os.Stat(name)
		if err != nil {
			t.Error(err)
		} else if info.Mode()&0o111 == 0 {
			t.Errorf("%s is not executable", name)
		}
	}
}

// TestLoadReadsTheModulesOfTheWorkspaceAlone guards the guards: a rule that reads nothing holds always.
func TestLoadReadsTheModulesOfTheWorkspaceAlone(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, name := range []string{
		"go.mod", "go.work", "a.go", "sub/b.go", "sub/c_test.go", ".ci/run", "Makefile", "cmd/x/go.mod", "cmd/x/g.go", // read
		".git/d.go", "sub/testdata/e.go", "test/peers/go.mod", "test/peers/f.go", "bin/tocsin", "logo.png", // not
	} {
		body := "package x\n"
		switch filepath.Base(name) {
		case "go.mod":
			body = "module x\n"
		case "go.work":
			body = "use (\n\t.\n\t./cmd/x\n)\n"
		}
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(body), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	m, err := Load(root)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, text := range m.Texts {
		texts = append(texts, text.Path)
	}
	if got, want := strings.Join(texts, " "), ".ci/run Makefile a.go cmd/x/g.go cmd/x/go.mod go.mod go.work sub/b.go sub/c_test.go"; got != want {
		t.Errorf("read %s, want %s", got, want)
	}
	if len(m.Go) != 4 || len(m.shipped()) != 3 {
		t.Errorf("%d Go files, %d shipped; want 4, 3", len(m.Go), len(m.shipped()))
	}
}
