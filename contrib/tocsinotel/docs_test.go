package tocsinotel_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// aroundDocs stands before the blocks of the guide that need this module: imports, and what other blocks define.
const aroundDocs = `package shop

import (
	"context"
	"log"
	"net/http"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/propagation"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/contrib/tocsinotel"
	"github.com/tocsinhq/tocsin/contrib/tocsinotel/nodeotel"
	"github.com/tocsinhq/tocsin/webhook"
)

`

func guide(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/go.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTheBlocksOfTheGuideCompile(t *testing.T) {
	t.Parallel()
	blocks := regexp.MustCompile("(?ms)^```go otel\n(.*?)^```$").FindAllStringSubmatch(guide(t), -1)
	if len(blocks) != 2 {
		t.Fatalf("%d blocks, want 2", len(blocks))
	}
	file := filepath.Join(t.TempDir(), "shop.go")
	if err := os.WriteFile(file, []byte(aroundDocs+blocks[0][1]+"\n"+blocks[1][1]), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "vet", file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// Every name of a metric and of an attribute in the sources is in the guide.
func TestTheGuideNamesAllThatIsMeasured(t *testing.T) {
	t.Parallel()
	text := guide(t)
	names := []string{"messaging.client.sent.messages", "messaging.client.operation.duration", "messaging.client.consumed.messages", "messaging.process.duration"}
	for _, file := range []string{"attributes.go", "metrics.go"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`"(tocsin\.[a-z_.]+)"`).FindAllStringSubmatch(string(source), -1) {
			names = append(names, m[1])
		}
	}
	if len(names) != 15 {
		t.Errorf("found %q", names)
	}
	for _, name := range names {
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("docs/go.md lacks %s", name)
		}
	}
}
