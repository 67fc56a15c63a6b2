package operator

import (
	"regexp"
	"strings"
)

// httpStatus is what a pattern keeps of the numbers: 503 and 404 are two errors.
const httpStatus = `(?i:\b(?:answered|status|code|http)(?:/[\d.]+)?[ :=]+[1-5]\d\d\b)`

// numbered is a number, an id, a hash, a date, or an address with its port.
const numbered = `[\w-]*\d[\w-]*(?:[.:]+(?:[\w-]*\d[\w-]*|[[:xdigit:]]{1,4}\b))*`

var (
	keeps   = regexp.MustCompile(`^` + httpStatus + `$`)
	numbers = regexp.MustCompile(numbered)

	// varies finds what is of a task and not of its error, and what is to be kept. A quote without an end is of a text that was cut.
	varies = regexp.MustCompile(strings.Join([]string{
		httpStatus,
		`"(?:[^"\\]|\\.)*(?:"|\\?$)`,
		"`[^`]*(?:`|$)",
		`\B'[^']*(?:'\B|$)`,
		`[\w.+-]+@[\w.-]*\w`,
		numbered,
	}, "|"))

	// stars are several of these in a row: lists differ in length.
	stars = regexp.MustCompile(`\*(?:[\s,;]*\*)+`)
)

// patternRunes is the length of a pattern before its last *. A last error is cut at tocsin.MaxError characters, so equal errors
// end at different words.
const patternRunes = 160

// errorPattern returns a last error with * for what may differ between tasks with the same error: numbers, ids, hashes, times,
// addresses and quoted text. A status of HTTP stays, and of quoted text in JSON all but its numbers: messages are quoted there. If
// * stands for any text, the pattern matches the last error.
func errorPattern(text string) string {
	json := strings.Contains(text, `{"`)
	pattern := varies.ReplaceAllStringFunc(text, func(word string) string {
		switch {
		case keeps.MatchString(word):
			return word
		case json && word[0] == '"':
			return numbers.ReplaceAllString(word, "*")
		}
		return "*"
	})
	pattern = stars.ReplaceAllString(pattern, "*")
	runes := 0
	for i := range pattern {
		if runes++; runes > patternRunes {
			return strings.TrimSuffix(pattern[:i], "*") + "*"
		}
	}
	return pattern
}

// longestPart returns the longest part of a pattern between its stars, which stands in each last error of the pattern.
func longestPart(pattern string) (longest string) {
	for part := range strings.SplitSeq(pattern, "*") {
		if part = strings.TrimSpace(part); len(part) > len(longest) {
			longest = part
		}
	}
	return longest
}
