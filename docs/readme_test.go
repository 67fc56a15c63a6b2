package docs_test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

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
