package tocsin

import (
	"errors"
	"fmt"
	"time"
)

// What a handler may return: nil completes the task; Bury, RetryIn and Snooze
// say otherwise; any other error retries by the biz type's policy.

// buried, retried and snoozed are read back by AsOutcome.
type buried struct{ err error }

func (e buried) Error() string { return "bury: " + e.err.Error() }
func (e buried) Unwrap() error { return e.err }

type retried struct {
	in  time.Duration
	err error
}

func (e retried) Error() string { return fmt.Sprintf("retry in %s: %s", e.in, e.err) }
func (e retried) Unwrap() error { return e.err }

type snoozed struct{ in time.Duration }

func (e snoozed) Error() string { return "snooze " + e.in.String() }

// Bury gives the task up at once: it becomes dead with err as its last error.
func Bury(err error) error { return buried{orUnknown(err)} }

// RetryIn counts a failed attempt and tries again after d instead of the
// policy's back-off. The policy's highest number of attempts still holds.
func RetryIn(d time.Duration, err error) error { return retried{max(d, 0), orUnknown(err)} }

// Snooze delivers the task again after d without counting an attempt.
func Snooze(d time.Duration) error { return snoozed{max(d, 0)} }

func orUnknown(err error) error {
	if err == nil {
		return errors.New("no reason given")
	}
	return err
}

// Verb is what a handler's error asks for.
type Verb uint8

// The verbs.
const (
	Completed Verb = iota // nil
	Retried               // any error; In is -1 where the policy's back-off decides
	Snoozed               // Snooze
	Buried                // Bury
	Skipped               // a run of a schedule that is not delivered and ends as cancelled; no handler can ask for it
)

var verbNames = [...]string{"complete", "retry", "snooze", "bury", "skip"}

// String gives the lower-case word.
func (v Verb) String() string { return verbNames[v] }

// AsOutcome reads a handler's error: what it asks for, after how long (-1:
// by the policy), and the reason to keep as last_error.
func AsOutcome(err error) (verb Verb, in time.Duration, reason string) {
	var b buried
	var r retried
	var s snoozed
	switch {
	case err == nil:
		return Completed, 0, ""
	case errors.As(err, &b):
		return Buried, 0, b.err.Error()
	case errors.As(err, &r):
		return Retried, r.in, r.err.Error()
	case errors.As(err, &s):
		return Snoozed, s.in, ""
	}
	return Retried, -1, err.Error()
}
