package main

import (
	"errors"

	"github.com/tocsinhq/tocsin/operator/cluster"
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

// oneLine folds joined errors into one line.
func oneLine(err error) string { return cluster.OneLine(err) }
