package tocsin

import (
	"errors"
	"fmt"
)

// What the calls of this package fail with, for errors.Is. Every one of them
// says in one line what was tried on what.
var (
	ErrInvalid        = errors.New("invalid task")                // refused before anything was sent
	ErrUnknownBizType = errors.New("unknown biz type")            // no such name in the biz_type tables
	ErrNotFound       = errors.New("no such task")                // no row has this job_id
	ErrOtherServer    = errors.New("task table is elsewhere")     // the transaction's server does not hold the table
	ErrLayout         = errors.New("stored layout differs")       // the databases are not those the config describes
	ErrUnreachable    = errors.New("unreachable")                 // a server, or it takes no writes; nothing was stored on it
	ErrUnknownOutcome = errors.New("it may or may not be stored") // the connection broke and the server can't be asked
	ErrConflict       = errors.New("task changed meanwhile")      // CompleteTx: roll back
	ErrInDelivery     = errors.New("task is in delivery")         // Cancel, Reschedule of a strict biz type: nothing is changed
	ErrSchema         = errors.New("stored schema is too old")    // schedules before `tocsin ddl finish`; nothing was stored
	ErrKeyCollision   = errors.New("biz_id of another key")       // two business keys have the same biz_id and dedup_key; the task is not stored
)

// Why the context of a handler ended before its time-out, for context.Cause. What the handler returns has no effect then: the task
// is cancelled, or waits for its new time.
var (
	ErrCancelled   = errors.New("the task was cancelled during its delivery")
	ErrRescheduled = errors.New("the task was rescheduled or redriven during its delivery")
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
