package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
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

func main() { _, _, _ = orderPlaced, orderPaid, runNode }

`

func TestTheReadmesExampleCompiles(t *testing.T) {
	t.Parallel()
	example := ofKind(t, blocks(t, "../README.md"), "go")[0].text
	dir := t.TempDir()
	file := filepath.Join(dir, "main.go")
	if err := os.WriteFile(file, []byte(aroundReadme+example), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "main"), file).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
