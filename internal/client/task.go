package client

import (
	"time"
	"unicode/utf8"

	"github.com/tocsinhq/tocsin/internal/ids"
)

// Limits of a task's fields, as those of package tocsin.
const (
	MaxPayload  = 8192 // characters (not bytes) of a payload
	MaxDedupKey = 64   // bytes
	MaxHeaders  = 1024 // characters of all headers, as JSON
	MaxAhead    = 10   // years that an action time may lie ahead
)

// Task is what a tocsin.NewTask says. It is checked when a row is made of it.
type Task struct {
	BizType string
	BizID   uint64
	BizKey  string // "": BizID is the key
	When    When
	Dedup   string // also the unique key
	Unique  Unique
	Payload string
	Version int     // of the payload; below FirstMarked it is not stored
	Headers *Header // the last one; nil: none
	Err     error   // why the payload has no text, or the key no biz_id
}

// valid returns what is wrong with the task. The name of its biz type is checked elsewhere.
func (t Task) valid(now time.Time) error {
	if err := t.When.Valid(now); err != nil {
		return err
	}
	if err := t.Unique.valid(t.Dedup); err != nil {
		return err
	}
	switch {
	case t.Err != nil:
		return t.Err
	case t.Version < 0:
		return Refuse(ErrInvalid, "biz type %q: version %d of its payload: use 1 or more, or 0 for none", t.BizType, t.Version)
	case t.BizID == 0:
		return Refuse(ErrInvalid, "biz type %q: biz_id is 0", t.BizType)
	case len(t.Dedup) > MaxDedupKey:
		return Refuse(ErrInvalid, "dedup_key has %d bytes: at most %d", len(t.Dedup), MaxDedupKey)
	case ids.Reserved(t.Dedup):
		return Refuse(ErrInvalid, "dedup_key begins with a zero byte: such keys are reserved for runs of schedules")
	}
	return CheckPayload(t.Payload)
}

// CheckPayload returns why a payload can't be stored.
func CheckPayload(payload string) error {
	if !utf8.ValidString(payload) {
		return Refuse(ErrInvalid, "payload is not UTF-8")
	}
	if n := utf8.RuneCountInString(payload); n > MaxPayload {
		return Refuse(ErrInvalid, "payload has %d characters: at most %d", n, MaxPayload)
	}
	return nil
}

// bare reports whether the task has neither headers nor a version of its payload.
func (t Task) bare() bool { return t.Headers == nil && t.Version < FirstMarked }

// The statuses of a row; see tocsin.Status.
const (
	pending uint8 = iota
	claimed
	done
	cancelled
	dead
)

// Statuses is a set of statuses, a bit each.
type Statuses uint8

// With returns the set with a further status.
func (s Statuses) With(status uint8) Statuses { return s | 1<<min(status, 7) }

func (s Statuses) has(status uint8) bool { return s.With(status) == s }

// What an add does if its unique key is taken; see tocsin.Conflict.
const (
	keep uint8 = iota
	reschedule
)

// Unique is what Unique and OnConflict of a tocsin.NewTask ask for.
type Unique struct {
	Asked    bool
	While    Statuses // during which the key is taken
	Conflict uint8
}

// valid returns what is wrong with the uniqueness of a task with a dedup_key.
func (u Unique) valid(key string) error {
	switch {
	case !u.Asked && u.Conflict == keep:
		return nil
	case !u.Asked:
		return Refuse(ErrInvalid, "OnConflict without Unique")
	case key == "":
		return Refuse(ErrInvalid, "the unique key is empty")
	case u.Conflict > reschedule:
		return Refuse(ErrInvalid, "OnConflict(%d): use Keep or Reschedule", u.Conflict)
	case !u.While.has(pending) || !u.While.has(claimed):
		return Refuse(ErrInvalid, "unique while: Pending and Claimed must be among the statuses, as tasks may be delivered in both")
	case u.While.has(cancelled) || u.While>>(dead+1) != 0:
		return Refuse(ErrInvalid, "unique while: use Pending, Claimed, Done and Dead; a cancel frees the key")
	}
	return nil
}
