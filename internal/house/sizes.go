package house

import (
	"fmt"
	"go/ast"
	"slices"
)

// The limits, in lines.
const (
	maxFunc     = 60
	maxFile     = 400
	maxTestFile = 600
)

// Size is the length of a function or file.
type Size struct {
	Name  string // "internal/store/peek.go Store.Peek", or the file's path
	Lines int
}

// Figures are what the sizes come to.
type Figures struct {
	Funcs       int  // outside tests
	Median      int  // lines of a function outside tests, from func to the closing brace
	Percentile9 int  // nine in ten functions outside tests are at most so long
	LongestFunc Size // tests too
	LongestFile Size // outside tests
	LongestTest Size // file
}

// Sizes checks the lengths of all functions and files, and gives the figures.
func Sizes(m Module) (Figures, []string) {
	var figures Figures
	var lengths []int
	var bad []string
	for _, f := range m.Go {
		bad = append(bad, fileSize(&figures, f)...)
		for _, s := range funcSizes(f) {
			if !f.IsTest() {
				lengths = append(lengths, s.Lines)
			}
			figures.LongestFunc = longer(figures.LongestFunc, s)
			bad = append(bad, tooLong(s)...)
		}
	}
	if slices.Sort(lengths); len(lengths) > 0 {
		figures.Funcs = len(lengths)
		figures.Median, figures.Percentile9 = lengths[len(lengths)/2], lengths[len(lengths)*9/10]
	}
	return figures, bad
}

// fileSize notes the file's length.
func fileSize(figures *Figures, f *File) []string {
	size, limit := Size{f.Path, f.lines()}, maxFile
	if f.IsTest() {
		figures.LongestTest = longer(figures.LongestTest, size)
		limit = maxTestFile
	} else {
		figures.LongestFile = longer(figures.LongestFile, size)
	}
	if size.Lines > limit {
		return []string{fmt.Sprintf("%s: has %d lines, more than %d", f.Path, size.Lines, limit)}
	}
	return nil
}

// funcSizes measures the declared functions; one written inside another counts there.
func funcSizes(f *File) []Size {
	var sizes []Size
	for _, decl := range f.AST.Decls {
		if d, ok := decl.(*ast.FuncDecl); ok {
			first, last := f.fset.Position(d.Pos()).Line, f.fset.Position(d.End()).Line
			sizes = append(sizes, Size{f.Path + " " + funcName(d), last - first + 1})
		}
	}
	return sizes
}

func tooLong(s Size) []string {
	if s.Lines <= maxFunc {
		return nil
	}
	return []string{fmt.Sprintf("%s: has %d lines, more than %d", s.Name, s.Lines, maxFunc)}
}

func longer(a, b Size) Size {
	if b.Lines > a.Lines {
		return b
	}
	return a
}
