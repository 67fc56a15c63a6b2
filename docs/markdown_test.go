package docs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// block is one fenced piece of a document.
type block struct {
	section string // text of the heading above
	kind    string // what stands behind the fence: "sql", "sh add-task.sh"
	text    string
}

// read returns the text of a file.
func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// write makes a file.
func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// blocks reads the fenced pieces of a document in order.
func blocks(t *testing.T, file string) []block {
	t.Helper()
	body := read(t, file)
	var found []block
	var section string
	open := false
	for line := range strings.Lines(body) {
		switch {
		case strings.HasPrefix(line, "```"):
			if open = !open; open {
				found = append(found, block{section: section, kind: strings.TrimSpace(line[3:])})
			}
		case open:
			found[len(found)-1].text += line
		case strings.HasPrefix(line, "## "):
			section = strings.TrimSpace(line[3:])
		}
	}
	return found
}

// ofKind gives the texts of one kind; at least one, or the document has lost what the test is about.
func ofKind(t *testing.T, all []block, kind string) []block {
	t.Helper()
	var some []block
	for _, b := range all {
		if b.kind == kind {
			some = append(some, b)
		}
	}
	if len(some) == 0 {
		t.Fatalf("no block of kind %q", kind)
	}
	return some
}

// quoted are the statements inside Java text blocks and PHP nowdocs.
var quoted = regexp.MustCompile(`(?s)"""\n(.*?)"""|<<<'SQL'\n(.*?)\s+SQL,`)

// statements gives the statements that a program of the document prepares, for one database and table.
func statements(t *testing.T, program, database, table string) []string {
	t.Helper()
	var found []string
	for _, m := range quoted.FindAllStringSubmatch(program, -1) {
		text := strings.NewReplacer("%1$s", database, "%2$s", table).Replace(m[1] + m[2])
		if strings.Contains(text, "%") {
			t.Fatalf("a placeholder is left in %s", text)
		}
		found = append(found, text)
	}
	return found
}

// example is a line of the document's table of places.
type example struct {
	bizID  uint64
	number int
	table  string
}

// places reads the lines "| 1 | 4023 | toc_3.task_0951 |".
func places(t *testing.T) []example {
	t.Helper()
	body := read(t, "sql.md")
	var rows []example
	for line := range strings.Lines(body) {
		var row example
		if n, _ := fmt.Sscanf(line, "| %d | %d | %s |", &row.bizID, &row.number, &row.table); n == 3 {
			rows = append(rows, row)
		}
	}
	return rows
}

// texts returns the texts of blocks.
func texts(all []block) []string {
	var found []string
	for _, b := range all {
		found = append(found, b.text)
	}
	return found
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s"]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	dropped = regexp.MustCompile(`[^\w\- ]`) // of a heading, in its anchor
)

// anchors gives the headings of a page as links name them.
func anchors(page string) map[string]bool {
	all := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		all[strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return all
}

// lost gives the links of a page in a folder that lead to no file or heading.
func lost(folder, page string) (dead []string) {
	for _, m := range link.FindAllStringSubmatch(page, -1) {
		file, anchor, _ := strings.Cut(m[1], "#")
		if strings.Contains(file, "://") {
			continue
		}
		target := page
		if file != "" {
			text, err := os.ReadFile(filepath.Join(folder, file))
			if err != nil {
				dead = append(dead, m[1])
				continue
			}
			target = string(text)
		}
		if anchor != "" && !anchors(target)[anchor] {
			dead = append(dead, m[1])
		}
	}
	return dead
}

func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("pages %v, error %v", pages, err)
	}
	for _, page := range append(pages, filepath.Join("..", "README.md")) {
		text := read(t, page)
		if dead := lost(filepath.Dir(page), text); len(dead) > 0 {
			t.Errorf("%s: links that lead nowhere: %q", page, dead)
		}
	}
	const bad = "# A = b\n[x](gone.md) [y](#a--c) [z](#a--b) [w](sql.md#5-add-a-task) [v](sql.md#5-add) [u](https://example.com/x)"
	if dead := lost(".", bad); strings.Join(dead, " ") != "gone.md #a--c sql.md#5-add" {
		t.Errorf("of a page with bad links: %q", dead)
	}
}
