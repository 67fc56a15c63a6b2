package tocsin

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/name"
)

// CallbackGroup is the group of the nodes that `tocsin serve` runs: they have
// no Go handlers, and deliver HTTP callbacks and what goes to message brokers.
const CallbackGroup = "callback"

// Policy says how the tasks of one biz type are delivered. Durations are
// written as Go writes them ("30s"), in YAML and in the JSON of the table. Define takes
// one for a program's code to bring along; `tocsin biz apply` reads others from a file.
type Policy struct {
	Name        string     `yaml:"name" json:"name"`                                   // [a-z0-9._-], a letter or digit first, at most 64; with Define left out
	Number      uint64     `yaml:"number" json:"number"`                               // at least 1, never reused; with Define 0: the database gives it
	Group       string     `yaml:"group,omitempty" json:"group,omitempty"`             // of the nodes that deliver it; the default with a webhook, sink or pull is "callback"
	Webhook     *Webhook   `yaml:"webhook,omitempty" json:"webhook,omitempty"`         // an HTTP callback; without it, Sink and Pull: a Go handler
	Sink        *Sink      `yaml:"sink,omitempty" json:"sink,omitempty"`               // a message broker, instead of Webhook
	Pull        *Pull      `yaml:"pull,omitempty" json:"pull,omitempty"`               // workers ask for the tasks, instead of Webhook
	Fallback    *Fallback  `yaml:"fallback,omitempty" json:"fallback,omitempty"`       // of Webhook or Sink; nil: tasks wait while their target is away
	Timeout     Duration   `yaml:"timeout,omitempty" json:"timeout,omitempty"`         // of one delivery; 0: 30s
	Attempts    int        `yaml:"attempts,omitempty" json:"attempts,omitempty"`       // at most, then dead; 0: 16
	Backoff     Backoff    `yaml:"backoff,omitempty" json:"backoff,omitzero"`          // between attempts
	Ladder      []Duration `yaml:"ladder,omitempty" json:"ladder,omitempty"`           // explicit waits instead of the back-off; the last one repeats
	Concurrency int        `yaml:"concurrency,omitempty" json:"concurrency,omitempty"` // deliveries at once in each node; 0: 64
	Rate        float64    `yaml:"rate,omitempty" json:"rate,omitempty"`               // deliveries a second over the whole group; 0: no limit
	Priority    Priority   `yaml:"priority,omitempty" json:"priority,omitempty"`       // "": Normal
	PerKey      int        `yaml:"per_key,omitempty" json:"per_key,omitempty"`         // deliveries of one biz_id at once in the whole cluster, in the order of their times; wants Strict; 0: no limit
	Strict      bool       `yaml:"strict,omitempty" json:"strict,omitempty"`           // claim before every delivery: none starts after a cancel
	Paused      bool       `yaml:"paused,omitempty" json:"paused,omitempty"`           // tasks wait
	History     bool       `yaml:"history,omitempty" json:"history,omitempty"`         // keep each attempt, with its outcome and output, in the table run; runs of schedules are always kept
	Retention   Duration   `yaml:"retention,omitempty" json:"retention,omitempty"`     // of finished rows, and of runs; 0: 720h
	Alarm       *Alarm     `yaml:"alarm,omitempty" json:"alarm,omitempty"`             // nil: no alarm
	Edition     int        `yaml:"-" json:"edition,omitempty"`                         // of a policy in code: raise it with each change, or programs leave the stored one; in code 0 means 1, in a database 0 means that people applied it
}

// Priority says which biz types give way where a process or a server can't keep up with all. Tasks of a lower one are loaded
// more slowly while those of a higher one would begin late; every one goes on.
type Priority string

// The priorities.
const (
	High   Priority = "high"
	Normal Priority = "normal"
	Low    Priority = "low"
)

