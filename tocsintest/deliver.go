package tocsintest

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
)

// Handler is what node.Handle takes.
type Handler[T any] func(context.Context, *tocsin.Task[T]) error

// Outcome is what a node would make of a handler's answer.
type Outcome struct {
	Verb   tocsin.Verb   // Completed, Retried, Snoozed or Buried
	In     time.Duration // Retried, Snoozed: wait that long; -1: as the biz type's policy says
	Reason string        // Retried, Buried: kept as last_error
}

// String gives a line: "retry in 5s: no stock".
func (o Outcome) String() string {
	text := o.Verb.String()
	if o.In > 0 {
		text += " in " + o.In.String()
	}
	if o.Reason != "" {
		text += ": " + o.Reason
	}
	return text
}

// Option changes the task that Deliver hands over.
type Option func(*tocsin.Info)

// BizID sets the task's biz_id; without it is 1.
func BizID(id uint64) Option { return func(i *tocsin.Info) { i.BizID = id } }

// BizKey makes the task one of a business key that is no number; see tocsin.BizType.NewKey.
func BizKey(key string) Option {
	return func(i *tocsin.Info) { i.BizID, i.BizKey = tocsin.KeyID(key), key }
}

// Headers gives the task headers. They are not checked as those of a task that is added.
func Headers(all map[string]string) Option {
	return func(i *tocsin.Info) {
		text, _ := json.Marshal(all) // texts always can be written
		i.Headers = tocsin.Headers(text)
	}
}

// Attempts makes the delivery the one after n failed ones.
func Attempts(n int) Option { return func(i *tocsin.Info) { i.Attempts = n } }

// Late makes the delivery d late.
func Late(d time.Duration) Option {
	return func(i *tocsin.Info) {
		i.DueTime = i.DueTime.Add(-d)
		i.ActionTime = i.ActionTime.Add(-d)
	}
}

// Deliver hands a task to a handler as a node would: the payload goes through
// its stored form, a panic is a failed attempt. No server is needed and nothing
// is stored. Middleware, batches and CompleteTx are for nodetest.RunDue. A payload that can't be stored, or not be read back, is a failed
// attempt with that reason. An Option that sets the Payload shows what becomes of
// a payload as another version of the program wrote it.
func Deliver[T any](ctx context.Context, handler Handler[T], biz tocsin.BizType[T], payload T, options ...Option) Outcome {
	task, err := stored(biz, payload, options)
	if err == nil {
		err = call(ctx, handler, &task)
	}
	verb, in, reason := tocsin.AsOutcome(err)
	return Outcome{Verb: verb, In: in, Reason: reason}
}

// stored is the task as a node would load it now.
func stored[T any](biz tocsin.BizType[T], payload T, options []Option) (tocsin.Task[T], error) {
	text, err := biz.Encode(payload)
	if err == nil {
		err = client.CheckPayload(text)
	}
	if err != nil {
		return tocsin.Task[T]{}, err
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	info := tocsin.Info{
		JobID:      1,
		BizID:      1,
		BizType:    biz.Name(),
		ActionTime: now,
		DueTime:    now,
		Payload:    text,
		Created:    now,
		Modified:   now,
	}
	if v := biz.PayloadVersion(); v >= client.FirstMarked {
		info.PayloadVersion = v
	}
	for _, option := range options {
		option(&info)
	}
	return biz.Decode(info)
}

func call[T any](ctx context.Context, handler Handler[T], task *tocsin.Task[T]) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.New(client.PanicWords(p))
		}
	}()
	return handler(ctx, task)
}
