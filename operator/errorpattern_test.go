package operator

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestAnErrorPatternHasAStarForWhatDiffers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":             "",
		"no route":     "no route",
		"no stock: 42": "no stock: *",
		"callback answered 503 Service Unavailable: order 42 is locked":                           "callback answered 503 Service Unavailable: order * is locked",
		"callback answered 404 Not Found":                                                         "callback answered 404 Not Found",
		"status code: 429, request 8f14e45f-ceea-467f-a0e6-0a3c5a1b2c3d":                          "status code: 429, request *",
		"HTTP/1.1 502 from 10.0.0.7:8480":                                                         "HTTP/1.1 502 from *",
		"error code 5031":                                                                         "error code *",
		`Post "https://shop.example/close?id=7": dial tcp 10.0.0.7:443: connection refused`:       "Post *: dial tcp *: connection refused",
		"dial tcp shop.internal:443: i/o timeout":                                                 "dial tcp shop.internal:*: i/o timeout",
		"dial tcp [fe80::abcd:1]:443: no route":                                                   "dial tcp [*]:*: no route",
		"Error 1062 (23000): Duplicate entry '42-close' for key 'uk_biz'":                         "Error * (*): Duplicate entry * for key *",
		"can't find the user's order 5, isn't there":                                              "can't find the user's order *, isn't there",
		"no result within 10s, began 2026-11-26T17:30:00.125Z":                                    "no result within *, began *",
		"began at 2026-11-26 17:30:00":                                                            "began at *",
		"orders 1, 2, 3 and 4 failed":                                                             "orders * and * failed",
		"orders 17 and 4 failed":                                                                  "orders * and * failed",
		"crashed 5 times, last on shop-1-abcdefgh":                                                "crashed * times, last on *",
		"commit 9fceb02d0ae598e95dc970b74767f19372d61af8 of 0xdeadbeef":                           "commit * of *",
		"mail to ann.lee+shop@mail.example bounced":                                               "mail to * bounced",
		`callback answered 500 Internal Server Error: {"error":"no row 7","order":42,"trace":"a7`: `callback answered 500 Internal Server Error: {"error":"no row *","order":*,"trace":"*`,
		"订单42失败":                         "订单*失败",
		"`shop`.`orders` is crashed":     "*.* is crashed",
		"5 * 7":                          "*",
		strings.Repeat("many ", 40):      strings.Repeat("many ", 32) + "*",
		strings.Repeat("é ", 79) + "7 7": strings.Repeat("é ", 79) + "*",
	} {
		if got := errorPattern(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestTheLongestPartOfAPattern(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]string{"": "", "*": "", "no route": "no route", "order * is locked by *": "is locked by", "*: timeout": ": timeout"} {
		if got := longestPart(pattern); got != want {
			t.Errorf("%q: %q, want %q", pattern, got, want)
		}
	}
}

// Errors that differ in numbers and ids alone have one pattern.
func TestErrorsThatDifferInNumbersHaveOnePattern(t *testing.T) {
	t.Parallel()
	digits := func() string { return strconv.FormatUint(rand.Uint64()>>rand.UintN(64), 10) }
	for range 2000 {
		words := []string{"order", "of", "shop-#", "is", "locked:", "at", "#.#.#.#:#", "(#)", "retry", "#ms", `"#"`, "a#b#c", "[#,", "#]", "in", "#%"}
		var template []string
		for range rand.IntN(12) {
			template = append(template, words[rand.IntN(len(words))])
		}
		fill := func() string {
			text := strings.Join(template, " ")
			for strings.Contains(text, "#") {
				text = strings.Replace(text, "#", digits(), 1)
			}
			return text
		}
		one, two := fill(), fill()
		if a, b := errorPattern(one), errorPattern(two); a != b {
			t.Errorf("%q has %q\n%q has %q", one, a, two, b)
		}
	}
}

// matches reports whether a text is one of the pattern, with any text in place of each *.
func matches(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	last := len(parts) - 1
	if last == 0 {
		return pattern == text
	}
	if !strings.HasPrefix(text, parts[0]) {
		return false
	}
	text = text[len(parts[0]):]
	for _, part := range parts[1:last] {
		at := strings.Index(text, part)
		if at < 0 {
			return false
		}
		text = text[at+len(part):]
	}
	return strings.HasSuffix(text, parts[last])
}

func FuzzErrorPattern(f *testing.F) {
	for _, text := range []string{"", "order 42 is locked", `a "b`, "`", "'a' b's", "http 503", "a@b.c", "1:2::3", "* 5 *", "\xff7\xff", strings.Repeat("é7 ", 90), `"\`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		pattern := errorPattern(text)
		if !matches(pattern, text) {
			t.Errorf("%q is not of its pattern %q", text, pattern)
		}
		if part := longestPart(pattern); !strings.Contains(text, part) {
			t.Errorf("%q has no %q, which is of its pattern %q", text, part, pattern)
		}
		if utf8.RuneCountInString(pattern) > patternRunes+1 || utf8.ValidString(text) && !utf8.ValidString(pattern) {
			t.Errorf("%q has the pattern %q", text, pattern)
		}
	})
}
