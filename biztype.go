package tocsin

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/name"
)

// BizType is a kind of task whose payload is a T. Declare it once with Define,
// in a place that both who adds and who handles can import.
type BizType[T any] struct {
	name    string
	version int
	policy  *Policy // nil: it is applied from a file
}

// Define names a biz type that is stored in the biz_type tables. T travels as JSON in
// the task's payload; a T whose kind is string travels as it is. A name that is not
// valid for a biz type, such as the empty one of a zero BizType, is refused with
// ErrInvalid when a task is added, and by node.Handle.
//
// One policy may follow, without a Name. A node with a handler of the type stores it when it
// starts, if its database user may, and gives the type a number. A policy without a group or
// webhook gets the node's group. What is stored already stays, unless a program has stored it with a lower
// Edition: see biztype.Bring. Define panics if there are two.
func Define[T any](name string, policy ...Policy) BizType[T] {
	b := BizType[T]{name: name}
	switch len(policy) {
	case 0:
	case 1:
		p := policy[0]
		p.Name = name
		if p.Edition == 0 {
			p.Edition = 1
		}
		b.policy = &p
	default:
		panic(fmt.Sprintf("tocsin: biz type %q is defined with %d policies: give one", name, len(policy)))
	}
	return b
}

// Policy returns the policy that Define was given, with its name and edition. False: none.
func (b BizType[T]) Policy() (Policy, bool) {
	if b.policy == nil {
		return Policy{}, false
	}
	return *b.policy, true
}

// Name returns the name by which policies and tasks refer to the type.
func (b BizType[T]) Name() string { return b.name }

// Version returns the biz type with the version of its payload, from 1 on; 0: none.
// Raise it when the programs that run already would not read new payloads, or would
// misread them. The new program must read the old ones too, say with an UnmarshalJSON
// of T. The version is stored with each task, from 2 on: a program whose handler has a
// lower version, or none, never delivers the task. It stays as it is until a node that
// knows the version comes. While such a node takes on work, older ones leave all tasks
// of the type to it.
func (b BizType[T]) Version(n int) BizType[T] {
	b.version = n
	return b
}

// PayloadVersion returns what Version has set.
func (b BizType[T]) PayloadVersion() int { return b.version }

// New makes a task that acts on behalf of bizID. What is wrong with it, a
// payload that does not marshal for instance, is said when it is added.
func (b BizType[T]) New(bizID uint64, payload T, when When) NewTask {
	text, err := b.Encode(payload)
	return NewTask{client.Task{BizType: b.name, BizID: bizID, When: when.when, Payload: text, Version: b.version, Err: err}}
}

// New is BizType.New for ids of other integer types. A negative id is refused with
// ErrInvalid when the task is added.
func New[T any, N ID](b BizType[T], bizID N, payload T, when When) NewTask {
	t := b.New(uint64(bizID), payload, when)
	if bizID < 0 {
		t.task.Err = negative(bizID)
	}
	return t
}

// ID is the type of a biz_id in a program.
type ID interface{ ~int64 | ~uint64 }

func negative[N ID](bizID N) error { return client.Refuse(ErrInvalid, "biz_id %d is negative", bizID) }

// Of is BizType.Of for ids of other integer types. A negative id is ErrInvalid in the call
// that gets the Ref.
func Of[T any, N ID](b BizType[T], bizID N) Ref {
	ref := b.Of(uint64(bizID))
	if bizID < 0 {
		ref.ref.Err = negative(bizID)
	}
	return ref
}

// Of means all pending tasks of this biz type that act on behalf of bizID.
func (b BizType[T]) Of(bizID uint64) Ref { return Ref{client.Ref{BizType: b.name, BizID: bizID}} }

// NewKey is New for a business key that is no number, "ord_01J8Z3" for instance: 1 to MaxKey bytes of UTF-8, compared as they
// are. The task's biz_id is KeyID(key), and its Info.BizKey is the key. Tasks of a key and tasks of a number
// never meet, even if their biz_ids are the same.
func (b BizType[T]) NewKey(key string, payload T, when When) NewTask {
	t := b.New(KeyID(key), payload, when)
	t.task.BizKey = key
	if err := b.checkKey(key); err != nil {
		t.task.Err = err
	}
	return t
}

// OfKey means all pending tasks of this biz type that act on behalf of a business key; see NewKey.
func (b BizType[T]) OfKey(key string) Ref {
	return Ref{client.Ref{BizType: b.name, BizID: KeyID(key), BizKey: key, Err: b.checkKey(key)}}
}

// checkKey names the biz type in the error too.
func (b BizType[T]) checkKey(key string) error {
	if err := name.CheckKey(key); err != nil {
		return client.Refuse(ErrInvalid, "biz type %q: %s", b.name, err)
	}
	return nil
}

// Encode returns the text that carries a payload. JSON is written without
// the escapes that only HTML needs: people read it in a SQL client.
func (b BizType[T]) Encode(payload T) (string, error) {
	if isText[T]() {
		return reflect.ValueOf(payload).String(), nil
	}
	text, err := client.JSON(payload)
	if err != nil {
		return "", client.Refuse(ErrInvalid, "payload of type %s: %s", reflect.TypeFor[T](), err)
	}
	return text, nil
}

// Decode reads the payload of a stored task. It fails if the text is
// not the JSON of a T, or the headers are none: a task written by another version, or
// by plain SQL.
func (b BizType[T]) Decode(info Info) (Task[T], error) {
	task := Task[T]{Info: info}
	if _, err := info.Headers.All(); err != nil {
		return task, fmt.Errorf("task %s: %w", info.JobID, err)
	}
	if isText[T]() {
		reflect.ValueOf(&task.Payload).Elem().SetString(info.Payload)
		return task, nil
	}
	if err := json.Unmarshal([]byte(info.Payload), &task.Payload); err != nil {
		return task, fmt.Errorf("payload of task %s is not a %s: %w", info.JobID, reflect.TypeFor[T](), err)
	}
	return task, nil
}

func isText[T any]() bool { return reflect.TypeFor[T]().Kind() == reflect.String }