// Webhook is the target of an HTTP callback.
type Webhook struct {
	URL     string   `yaml:"url" json:"url"`                             // http or https
	Secrets []string `yaml:"secrets,omitempty" json:"secrets,omitempty"` // names of whsec_ secrets, each a file or an environment variable of who delivers; all sign, at most two
	Allow   []string `yaml:"allow,omitempty" json:"allow,omitempty"`     // private CIDRs that may be dialled, e.g. 10.0.0.0/8
	Batch   int      `yaml:"batch,omitempty" json:"batch,omitempty"`     // tasks of one request at most, which is answered with a result for each; 0: a request for each task
}

// Sink is the target of tasks that go to a message broker. docs/sinks.md has what a consumer gets.
type Sink struct {
	Name   string `yaml:"name" json:"name"`                         // of a sink in the config of who delivers, which has addresses and passwords
	Topic  string `yaml:"topic,omitempty" json:"topic,omitempty"`   // of Kafka, the routing key of RabbitMQ, the subject of NATS; {biz_type} and {header.NAME} are filled in; "": the name of the biz type
	Key    string `yaml:"key,omitempty" json:"key,omitempty"`       // decides the partition: biz_key (that of a number is its digits), job_id, header.NAME or none; "": biz_key
	Format string `yaml:"format,omitempty" json:"format,omitempty"` // FormatWebhook: the JSON of a callback; "": a CloudEvent 1.0 in binary mode, whose value is the payload
}

// withDefaults leaves the caller's as it is.
func (s *Sink) withDefaults() *Sink {
	if s == nil {
		return nil
	}
	full := *s
	full.Topic, full.Key = cmp.Or(s.Topic, "{biz_type}"), cmp.Or(s.Key, "biz_key")
	return &full
}

// Pull has workers ask for the tasks by the HTTP API: see docs/pull.md. A task that a worker has is claimed until its lease ends.
type Pull struct {
	Lease Duration `yaml:"lease,omitempty" json:"lease,omitempty"` // how long a worker has a task unless it asks for longer, 5s to 60s; 0: 30s
}

// FormatWebhook is the Format of a Sink whose messages are the bodies of callbacks.
const FormatWebhook = "webhook"

// Fallback is the second link of a biz type, which delivers while the first one is away. A task has the same key on both, and
// may come on both: who was away may have stored it.
type Fallback struct {
	After   Duration `yaml:"after,omitempty" json:"after,omitempty"` // how long the first link is away before; 0: 30s
	Webhook *Webhook `yaml:"webhook,omitempty" json:"webhook,omitempty"`
	Sink    *Sink    `yaml:"sink,omitempty" json:"sink,omitempty"`
}

// Handled reports whether Go handlers deliver the tasks: the policy has no webhook, no sink and no pull.
func (p Policy) Handled() bool { return p.Webhook == nil && p.Sink == nil && p.Pull == nil }

// Backoff doubles the wait each time and draws it from the upper half: after the
// n-th failed attempt between d/2 and d, where d = min(Max, Base * 2^(n-1)).
type Backoff struct {
	Base Duration `yaml:"base,omitempty" json:"base,omitempty"` // 0: 5s
	Max  Duration `yaml:"max,omitempty" json:"max,omitempty"`   // 0: 1h
}

// What an Alarm may be raised on.
const (
	OnDead   = "dead"   // tasks became dead
	OnMissed = "missed" // a schedule missed a run, or was paused after failures
)

// Alarm has people told of what only they can mend: by a task of another biz type, which is delivered and retried as any task.
type Alarm struct {
	To          string   `yaml:"to" json:"to"`                                           // name of the biz type whose tasks are the alarms; it has no alarm itself
	On          []string `yaml:"on,omitempty" json:"on,omitempty"`                       // OnDead, OnMissed; none: both
	AtMostEvery Duration `yaml:"at_most_every,omitempty" json:"at_most_every,omitempty"` // between two alarms of one kind, 1m to 24h; 0: 5m
}

// AlarmOn reports whether an alarm is to be raised on OnDead or OnMissed.
func (p Policy) AlarmOn(kind string) bool {
	return p.Alarm != nil && (len(p.Alarm.On) == 0 || slices.Contains(p.Alarm.On, kind))
}

