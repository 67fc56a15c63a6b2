package client

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// Words returns the text of an error. An error without one is named by the type of its innermost error. The methods of err may panic.
func Words(err error) string {
	text := err.Error()
	if !blank(text) {
		return text
	}
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return fmt.Sprintf("an error of type %T, without a text", err)
}

// OrUnknown returns an error that stands for err, which may be nil.
func OrUnknown(err error) error {
	if err == nil {
		return errors.New("no reason given")
	}
	return err
}

// PanicWords returns the text of a panic with a value.
func PanicWords(value any) string {
	text := fmt.Sprint(value)
	if blank(text) {
		text = fmt.Sprintf("a value of type %T, without a text", value)
	}
	return "panic: " + text
}

// Reason returns the text that somebody gave as one, or otherwise if nothing of it can be seen.
func Reason(text, otherwise string) string {
	if blank(text) {
		return otherwise
	}
	return text
}

// blank reports whether nothing of a text can be seen: it has spaces and marks of formatting alone, such as one without width.
func blank(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsSpace(r) && !unicode.Is(unicode.Cf, r) })
}
