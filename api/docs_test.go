package api_test

import (
	"os"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

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
	for _, table := range []map[string]bad{badTokens(strings.Repeat("x", 70)), badBodies(), badPaths(), badLists(), badSchedules(), badChanges()} {
		for _, b := range table {
			if !strings.Contains(page, "`"+b.code+"`") {
				t.Errorf("docs/api.md lacks the code %s", b.code)
			}
		}
	}
}
