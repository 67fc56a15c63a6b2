// Package output carries what a handler gives as the output of its delivery from package tocsin, which handlers call, to
// the dispatcher, which has it stored with the run. It is the authority for what an output may be: valid UTF-8 of at most
// 1,024 characters.
package output

import (
	"strings"
	"sync"
	"unicode/utf8"
)

// Max is the most characters of an output.
const Max = 1024

// key is the type of Key.
type key struct{}

// Key is the key of a delivery's *Outputs among the values of its context.
var Key any = key{}

// Outputs are those of one delivery. The zero value is empty and ready. It is safe for concurrent use.
type Outputs struct {
	mu  sync.Mutex
	all string            // of the tasks that have none of their own
	own map[uint64]string // by job_id
}

// Set replaces the outputs of all tasks.
func (o *Outputs) Set(text string) {
	text = Cut(text)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all, o.own = text, nil
}

// SetOf replaces the output of one task.
func (o *Outputs) SetOf(jobID uint64, text string) {
	text = Cut(text)
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

// Cut returns the first Max characters of a text, with U+FFFD in place of bytes that are no UTF-8. What it returns keeps
// no longer text in memory.
func Cut(text string) string {
	if len(text) <= Max && utf8.ValidString(text) {
		return text
	}
	end, runes := len(text), 0
	for i := range text {
		if runes == Max {
			end = i
			break
		}
		runes++
	}
	short := strings.ToValidUTF8(text[:end], string(utf8.RuneError))
	if end < len(text) {
		return strings.Clone(short)
	}
	return short
}
