package client

import (
	"errors"
	"fmt"

	"github.com/tocsinhq/tocsin/internal/mysql"
)

// What calls fail with. Package tocsin exports them.
var (
	ErrInvalid        = errors.New("invalid task")
	ErrUnknownBizType = errors.New("unknown biz type")
	ErrNotFound       = errors.New("no such task")
	ErrOtherServer    = errors.New("task table is elsewhere")
	ErrLayout         = errors.New("stored layout differs")
	ErrUnreachable    = errors.New("unreachable")
	ErrUnknownOutcome = errors.New("it may or may not be stored")
	ErrConflict       = errors.New("task changed meanwhile")
	ErrInDelivery     = errors.New("task is in delivery")
	ErrSchema         = errors.New("stored schema is too old")
	ErrKeyCollision   = errors.New("biz_id of another key")
)

// refusal is an error of one of the kinds above whose text says everything.
type refusal struct {
	kind error
	text string
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.kind }

// Refuse returns an error of a kind whose text is this one alone.
func Refuse(kind error, format string, args ...any) error {
	return &refusal{kind, fmt.Sprintf(format, args...)}
}

// outage says ErrUnreachable of a server that does not answer or takes no
// writes; nothing was done there.
func outage(err error) error {
	switch mysql.ClassOf(err) {
	case mysql.Lost, mysql.Barred:
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	case mysql.Demoted, mysql.Full:
		return fmt.Errorf("%w, or takes no writes: %w", ErrUnreachable, err)
	}
	return err
}
