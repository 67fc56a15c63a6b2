package docs_test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Around the blocks of go.md: the imports that they need.
const (
	aroundGo = `package shop

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/config"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/outbox"
	"github.com/tocsinhq/tocsin/schedule"
	"github.com/tocsinhq/tocsin/worker"
)

`
	aroundGoTest = `package shop

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/node/nodetest"
	"github.com/tocsinhq/tocsin/schedule"
	"github.com/tocsinhq/tocsin/tocsintest"
)

`
)

// TestTheGuidesPackageCompilesAndPassesItsTests makes a package of all blocks of go.md, vets it, and runs the tests among them.
func TestTheGuidesPackageCompilesAndPassesItsTests(t *testing.T) {
	t.Parallel()
	all := blocks(t, "go.md")
	dir := t.TempDir()
	var files []string
	for name, text := range map[string]string{
		"shop.go":      aroundGo + strings.Join(texts(ofKind(t, all, "go")), "\n"),
		"shop_test.go": aroundGoTest + strings.Join(texts(ofKind(t, all, "go test")), "\n"),
	} {
		file := filepath.Join(dir, name)
		write(t, file, text)
		files = append(files, file)
	}
	for _, command := range [][]string{{"vet"}, {"test", "-count=1", "-v"}} {
		out, err := exec.CommandContext(t.Context(), "go", append(command, files...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", command[0], err, out)
		}
		if command[0] == "test" && strings.Count(string(out), "--- PASS") != 6 {
			t.Errorf("want six tests that pass:\n%s", out)
		}
	}
}

// aroundReadme is what the README's example leaves to its reader's imagination.
const aroundReadme = `package main

import (
	"context"
	"database/sql"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/node"
)

type Order struct{ ID uint64 }

func closeIfUnpaid(context.Context, uint64, string) error { return nil }

func main() { _, _, _ = orderPlaced, orderPaid, serve }

`

// aroundSteps is the same for the blocks inside of numbered steps, which are one function together.
const aroundSteps = `
func serve(ctx context.Context) error {
%s
	if err != nil {
		return err
	}
	defer func() { _ = tasks.Close() }()
	return runNode(ctx, cfg)
}
`

// stepBlock is a block inside of a numbered step.
var stepBlock = regexp.MustCompile("(?ms)^   ```go\n(.*?)^   ```")

// steps puts the blocks of numbered steps together.
func steps(t *testing.T, file string) string {
	t.Helper()
	page := read(t, file)
	found := stepBlock.FindAllStringSubmatch(page, -1)
	if len(found) != 2 {
		t.Fatalf("%d blocks in steps of %s, want that of the client and that of the node", len(found), file)
	}
	return strings.Replace(aroundSteps, "%s", found[0][1]+found[1][1], 1)
}

func TestTheReadmesExampleCompiles(t *testing.T) {
	t.Parallel()
	example := ofKind(t, blocks(t, "../README.md"), "go")[0].text
	dir := t.TempDir()
	file := filepath.Join(dir, "main.go")
	write(t, file, aroundReadme+example+steps(t, "../README.md"))
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "main"), file).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
