package schedule

import (
	"errors"
	"fmt"
)

// What the calls of this package fail with, for errors.Is, besides the errors of package tocsin.
var (
	ErrInvalid   = errors.New("invalid schedule")        // a definition, or a call, is refused
	ErrNotFound  = errors.New("no such schedule")        // no database has one of this name
	ErrExists    = errors.New("schedule exists")         // Create: one of this name is there
	ErrAmbiguous = errors.New("two schedules of a name") // the name stands in two databases
	ErrRevision  = errors.New("schedule has changed")    // Update: its revision is another one
)

// refusal is an error of one of the kinds above whose text says everything.
type refusal struct {
	kind error
	text string
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.kind }

func refuse(kind error, format string, args ...any) error {
	return &refusal{kind, fmt.Sprintf(format, args...)}
}

// invalid refuses a definition.
func invalid(name, format string, args ...any) error {
	return refuse(ErrInvalid, "schedule %s: %s", label(name), fmt.Sprintf(format, args...))
}

// label shows a name that may be missing.
func label(name string) string {
	if name == "" {
		return "without a name"
	}
	return name
}