// Wait says how long to wait after the n-th failed attempt, n from 1. A ladder
// gives its n-th step, and its last one for ever; otherwise the back-off
// doubles from Base to Max and draws from the upper half. rnd gives a number in
// [0, 1) as rand.Float64 does. It is pure, and fills in defaults by itself.
func (p Policy) Wait(n int, rnd func() float64) time.Duration {
	n = max(n, 1)
	if len(p.Ladder) > 0 {
		return p.Ladder[min(n, len(p.Ladder))-1].D()
	}
	b := p.WithDefaults().Backoff
	full := doubled(b.Base.D(), b.Max.D(), n-1)
	half := full / 2
	return half + time.Duration(rnd()*float64(full-half))
}

// doubled gives min(limit, base * 2^times) without overflow.
func doubled(base, limit time.Duration, times int) time.Duration {
	for range min(times, 63) {
		if base > limit/2 {
			return limit
		}
		base *= 2
	}
	return min(base, limit)
}

// WithDefaults fills in what is zero. A stored policy keeps its zeros, so that
// it follows the defaults of the program that reads it.
func (p Policy) WithDefaults() Policy {
	if !p.Handled() && p.Group == "" {
		p.Group = CallbackGroup
	}
	p.Sink = p.Sink.withDefaults()
	if p.Pull != nil {
		pull := *p.Pull // the caller's stays as it is
		fill(&pull.Lease, 30*time.Second)
		p.Pull = &pull
	}
	if p.Fallback != nil {
		second := *p.Fallback // the caller's stays as it is
		fill(&second.After, 30*time.Second)
		second.Sink = second.Sink.withDefaults()
		p.Fallback = &second
	}
	fill(&p.Timeout, 30*time.Second)
	fill(&p.Retention, 30*24*time.Hour)
	if len(p.Ladder) == 0 {
		fill(&p.Backoff.Base, 5*time.Second)
		fill(&p.Backoff.Max, max(time.Hour, p.Backoff.Base.D()))
	}
	if p.Alarm != nil {
		alarm := *p.Alarm // the caller's stays as it is
		fill(&alarm.AtMostEvery, 5*time.Minute)
		p.Alarm = &alarm
	}
	p.Priority = cmp.Or(p.Priority, Normal)
	p.Attempts = cmp.Or(p.Attempts, 16)
	p.Concurrency = cmp.Or(p.Concurrency, 64)
	return p
}

func fill(d *Duration, value time.Duration) {
	if *d == 0 {
		*d = Duration(value)
	}
}

// Duration is a time.Duration that reads and writes as "1m30s", in YAML and in
// JSON.
type Duration time.Duration

// D gives the time.Duration.
func (d Duration) D() time.Duration { return time.Duration(d) }

// String gives the Go form.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText writes the Go form.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads the Go form.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("%q is not a duration such as 30s, 10m or 24h", b)
	}
	*d = Duration(v)
	return nil
}

// BizType is a kind of task whose payload is a T. Declare it once with Define,
// in a place that both who adds and who handles can import.
type BizType[T any] struct {
	name    string
	version int
	policy  *Policy // nil: it is applied from a file
}

// Define names a biz type that is stored in the biz_type tables. T travels as JSON in
// the task's payload; a T whose kind is string travels as it is. Every text in a T must be UTF-8. In an any, a number is a float64 for the
// handler, or a json.Number if a float64 does not hold it exactly. A name that is not
// valid for a biz type, such as the empty one of a zero BizType, is refused with
// ErrInvalid when a task is added, and by node.Handle.
//
// One policy may follow, without a Name. A node with a handler of the type stores it when it
// starts, if its database user may, and gives the type a number. A policy without a group,
// webhook or sink gets the node's group. What is stored already stays, unless a program has stored it with a lower
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

// Of means all tasks of this biz type that are not final and act on behalf of bizID.
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

// OfKey means all tasks of this biz type that are not final and act on behalf of a business key; see NewKey.
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
	if err := client.ReadJSON(info.Payload, &task.Payload); err != nil {
		return task, fmt.Errorf("payload of task %s is not a %s: %w", info.JobID, reflect.TypeFor[T](), err)
	}
	return task, nil
}

func isText[T any]() bool { return reflect.TypeFor[T]().Kind() == reflect.String }
