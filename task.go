package tocsin

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
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
