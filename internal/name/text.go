package name

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns the first characters of a text, at most most, for a column or a page: \xff stands for a byte that
// is no UTF-8, and \x00 for the character 0, which PostgreSQL refuses. What it returns keeps no longer text in memory.
func Text(text string, most int) string {
	if len(text) <= most && utf8.ValidString(text) && strings.IndexByte(text, 0) < 0 {
		return text
	}
	var b strings.Builder
	for at, n := 0, 0; at < len(text); {
		r, size := utf8.DecodeRuneInString(text[at:])
		part := text[at : at+size]
		if r == 0 || r == utf8.RuneError && size == 1 {
			part = fmt.Sprintf(`\x%02x`, text[at])
		}
		if n += utf8.RuneCountInString(part); n > most {
			break
		}
		b.WriteString(part)
		at += size
	}
	return b.String()
}

// Reason returns a text that was given as one, or otherwise if it is blank.
func Reason(text, otherwise string) string {
	if Blank(text) {
		return otherwise
	}
	return text
}

// Blank reports whether nothing of a text can be seen: it has spaces and marks of formatting alone, such as one without width.
func Blank(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsSpace(r) && !unicode.Is(unicode.Cf, r) })
}
