package tocsinkafka_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/biztype"
	"github.com/tocsinhq/tocsin/config"
	"github.com/tocsinhq/tocsin/contrib/tocsinkafka"
	_ "github.com/tocsinhq/tocsin/node" // of the page
)

// blocks returns the blocks of a kind in docs/sinks.md.
func blocks(t *testing.T, kind string) (all []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/sinks.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^```"+kind+"\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		all = append(all, m[1])
	}
	return all
}

// The first config of the page allows what its policies say.
func TestTheConfigAndThePoliciesOfThePage(t *testing.T) {
	t.Parallel()
	const around = "cluster: c1\nlayout: {databases: 4, tables: 2, ownership: rows}\nservers: [{dsn: \"root@tcp(h:1)/\", databases: [0-3]}]\n"
	secret := func(name string) (string, bool) { return "s", strings.HasSuffix(name, "_PASSWORD") }
	var first *tocsinkafka.Maker
	for _, text := range blocks(t, "yaml config") {
		file, err := config.Parse([]byte(around+text), "tocsin.yaml", secret)
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if file.Sinks["orders-kafka"].Kind != "kafka" {
			continue // of another broker
		}
		m := maker(t, file.Sink("orders-kafka"))
		if first == nil {
			first = m
		}
	}
	policies := blocks(t, "yaml policy")
	if len(policies) < 2 {
		t.Fatalf("%d policies", len(policies))
	}
	for _, text := range policies {
		all, err := biztype.Parse([]byte(text), "biz.yaml")
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		for _, p := range all {
			if p.Sink.Name != "orders-kafka" {
				continue
			}
			if _, err := first.Sink(p); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestTheProgramsOfThePageCompile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"shop.go": `package shop

import (
	"github.com/tocsinhq/tocsin/contrib/tocsinkafka"
	"github.com/tocsinhq/tocsin/node"
	"github.com/tocsinhq/tocsin/sink"
)

` + strings.Join(blocks(t, "go kafka"), "\n"),
		"shop_test.go": `package shop

import (
	"testing"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/sink"
	"github.com/tocsinhq/tocsin/sink/sinktest"
)

var (
	address                   = "127.0.0.1:1"
	New                       func(sink.Config) (sink.Maker, error)
	create                    func(testing.TB, string)
	read                      func(testing.TB, string, int) []sink.Message
	tooLarge                  func(testing.TB, string) (tocsin.Sink, tocsin.Info)
	kill, start, freeze, thaw func(testing.TB)
)

` + strings.Join(blocks(t, "go sinktest"), "\n"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "vet", filepath.Join(dir, "shop.go"), filepath.Join(dir, "shop_test.go"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
