package tocsin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/mysql"
)

// Status is a task's place in its life. The numbers are those of the column.
type Status uint8

// The statuses. Done, Cancelled and Dead are final; an operator can redrive a
// dead task.
const (
	Pending   Status = 0
	Claimed   Status = 1
	Done      Status = 2
	Cancelled Status = 3
	Dead      Status = 4
)

var statusNames = [...]string{"pending", "claimed", "done", "cancelled", "dead"}

// String gives the lower-case word.
func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return "status " + strconv.Itoa(int(s))
}

// MarshalText gives the word, for JSON.
func (s Status) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the word, from what MarshalText wrote.
func (s *Status) UnmarshalText(b []byte) error {
	i := slices.Index(statusNames[:], string(b))
	if i < 0 {
		return fmt.Errorf("status %q: want one of %s", b, strings.Join(statusNames[:], ", "))
	}
	*s = Status(i)
	return nil
}

// Final reports whether no node will touch the task again.
func (s Status) Final() bool { return s == Done || s == Cancelled || s == Dead }

// Limits of a task's fields.
const (
	MaxPayload  = 8192 // characters (not bytes) of a payload
	MaxDedupKey = 64   // bytes
	MaxHeaders  = 1024 // characters of all headers, as JSON
	MaxError    = 255  // characters of last_error; longer text is cut
	MaxAhead    = 10   // years that an action time may lie ahead
)

// Info is a task's row. Times are UTC in whole milliseconds.
type Info struct {
	JobID          JobID     `json:"job_id"`
	BizID          uint64    `json:"biz_id,string"`
	BizKey         string    `json:"biz_key,omitempty"` // the business key that biz_id is made of; "": the biz_id is the key
	BizType        string    `json:"biz_type"`          // its name; "#7" where number 7 has no name here
	Status         Status    `json:"status"`
	ActionTime     time.Time `json:"action_time"` // pending: when to act next; claimed: the claim's deadline; final: when settled
	DueTime        time.Time `json:"due_time"`    // the action time that the user last asked for
	Attempts       int       `json:"attempts"`    // failed deliveries so far
	Crashes        int       `json:"crashes"`     // claims that ran out without an outcome
	Version        uint32    `json:"version"`     // grows with each reschedule, and each redrive with a new key
	ClaimedBy      string    `json:"claimed_by,omitempty"`
	DedupKey       string    `json:"dedup_key,omitempty"`
	LastError      string    `json:"last_error,omitempty"`
	Payload        string    `json:"payload"`
	Headers        Headers   `json:"headers,omitempty"`
	PayloadVersion int       `json:"payload_version,omitempty"` // as BizType.Version of the program that added it; 0: the first one, or none
	Created        time.Time `json:"created"`
	Modified       time.Time `json:"modified"`
	Table          string    `json:"table,omitempty"` // full name of its table, "toc_3.task_0517"

	// Of a schedule's run, until it is cancelled; else zero.
	Schedule string    `json:"schedule,omitempty"` // the schedule's name; only in deliveries, and where Operator.NameSchedule has set it
	FireTime time.Time `json:"fire_time,omitzero"` // the time that the run is for, without jitter; zero: for none, as of a run by hand
}

// Key is the idempotency key "job_id.version": the same for every attempt, new
// after a reschedule or redrive, unless that keeps the key. For a payment use JobID.String(), which never
// changes: after a redrive a provider would charge a new key again.
func (i Info) Key() string {
	return i.JobID.String() + "." + strconv.FormatUint(uint64(i.Version), 10)
}

// Header returns the text of a header of the task, "" if there is none. Headers has all of them.
func (i Info) Header(name string) string { return i.Headers.Get(name) }

// Task is what a handler gets: the row and its decoded payload.
type Task[T any] struct {
	Info
	Payload T
}

// What a handler may return: nil completes the task; Bury, RetryIn and Snooze
// say otherwise; any other error retries by the biz type's policy.

// buried, retried and snoozed are read back by AsOutcome. The first two add no words of their own: the text of an error that
// wraps them, whole, becomes the last error.
type buried struct{ err error }

func (e buried) Error() string { return e.err.Error() }
func (e buried) Unwrap() error { return e.err }

type retried struct {
	in  time.Duration
	err error
}

func (e retried) Error() string { return e.err.Error() }
func (e retried) Unwrap() error { return e.err }

type snoozed struct{ in time.Duration }

func (e snoozed) Error() string { return "snooze " + e.in.String() }

// Bury gives the task up at once: it becomes dead, with the text of the error that the handler returns as its last error. That error may be
// Bury's own or wrap it. Of several marks in one error, Bury counts before RetryIn, and RetryIn before Snooze.
func Bury(err error) error { return buried{client.OrUnknown(err)} }

// RetryIn counts a failed attempt and tries again after d, or after the
// policy's back-off if that is longer. The policy's highest number of attempts still holds.
func RetryIn(d time.Duration, err error) error { return retried{max(d, 0), client.OrUnknown(err)} }

// Snooze delivers the task again after d, 1 s at least, without counting an attempt.
func Snooze(d time.Duration) error { return snoozed{max(d, 0)} }

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
// by the policy), and the reason to keep as last_error, which is the whole text of err, or its type if it has no text. If a method of
// err panics, the reason says so. A bare Snooze has no reason.
func AsOutcome(err error) (verb Verb, in time.Duration, reason string) {
	if err == nil {
		return Completed, 0, ""
	}
	verb, in = Retried, -1
	given := err // without a mark of ours around it
	defer func() {
		if p := recover(); p != nil { // a method of a nil pointer in err, say
			reason = fmt.Sprintf("the handler returned a %T that can't be read: %v", given, p)
		}
	}()
	var b buried
	var r retried
	var s snoozed
	switch {
	case errors.As(err, &b):
		verb, in, given = Buried, 0, b.err
	case errors.As(err, &r):
		in, given = r.in, r.err
	case errors.As(err, &s):
		if verb, in = Snoozed, s.in; err == error(s) {
			return verb, in, ""
		}
	}
	return verb, in, client.Words(err)
}

