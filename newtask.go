package tocsin

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/name"
)

// NewTask is a task to be added. It is a value: a copy may be changed and added
// again.
type NewTask struct{ task client.Task }

// BizType returns the name of the task's biz type.
func (t NewTask) BizType() string { return t.task.BizType }

// BizID returns the biz_id of the task.
func (t NewTask) BizID() uint64 { return t.task.BizID }

// BizKey returns the business key of the task; "": it has none, and its biz_id is the key.
func (t NewTask) BizKey() string { return t.task.BizKey }

// MaxKey is the longest business key, in bytes.
const MaxKey = 64

// KeyID returns the biz_id of a business key that is no number, 63 bits of its SHA-256. Two keys may have the same: see
// ErrKeyCollision.
func KeyID(key string) uint64 { return name.KeyID(key) }

// checkKey is name.CheckKey as an ErrInvalid.
func checkKey(key string) error {
	if err := name.CheckKey(key); err != nil {
		return client.Refuse(ErrInvalid, "%s", err)
	}
	return nil
}

// When is the time at which to act. The zero When is refused; make one with In
// or At.
type When struct{ when client.When }

// In acts after d, counted by the database's clock from the moment it stores
// the task, and rounded up to the millisecond. A negative d is due at once.
func In(d time.Duration) When { return When{client.In(d)} }

// At acts at t, rounded up to the millisecond. A t in the past is due at once;
// the zero time is refused.
func At(t time.Time) When { return When{client.At(t)} }

// Dedup makes the task the only one of its biz_id and biz type with this key,
// until it is cancelled or purged: adding it again returns the task that is
// there. The key is bytes, at most MaxDedupKey, compared as they are. The empty
// key means no de-duplication. A key that begins with a zero byte is refused: such keys are those of runs of schedules.
// A task that has a unique key too is refused with ErrInvalid.
func (t NewTask) Dedup(key string) NewTask {
	if t.task.Unique.Asked && key != "" {
		t.task.Err = cmp.Or(t.task.Err, errTwoKeys)
	}
	t.task.Dedup, t.task.Unique = key, client.Unique{}
	return t
}

// Span is the part of a task's life during which its unique key is taken. Make one with While.
type Span struct{ statuses client.Statuses }

// While means: as long as a task has one of the statuses. Pending and Claimed must be among them, since a node need not
// claim a task to deliver it. Done and Dead may be: then the key is taken until such a task is purged. A cancel always
// frees the key.
func While(statuses ...Status) Span {
	var s Span
	for _, status := range statuses {
		s.statuses = s.statuses.With(uint8(status))
	}
	return s
}

// Conflict says what an add does if its unique key is taken.
type Conflict uint8

// The conflicts.
const (
	// Keep leaves the task that is there as it is: Added.Existing.
	Keep Conflict = iota

	// Reschedule gives the task the new action time, as Client.Reschedule does: Added.Existing and Added.Rescheduled. Its
	// payload and headers stay. A task that is claimed, of a strict biz type, gives the key up and goes on, and the new task is
	// stored. So a delivery begins after each such add, whatever was under way.
	Reschedule
)

// Unique makes the task the only one of its biz_id, or key, and biz type with this unique key while a task that has it is
// in the given part of its life: tocsin.While(tocsin.Pending, tocsin.Claimed). An add that meets such a task returns
// that one, or does as OnConflict says. A task that is past it gives the key up to the new one, and keeps no key. The unique key is
// bytes, at most MaxDedupKey, the first not zero, and stands where Dedup's stands, so use one key with one of both: Unique takes the key
// of a finished task that Dedup would still find. In AddMany, tasks with a unique key cost a transaction each, and
// those of one key keep their order. An outbox does not take them: AddTx returns ErrOtherServer. A task that has a key by
// Dedup too is refused with ErrInvalid.
func (t NewTask) Unique(key string, while Span) NewTask {
	if t.task.Dedup != "" && !t.task.Unique.Asked {
		t.task.Err = cmp.Or(t.task.Err, errTwoKeys)
	}
	t.task.Dedup, t.task.Unique.Asked, t.task.Unique.While = key, true, while.statuses
	return t
}

// errTwoKeys refuses a task with both keys: it would be unclear which of them decides whether it exists already.
var errTwoKeys = client.Refuse(ErrInvalid, "Dedup and Unique on one task: use one of both")

// OnConflict says what the add does if the unique key is taken. With Reschedule, one call is a debounce: it adds the task, or
// postpones the one that waits.
func (t NewTask) OnConflict(c Conflict) NewTask {
	t.task.Unique.Conflict = uint8(c)
	return t
}

// Headers are texts by name that travel with a task beside its payload, for middleware: trace context, a tenant. They are
// kept as they are stored, as a JSON object of texts; "" is none.
type Headers string

// Get returns the text of a header, "" if there is none. Names are compared as they are: upper and lower case differ.
func (h Headers) Get(name string) string {
	all, _ := h.All() // what is no object of texts has no headers; a delivery of it fails
	return all[name]
}

// All returns the headers by name. Headers that plain SQL has written may be an error: not a JSON object of texts.
func (h Headers) All() (map[string]string, error) { return client.ReadHeaders(string(h)) }

// MarshalJSON writes the object. Headers that are none become a text.
func (h Headers) MarshalJSON() ([]byte, error) {
	if all, err := h.All(); err == nil {
		return json.Marshal(all)
	}
	return json.Marshal(string(h))
}

// UnmarshalJSON reads what MarshalJSON has written.
func (h *Headers) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &text); err == nil {
		*h = Headers(text)
		return nil
	}
	all, err := Headers(b).All()
	if err != nil {
		return err
	}
	*h = Headers(client.WriteHeaders(all))
	return nil
}

// HeadersOf returns headers as they are stored. It refuses what must not be stored, as ErrInvalid.
func HeadersOf(all map[string]string) (Headers, error) {
	text, err := client.HeadersOf(all)
	return Headers(text), err
}

// Header gives the task a header, and replaces one of the same name. Its name has letters, digits, '.', '_' and '-', at most
// 64; its text is UTF-8. All headers of a task have at most MaxHeaders characters as JSON. What is wrong is returned when
// the task is added, as ErrInvalid.
func (t NewTask) Header(name, text string) NewTask {
	t.task.Headers = &client.Header{Name: name, Text: text, Before: t.task.Headers}
	return t
}

// OptionalHeader is Header for what a task can do without, such as trace context: the header is left out if it can't be
// stored. That is so if its name or text is not valid, or if there is no room left. Of several optional headers those that
// were set first have priority.
func (t NewTask) OptionalHeader(name, text string) NewTask {
	t.task.Headers = &client.Header{Name: name, Text: text, Optional: true, Before: t.task.Headers}
	return t
}

// Headers returns the headers that the task was given, by name.
func (t NewTask) Headers() map[string]string { return t.task.Headers.All() }

// Ref says which tasks to cancel or reschedule: one by ByID, or all pending ones
// of a biz type and biz_id by BizType.Of, or of a business key by BizType.OfKey.
type Ref struct{ ref client.Ref }

// ByID means one task.
func ByID(id JobID) Ref { return Ref{client.Ref{ID: uint64(id)}} }
