package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"unicode"
	"unicode/utf8"
)

// printed is where the command prints. What others wrote can't steer the terminal there: control characters and those that change
// the direction of a text are printed as \u001b. In JSON that is the same text.
type printed struct{ file *os.File }

// Fd returns the file's descriptor.
func (p printed) Fd() uintptr { return p.file.Fd() }

// Write implements io.Writer.
func (p printed) Write(text []byte) (int, error) {
	safe := text
	if bytes.ContainsFunc(text, steers) {
		safe = make([]byte, 0, len(text)+64)
		for rest := text; len(rest) > 0; {
			r, n := utf8.DecodeRune(rest)
			switch {
			case r == utf8.RuneError && n == 1:
				safe = fmt.Appendf(safe, `\x%02x`, rest[0])
			case steers(r):
				safe = fmt.Appendf(safe, `\u%04x`, r)
			default:
				safe = append(safe, rest[:n]...)
			}
			rest = rest[n:]
		}
	}
	n, err := p.file.Write(safe)
	if err == nil && n < len(safe) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return min(n, len(text)), err
	}
	return len(text), nil
}

// steers reports whether a terminal does something else with r than to show it. A byte that is no text may begin an escape too.
func steers(r rune) bool {
	return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) || r == utf8.RuneError
}
