package client

import (
	"sync"

	"github.com/tocsinhq/tocsin/internal/name"
)

// MaxOutput is the most characters of an output, which is valid UTF-8.
const MaxOutput = 1024

// outputKey is the type of OutputKey.
type outputKey struct{}

// OutputKey is the key of a delivery's *Outputs among the values of its context.
var OutputKey any = outputKey{}

// resentKey is the type of ResentKey.
type resentKey struct{}

// ResentKey is the key of a func() among the values of a delivery's context. A sink calls it when it sends again what may have arrived.
var ResentKey any = resentKey{}

// Outputs are those of one delivery: what a handler passes to tocsin.Output and tocsin.OutputOf, and the dispatcher has stored with the
// run. The zero value is empty and ready. It is safe for concurrent use.
type Outputs struct {
	mu  sync.Mutex
	all string            // of the tasks that have none of their own
	own map[uint64]string // by job_id
}

// Set replaces the outputs of all tasks.
func (o *Outputs) Set(text string) {
	text = CutOutput(text)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all, o.own = text, nil
}

// SetOf replaces the output of one task.
func (o *Outputs) SetOf(jobID uint64, text string) {
	text = CutOutput(text)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.own == nil {
		o.own = make(map[uint64]string, 1)
	}
	o.own[jobID] = text
}

// Of returns the output of a task.
func (o *Outputs) Of(jobID uint64) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if text, ok := o.own[jobID]; ok {
		return text
	}
	return o.all
}

// CutOutput returns a text as the history takes it.
func CutOutput(text string) string { return name.Text(text, MaxOutput) }

// AttemptOutput is the output of an attempt in the history; of a failed one, its reason comes first.
func AttemptOutput(reason, text string) string {
	switch {
	case reason == "":
		return text
	case text == "":
		return CutOutput(reason)
	}
	return CutOutput(reason + "\n" + text)
}
