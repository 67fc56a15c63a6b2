package api_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	_ "github.com/oapi-codegen/runtime" // of the generated client: go.mod keeps it
)

// A program whose client is generated from openapi.yaml adds, finds and cancels a task.
func TestAGeneratedClient(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/client")); err != nil {
		t.Fatal(err)
	}
	generated := filepath.Join(dir, "client.gen.go")
	for _, args := range [][]string{
		{"tool", "oapi-codegen", "-config", "testdata/client.yaml", "-o", generated, openAPIFile},
		{"run", filepath.Join(dir, "main.go"), generated, s.url, s.tokens["write"]},
	} {
		if out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", args[0], err, out)
		}
	}
}
