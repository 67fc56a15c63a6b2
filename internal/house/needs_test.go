package house

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// maxSums is how many lines the go.sum of a program that only adds tasks, or works on them by HTTP, may have.
const maxSums = 60

// lightPrograms are those programs.
var lightPrograms = map[string]string{"adder": adder, "worker": pulls}

const pulls = `package main

import (
	"context"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/worker"
)

func main() {
	w, err := worker.New(worker.Config{})
	if err != nil {
		panic(err)
	}
	worker.Handle(w, tocsin.Define[string]("ring"), func(context.Context, *tocsin.Task[string]) error { return nil })
	_ = w.Run(context.Background())
}
`

const adder = `package main

import (
	"context"

	"github.com/tocsinhq/tocsin"
)

func main() {
	client, err := tocsin.Open(context.Background(), tocsin.Config{})
	if err != nil {
		panic(err)
	}
	ring := tocsin.Define[string]("ring")
	_, _ = client.Add(context.Background(), ring.New(1, "", tocsin.In(0)))
}
`

// unneeded begin the modules that such a program must not need, not even to verify what it needs.
var unneeded = []string{"go.etcd.io/", "google.golang.org/", "go.uber.org/zap", "github.com/prometheus/", "github.com/goccy/", "github.com/robfig/"}

// elsewhere begin the modules that only the command, the fault tests, the tools, the HTTP API or users of PostgreSQL, OpenTelemetry, Kafka, RabbitMQ or NATS need. They have a go.mod of their own.
var elsewhere = []string{
	"github.com/Shopify/toxiproxy", "github.com/spf13/", "github.com/schollz/", "golang.org/x/term", "honnef.co/", "go.etcd.io/etcd/server",
	"github.com/grafana/", "github.com/jackc/", "github.com/twmb/", "github.com/rabbitmq/", "github.com/nats-io/", "go.opentelemetry.io/contrib", "github.com/danielgtaylor/", "github.com/getkin/",
}

// TestProgramsWithoutANodeNeedFewModules makes the modules of such programs. go mod tidy downloads only what the module cache
// lacks. A go.sum also covers what the tests of the packages import.
func TestProgramsWithoutANodeNeedFewModules(t *testing.T) {
	t.Parallel()
	for name, program := range lightPrograms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			needsFew(t, name, program)
		})
	}
}

func needsFew(t *testing.T, name, program string) {
	t.Helper()
	if _, err := wholeModule(); err != nil { // read here, so that the result is not cached when a file changes
		t.Fatal(err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(root, "go.sum")) // saves the look-ups in the checksum database
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for file, text := range map[string]string{
		"main.go": program, "go.sum": string(sums),
		"go.mod": fmt.Sprintf("module example.com/%s\n\ngo 1.26.0\n\nrequire %s v0.0.0\n\nreplace %[2]s => %s\n", name, modulePath, root),
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tidy := exec.CommandContext(t.Context(), "go", "mod", "tidy")
	tidy.Dir, tidy.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	if out, err := tidy.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	t.Logf("%d lines in go.sum", len(lines))
	if len(lines) > maxSums || len(lines) < 4 {
		t.Errorf("%d lines in go.sum, want at most %d:\n%s", len(lines), maxSums, text)
	}
	for _, line := range lines {
		if begins(line, unneeded) {
			t.Errorf("it needs %s", line)
		}
	}
}

func TestTheLibraryRequiresNothingOfTheCommandAndTheTests(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if begins(strings.TrimPrefix(strings.TrimSpace(line), "require "), append(elsewhere, "tool ")) {
			t.Errorf("go.mod: %sit belongs into the go.mod of cmd/tocsin, test/chaos, internal/dashboards, internal/tools, contrib/tocsinpg, contrib/tocsinotel, contrib/tocsinkafka, contrib/tocsinrabbitmq, contrib/tocsinnats or api", line)
		}
	}
}

func begins(line string, with []string) bool {
	for _, prefix := range with {
		if strings.HasPrefix(line, prefix) {
			return true
		}
	}
	return false
}
