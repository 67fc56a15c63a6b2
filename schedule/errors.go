package schedule

import (
	"errors"
	"fmt"

	"github.com/tocsinhq/tocsin/internal/client"
)

// What the calls of this package fail with, for errors.Is, besides the errors of package tocsin.
var (
	ErrInvalid   = errors.New("invalid schedule")        // a definition, or a call, is refused
	ErrNotFound  = errors.New("no such schedule")        // no database has one of this name
	ErrExists    = errors.New("schedule exists")         // Create: one of this name is there
	ErrAmbiguous = errors.New("two schedules of a name") // the name stands in two databases
	ErrRevision  = errors.New("schedule has changed")    // Update: its revision is another one
)

// invalid refuses a definition.
func invalid(name, format string, args ...any) error {
	return client.Refuse(ErrInvalid, "schedule %s: %s", label(name), fmt.Sprintf(format, args...))
}

// label shows a name that may be missing.
func label(name string) string {
	if name == "" {
		return "without a name"
	}
	return name
}
