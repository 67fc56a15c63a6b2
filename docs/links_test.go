package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

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
			target = text
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
