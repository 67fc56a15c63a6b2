package tocsin

import (
	"errors"

	"github.com/tocsinhq/tocsin/internal/client"
)

// What the calls of this package fail with, for errors.Is. Every one of them
// says in one line what was tried on what.
var (
	ErrInvalid        = client.ErrInvalid        // invalid task: refused before anything was sent
	ErrUnknownBizType = client.ErrUnknownBizType // no such name in the biz_type tables
	ErrNotFound       = client.ErrNotFound       // no row has this job_id
	ErrOtherServer    = client.ErrOtherServer    // task table is elsewhere: the transaction's server does not hold it
	ErrLayout         = client.ErrLayout         // stored layout differs: the databases are not those the config describes
	ErrUnreachable    = client.ErrUnreachable    // a server is unreachable, or takes no writes; nothing was stored on it
	ErrUnknownOutcome = client.ErrUnknownOutcome // it may or may not be stored: the connection broke and the server can't be asked
	ErrConflict       = client.ErrConflict       // CompleteTx: the task changed meanwhile, roll back
	ErrInDelivery     = client.ErrInDelivery     // Cancel, Reschedule of a strict biz type: a task is in delivery, nothing is changed
	ErrSchema         = client.ErrSchema         // stored schema is too old for schedules, before `tocsin ddl finish`; nothing was stored
	ErrKeyCollision   = client.ErrKeyCollision   // two business keys have the same biz_id and dedup_key; the task is not stored
)

// Why the context of a handler ended before its time-out, for context.Cause. What the handler returns has no effect then: the task
// is cancelled, or waits for its new time.
var (
	ErrCancelled   = errors.New("the task was cancelled during its delivery")
	ErrRescheduled = errors.New("the task was rescheduled or redriven during its delivery")
)
