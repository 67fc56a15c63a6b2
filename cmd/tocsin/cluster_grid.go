package main

import (
	"fmt"
	"io"

	"github.com/mattn/go-isatty"
	"golang.org/x/term"

	"github.com/tocsinhq/tocsin/internal/ownership"
)

// plainWidth is how wide a terminal is taken to be that does not say.
const plainWidth = 80

// terminal reports whether people look at the output, and how wide it is.
func (a *app) terminal() (width int, is bool) {
	if a.json || !isatty.IsTerminal(a.out.Fd()) {
		return plainWidth, false
	}
	width, _, err := term.GetSize(int(a.out.Fd()))
	if err != nil || width == 0 {
		width = plainWidth
	}
	return width, true
}

// writeGrid draws one character per table, a line or more per database.
func writeGrid(w io.Writer, g groupTables, width int) {
	name := len(g.Layout.Database(g.Layout.Databases - 1))
	digits := len(fmt.Sprint(g.Layout.Tables - 1))
	room := width - name - digits - 3
	for _, line := range ownership.Grid(g.Owners, ownership.Marks(g.Owners), g.Layout.Tables, room) {
		fmt.Fprintf(w, "%-*s %*d  %s\n", name, g.Layout.Database(line.Database), digits, line.First, line.Marks)
	}
	fmt.Fprintln(w)
}
