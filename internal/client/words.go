package client

import (
	"errors"
	"fmt"

	"github.com/tocsinhq/tocsin/internal/name"
)

// Words returns the text of an error. An error without one is named by the type of its innermost error. The methods of err may panic.
func Words(err error) string {
	text := err.Error()
	if !name.Blank(text) {
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
	if name.Blank(text) {
		text = fmt.Sprintf("a value of type %T, without a text", value)
	}
	return "panic: " + text
}
