package docs_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/ddl"
)

// rolesTable is the table of all roles as docs/security.md shows it.
func rolesTable() string {
	var b strings.Builder
	b.WriteString("| role | for | rights |\n|---|---|---|\n")
	for _, r := range ddl.Roles() {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", r.Name, r.Does, strings.ReplaceAll(strings.Join(r.Needs(), "; "), "task_*", "`task_*`"))
	}
	return b.String()
}

func TestTheRolesOfTheDocsAreThoseOfTheProgram(t *testing.T) {
	t.Parallel()
	text := read(t, "security.md")
	if want := rolesTable(); !strings.Contains(text, want) {
		t.Errorf("docs/security.md lacks this table:\n%s", want)
	}
}
