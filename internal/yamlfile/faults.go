package yamlfile

import (
	"errors"
	"fmt"
	"time"
)

// Fault is what is wrong with one value of a file.
type Fault struct {
	Field string // its path in the file, "servers[2].dsn"
	Err   error
}

// Faults collects what is wrong with the values of a file, in the order of its checks.
type Faults struct {
	Within string // stands before each field: "servers[2]."
	Of     string // stands before each text, with a colon; "": nothing does
	Found  []Fault
}

// Refuse notes a fault if the value is bad.
func (f *Faults) Refuse(bad bool, field, format string, args ...any) {
	if bad {
		f.Note(field, fmt.Errorf(format, args...))
	}
}

// Note notes what is wrong with a field, if anything is.
func (f *Faults) Note(field string, err error) {
	if err == nil {
		return
	}
	if f.Of != "" {
		err = fmt.Errorf("%s: %w", f.Of, err)
	}
	f.Found = append(f.Found, Fault{f.Within + field, err})
}

// Between refuses a duration outside its bounds.
func (f *Faults) Between(field string, d, low, high time.Duration) {
	f.Refuse(d < low || d > high, field, "%s %s: use %s to %s", field, d, low, high)
}

// Err returns all faults, one line each; nil: there are none.
func (f *Faults) Err() error {
	errs := make([]error, len(f.Found))
	for i, fault := range f.Found {
		errs[i] = fault.Err
	}
	return errors.Join(errs...)
}

// Place is Faults.Err with the line on which each value stands.
func (f *File) Place(faults []Fault) error {
	errs := make([]error, len(faults))
	for i, fault := range faults {
		errs[i] = f.Errorf("$."+fault.Field, "%w", fault.Err)
	}
	return errors.Join(errs...)
}
