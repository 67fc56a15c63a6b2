package docs_test

import (
	"os/exec"
	"path/filepath"
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

	"github.com/jmoiron/sqlx"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/config"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/outbox"
	"github.com/tocsinhq/tocsin/schedule"
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
