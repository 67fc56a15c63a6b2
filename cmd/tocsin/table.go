package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// columns writes rows for people, each column as wide as its widest cell. The
// last one is not padded.
func columns(w io.Writer, rows ...[]string) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	_ = t.Flush() // an error of w shows at its own writes too
}
