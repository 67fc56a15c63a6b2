package main

import (
	"errors"
	"fmt"
	"strings"
)

// usageError marks what the caller must change in the command line: exit code 2.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// errSilent ends with exit code 1 after the command has said all there is to say.
var errSilent = errors.New("")

func codeOf(err error) int {
	var usage usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

// errorsShown bounds the joined errors of one line: a server that is down may
// give one for each of a thousand tables.
const errorsShown = 4

// oneLine folds joined errors into one line.
func oneLine(err error) string {
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	if more := len(lines) - errorsShown; more > 1 {
		lines = append(lines[:errorsShown], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "; ")
}
