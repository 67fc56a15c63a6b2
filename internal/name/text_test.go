package name

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTextsFitAColumn(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "plain": "plain", "two\nlines ": "two\nlines ", "鐘🔔 \u2028": "鐘🔔 \u2028", "\ufffd": "\ufffd", `\xff`: `\xff`,
		"a\xffb": `a\xffb`, "a\x00b": `a\x00b`, "\xe9\x90": `\xe9\x90`, "\xed\xa0\x80": `\xed\xa0\x80`,
		strings.Repeat("鐘", 300): strings.Repeat("鐘", 20), strings.Repeat("x", 18) + "\xff": strings.Repeat("x", 18), strings.Repeat("x", 16) + "\xff": strings.Repeat("x", 16) + `\xff`,
	} {
		got := Text(text, 20)
		if got != want || !utf8.ValidString(got) || Text(got, 20) != got {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