// MaxOutput is the most characters (not bytes) of a run's output; longer text is cut.
const MaxOutput = 1024

// Output gives the run that is under way under ctx, a handler's context or one derived from it, its output: what
// `tocsin task runs` shows. A run has one output. The last call wins, so it is for a result or a summary, not for a log.
// A byte that is no UTF-8 becomes \xff. If the attempt fails, its error stands before the output.
//
// In a batch, Output is for all of its tasks; see OutputOf. Output may be called concurrently. It does nothing under any
// other context, once the handler has returned or the delivery has timed out, or if no history is kept of the biz type.
func Output(ctx context.Context, text string) {
	if o := outputs(ctx); o != nil {
		o.Set(text)
	}
}

// OutputOf is Output for one task of a batch.
func OutputOf(ctx context.Context, id JobID, text string) {
	if o := outputs(ctx); o != nil {
		o.SetOf(uint64(id), text)
	}
}

// outputs returns nil if nobody keeps what is put into it.
func outputs(ctx context.Context) *client.Outputs {
	if ctx == nil {
		return nil
	}
	o, _ := ctx.Value(client.OutputKey).(*client.Outputs)
	return o
}

// completeSQL writes a success, by primary key. Zero rows: cancelled, done, rescheduled or gone, and completedSQL tells which; or the
// server is PostgreSQL, to which all of it is a comment: a statement that failed there would break the caller's transaction.
const (
	completeSQL = `/* tocsin complete */ /*! UPDATE {task} FORCE INDEX (PRIMARY)
SET status = 2,
    action_time = UTC_TIMESTAMP(3),
    claimed_by = '` + client.CompletedInTx + `',
    gmt_modified = UTC_TIMESTAMP(3)
WHERE job_id = {job_id}
    AND version = {version}
    AND status IN (0, 1, 4) */`

	completedSQL = `SELECT /* tocsin complete */
    status,
    version
FROM {task} FORCE INDEX (PRIMARY)
WHERE job_id = {job_id}
LIMIT 1
LOCK IN SHARE MODE`

	productSQL = `SELECT /* tocsin complete */ VERSION() LIMIT 1`
)

var tableForm = regexp.MustCompile(`^[a-z][a-z0-9_]{0,31}_[0-9]{1,4}\.task_[0-9]{4}$`)

// CompleteTx writes a task's success in the handler's own transaction, so that
// what the handler did and the task's end commit together: once. It is given
// the Info that the handler got. Roll back on any error; ErrConflict says that
// the task was meanwhile cancelled, rescheduled or completed by another
// delivery, ErrOtherServer that the transaction's server does not hold it, as no
// PostgreSQL server does. The handler returns nil after the commit; whatever it
// returns, the task stays done.
func CompleteTx(ctx context.Context, tx Tx, info Info) error {
	if err := client.NoTx(ctx, tx); err != nil {
		return err
	}
	if !tableForm.MatchString(info.Table) {
		return client.Refuse(ErrInvalid, "complete task %s: its table is not known, %q", info.JobID, info.Table)
	}
	n, err := client.Execute(ctx, tx, info.render(completeSQL))
	switch {
	case err != nil:
		return completeErr(ctx, tx, info, err)
	case n > 0:
		return nil
	}
	return conflict(ctx, tx, info)
}

// conflict names the reason why nothing was completed.
func conflict(ctx context.Context, tx Tx, info Info) error {
	var status uint8
	var version uint32
	var product string
	err := client.QueryRow(ctx, tx, productSQL)(&product)
	if strings.HasPrefix(product, "PostgreSQL") {
		return client.Refuse(ErrOtherServer, "complete task %s: its table %s is not on this transaction's server, which is PostgreSQL", info.JobID, info.Table)
	}
	if err == nil {
		err = client.QueryRow(ctx, tx, info.render(completedSQL))(&status, &version)
	}
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return client.Refuse(ErrConflict, "complete task %s: it is not in %s any more", info.JobID, info.Table)
	case err != nil:
		return completeErr(ctx, tx, info, err)
	case version != info.Version:
		return client.Refuse(ErrConflict, "complete task %s: it was rescheduled meanwhile (version %d, not %d)", info.JobID, version, info.Version)
	}
	return client.Refuse(ErrConflict, "complete task %s: it is %s already", info.JobID, Status(status))
}

// render fills in the task. Its numbers are literals: parameters would cost another round trip.
func (i Info) render(statement string) string {
	return strings.NewReplacer("{task}", i.Table, "{job_id}", i.JobID.String(), "{version}", strconv.FormatUint(uint64(i.Version), 10)).Replace(statement)
}

// completeErr words an error of a statement. A table that is not there, or not for this user, is on another server, unless the task is there: then
// the user lacks a right.
func completeErr(ctx context.Context, tx Tx, info Info, err error) error {
	switch class := mysql.ClassOf(err); {
	case class == mysql.Denied && client.QueryRow(ctx, tx, info.render(completedSQL))(new(uint8), new(uint32)) == nil:
	case class == mysql.Missing, class == mysql.Denied:
		return client.Refuse(ErrOtherServer, "complete task %s: its table %s is not on this transaction's server (%s)", info.JobID, info.Table, err)
	}
	return fmt.Errorf("complete task %s in %s: %w", info.JobID, info.Table, err)
}
