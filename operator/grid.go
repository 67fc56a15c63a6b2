package operator

import (
	"maps"
	"slices"
	"strings"
)

// What stands in a grid for a table that nobody owns, and for one whose owner has no character of its own.
const (
	MarkNobody = "."
	MarkOther  = "+"
)

const markText = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

// gridStep is what the length of a full line is a multiple of, so that table numbers can be counted.
const gridStep = 16

// Marks gives each owner a character, in the order of Tables.Shares. Those beyond the 62nd share MarkOther.
func Marks(owners []string) map[string]string {
	marks := make(map[string]string)
	for _, owner := range owners {
		marks[owner] = MarkOther
	}
	delete(marks, "")
	for i, owner := range slices.Sorted(maps.Keys(marks)) {
		if i < len(markText) {
			marks[owner] = markText[i : i+1]
		}
	}
	marks[""] = MarkNobody
	return marks
}

// GridLine is the owners of consecutive tables of one database, a character each.
type GridLine struct {
	Database int
	First    int // of the tables, in its database
	Marks    string
}

// Grid draws the owners of all tables, perDatabase to a database, in lines of at most width characters, but at least 16.
func Grid(owners []string, marks map[string]string, perDatabase, width int) []GridLine {
	if width < perDatabase {
		width = max(width-width%gridStep, gridStep)
	}
	var lines []GridLine
	database := 0
	for tables := range slices.Chunk(owners, perDatabase) {
		first := 0
		for part := range slices.Chunk(tables, width) {
			lines = append(lines, GridLine{Database: database, First: first, Marks: draw(part, marks)})
			first += len(part)
		}
		database++
	}
	return lines
}

func draw(owners []string, marks map[string]string) string {
	var text strings.Builder
	for _, owner := range owners {
		text.WriteString(marks[owner])
	}
	return text.String()
}
