package schedule

import (
	"errors"
	"fmt"

	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/name"
)

// What the calls of this package fail with, for errors.Is, besides the errors of package tocsin.
var (
	ErrInvalid   = errors.New("invalid schedule")        // a definition, or a call, is refused
	ErrNotFound  = errors.New("no such schedule")        // no database has one of this name
	ErrExists    = errors.New("schedule exists")         // Create: one of this name is there, and differs
	ErrAmbiguous = errors.New("two schedules of a name") // the name stands in two databases
	ErrRevision  = errors.New("schedule has changed")    // Update: its revision is another one
)

// invalid refuses a definition.
func invalid(of, format string, args ...any) error {
	return client.Refuse(ErrInvalid, "schedule %s: %s", label(of), fmt.Sprintf(format, args...))
}

// missing says that there is no schedule of a name.
func missing(name string) error { return client.Refuse(ErrNotFound, "no schedule %q", name) }

func exists(name string) error { return client.Refuse(ErrExists, "there is a schedule %q", name) }

// label shows a name, which may be missing or not valid.
func label(of string) string {
	if of == "" {
		return "without a name"
	}
	return name.Shown(of)
}
