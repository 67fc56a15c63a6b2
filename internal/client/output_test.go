package client

import (
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestCutKeepsWholeCharacters(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"empty":                             {"", ""},
		"just fits":                         {strings.Repeat("é", MaxOutput), strings.Repeat("é", MaxOutput)},
		"the 1,024th has four bytes":        {strings.Repeat("a", MaxOutput-1) + "😀😀", strings.Repeat("a", MaxOutput-1) + "😀"},
		"all have four bytes":               {strings.Repeat("😀", MaxOutput+1), strings.Repeat("😀", MaxOutput)},
		"cut off by who gave it":            {"ab\xf0\x9f\x98", `ab\xf0\x9f\x98`},
		"invalid in the middle":             {"a\xffb", `a\xffb`},
		"the last byte is no UTF-8":         {strings.Repeat("a", MaxOutput-4) + "\xc3rest", strings.Repeat("a", MaxOutput-4) + `\xc3`},
		"no half of what stands for a byte": {strings.Repeat("a", MaxOutput-1) + "\xc3rest", strings.Repeat("a", MaxOutput-1)},
		"a NUL, which PostgreSQL refuses":   {"a\x00b", `a\x00b`},
	} {
		if got := CutOutput(c.text); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestCutIsAlwaysValidAndShort(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOfN(rapid.Byte(), 0, 3*MaxOutput).Draw(t, "bytes"))
		if rapid.Bool().Draw(t, "valid") {
			text = rapid.StringN(0, 2*MaxOutput, -1).Draw(t, "text")
		}
		got := CutOutput(text)
		if !utf8.ValidString(got) || utf8.RuneCountInString(got) > MaxOutput {
			t.Fatalf("%q has %d characters", got, utf8.RuneCountInString(got))
		}
		if utf8.ValidString(text) && !strings.Contains(text, "\x00") && !strings.HasPrefix(text, got) {
			t.Fatalf("%q is not the beginning of %q", got, text)
		}
	})
}

func TestTheLastOutputWins(t *testing.T) {
	t.Parallel()
	var o Outputs
	o.SetOf(1, "one")
	o.Set("all")
	o.SetOf(2, "two")
	if o.Of(1) != "all" || o.Of(2) != "two" || o.Of(3) != "all" {
		t.Errorf("%q, %q, %q", o.Of(1), o.Of(2), o.Of(3))
	}
}

func TestOutputsMayBeSetAtOnce(t *testing.T) {
	t.Parallel()
	var o Outputs
	var all sync.WaitGroup
	for id := range uint64(8) {
		all.Go(func() {
			o.Set("all")
			o.SetOf(id, "own")
			_ = o.Of(id)
		})
	}
	all.Wait()
	o.SetOf(3, "last")
	if o.Of(3) != "last" {
		t.Error(o.Of(3))
	}
}
