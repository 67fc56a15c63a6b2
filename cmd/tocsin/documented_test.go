package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// documented finds the uses of this program in a text: in code spans, and on
// lines of their own in blocks.
var documented = regexp.MustCompile("(?m)(?:`|^)tocsin ([a-z][^`#\n]*)")

func TestTheDocsNameCommandsAndFlagsThatThereAre(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"README.md", "docs/architecture.md", "docs/operations.md", "docs/performance.md", "docs/faults.md", "docs/sql.md", "docs/api.md", "docs/security.md", "docs/deployment.md", "docs/runbook.md", "docs/sizing.md", "docs/schedules.md",
		"configs/biz.yaml", "configs/schedules.yaml", "configs/dev.yaml", "configs/production.yaml"} {
		text, err := os.ReadFile("../../" + page)
		if err != nil {
			t.Fatal(err)
		}
		for _, use := range documented.FindAllStringSubmatch(string(text), -1) {
			if why := unknownIn(strings.Fields(use[1])); why != "" {
				t.Errorf("%s: `tocsin %s`: %s", page, strings.TrimSpace(use[1]), why)
			}
		}
	}
}

// unknownIn says which word of a use is neither a command nor a flag of it.
func unknownIn(words []string) string {
	c, rest, err := newRoot(nil, nil).Find(words)
	if err != nil || !c.HasParent() {
		return "no such command"
	}
	if c.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return "no command " + rest[0] + " of it"
	}
	for _, word := range rest {
		if name, is := strings.CutPrefix(word, "--"); is && !hasFlag(c, strings.SplitN(name, "=", 2)[0]) {
			return "no flag --" + name
		}
	}
	return ""
}

func hasFlag(c *cobra.Command, name string) bool {
	return c.Flags().Lookup(name) != nil || c.InheritedFlags().Lookup(name) != nil
}

func TestAnUnknownCommandOrFlagInTheDocsIsFound(t *testing.T) {
	t.Parallel()
	for use, known := range map[string]bool{
		"sweep --grace 0s": true, "task list --biz-id N --json": true, "dev": true,
		"sweeep": false, "sweep --race 0s": false, "task lists": false,
	} {
		if got := unknownIn(strings.Fields(use)); (got == "") != known {
			t.Errorf("%s: %q", use, got)
		}
	}
}
