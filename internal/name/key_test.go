package name

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestAKeyIsShownAsItCanBeGiven(t *testing.T) {
	t.Parallel()
	for key, want := range map[string][2]string{
		"":               {"", ""},
		"close":          {"close", "close"},
		"a b/ü🔔👩\u200d💻": {"a b/ü🔔👩\u200d💻", "a b/ü🔔👩\u200d💻"},
		"a\xff":          {`\x61ff`, `\x61ff`},
		"\xff\x00":       {`\xff00`, `\xff00`},
		`\xff`:           {`\x5c786666`, `\x5c786666`},
		`\n`:             {`\n`, `\n`},
		"a\n":            {"a\n", `\x610a`},
		"a ":             {"a ", `\x6120`},
		"a\u2028b":       {"a\u2028b", `\x61e280a862`},
		"a\tb":           {"a\tb", `\x610962`},
		"a\u00a0b":       {"a\u00a0b", `\x61c2a062`},
		"a\u200bb":       {"a\u200bb", `\x61e2808b62`},
		"a\u202eb":       {"a\u202eb", `\x61e280ae62`},
		"a\x00b":         {"a\x00b", `\x610062`},
		"a\u3000b":       {"a\u3000b", `\x61e3808062`},
		"\ufffd":         {"\ufffd", "\ufffd"},
		"a\x00":          {"a\x00", `\x6100`},
		"\x00a":          {`\x0061`, `\x0061`},
	} {
		if got := [2]string{KeyText(key), KeyLine(key)}; got != want {
			t.Errorf("%q: %q, want %q", key, got, want)
		}
	}
	for _, bad := range []string{`\x`, `\xf`, `\xzz`, `\xff `} {
		if key, err := ReadKey(bad); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %q, %v", bad, key, err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		key := string(rapid.OneOf(rapid.SliceOfN(rapid.Byte(), 0, 64), rapid.Map(rapid.String(), func(s string) []byte { return []byte(s) })).Draw(t, "key"))
		for _, text := range []string{KeyText(key), KeyLine(key)} {
			if back, err := ReadKey(text); err != nil || back != key || !utf8.ValidString(text) {
				t.Fatalf("%q is shown as %q, which is %q, %v", key, text, back, err)
			}
		}
	})
}
