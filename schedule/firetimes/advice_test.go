package firetimes_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/tocsinhq/tocsin/schedule/firetimes"
)

// dialect is a row of the page's table of what other dialects have.
var dialect = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([^|]+) \\| ([^|]+) \\|$")

// write is what a message says to write instead.
var write = regexp.MustCompile(`write "([^"]+)"`)

// TestEachDialectWorksOrIsAdvised: as the page has it. What a message says to write is right itself.
func TestEachDialectWorksOrIsAdvised(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/schedules.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| written | dialect |")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := dialect.FindAllStringSubmatch(table, -1)
	for _, row := range rows {
		_, err := firetimes.ValuesOf(row[1])
		works := strings.HasPrefix(row[3], "works")
		if works != (err == nil) || !works && !strings.Contains(err.Error(), row[3]) {
			t.Errorf("%s: %v, and the page says: %s", row[1], err, row[3])
		}
		if err == nil {
			continue
		}
		for _, instead := range write.FindAllStringSubmatch(err.Error(), -1) {
			if _, err := firetimes.ValuesOf(instead[1]); err != nil {
				t.Errorf("%s: the advice is wrong: %v", row[1], err)
			}
		}
	}
	if want := strings.Count(table, "\n| `"); len(rows) != want || want < 33 {
		t.Errorf("%d rows are tried of %d", len(rows), want)
	}
}
