package api_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	_ "github.com/oapi-codegen/runtime" // of the generated client: go.mod keeps it

	"github.com/tocsinhq/tocsin/api"
)

const openAPIFile = "openapi.yaml"

var update = flag.Bool("update", false, "write openapi.yaml before it is compared")

func TestOpenAPIIsThatOfTheCode(t *testing.T) {
	t.Parallel()
	a := api.New(api.Config{})
	want, err := a.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(openAPIFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(openAPIFile); err != nil || string(got) != string(want) {
		t.Errorf("%v: openapi.yaml differs from the code: run `make openapi`", err)
	}
}

func TestOpenAPIIsValid(t *testing.T) {
	t.Parallel()
	doc, err := openapi3.NewLoader().LoadFromFile(openAPIFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context(), openapi3.EnableExamplesValidation()); err != nil {
		t.Error(err)
	}
	if doc.OpenAPI != "3.1.0" || doc.Paths.Len() < 10 {
		t.Errorf("OpenAPI %s with %d paths", doc.OpenAPI, doc.Paths.Len())
	}
}

func TestThePageNamesEveryOperationAndProblem(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	doc, err := openapi3.NewLoader().LoadFromFile(openAPIFile)
	if err != nil {
		t.Fatal(err)
	}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			scope, _, _ := strings.Cut(op.Description[strings.LastIndex(op.Description, "Scope: ")+len("Scope: "):], ",")
			row := "| `" + method + " " + path + "` | " + strings.TrimSuffix(scope, ".")
			if !strings.Contains(page, row) {
				t.Errorf("docs/api.md lacks %s", row)
			}
		}
	}
	for _, table := range []map[string]bad{badTokens(strings.Repeat("x", 70)), badBodies(), badPaths(), badLists(), badSchedules(), badChanges(), badActs()} {
		for _, b := range table {
			if !strings.Contains(page, "`"+b.code+"`") {
				t.Errorf("docs/api.md lacks the code %s", b.code)
			}
		}
	}
}

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
