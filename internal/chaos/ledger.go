package chaos

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tocsinhq/tocsin"
)

// word is what the cluster said of an operation.
type word string

// The words. Unknown is the client's own ErrUnknownOutcome, or a transaction whose
// commit broke.
const (
	acknowledged word = "acknowledged"
	refusedWord  word = "refused"
	unknownWord  word = "unknown"
	rolledBack   word = "rolled back"
)

// wordOf reads the error of an operation.
func wordOf(err error) word {
	switch {
	case err == nil:
		return acknowledged
	case errors.Is(err, tocsin.ErrUnknownOutcome):
		return unknownWord
	}
	return refusedWord
}

// op is a cancel or reschedule of one task.
type op struct {
	Cancel bool
	Due    time.Time // of a reschedule
	Sent   time.Time
	Back   time.Time // when the answer came
	Word   word
	Change tocsin.Change
}

// done reports whether the operation took hold for certain.
func (o *op) done() bool { return o != nil && o.Word == acknowledged && o.Change.Changed == 1 }

// maybe reports whether it may have taken hold.
func (o *op) maybe() bool { return o != nil && (o.done() || o.Word == unknownWord) }

// entry is one task as the harness asked for it. Each has a biz_id of its own.
type entry struct {
	BizID  uint64
	JobID  tocsin.JobID // 0: not told
	Type   string
	Fail   int // attempts that are to fail before one succeeds
	Do     string
	Due    time.Time
	Sent   time.Time
	Back   time.Time
	Word   word
	Change *op // at most one

	order  *order  // that the task is of; nil: it was added directly
	firing *firing // that the task is; nil: it is no run of a schedule
}

// due is when a version of the task was asked for.
func (e *entry) due(version uint32) time.Time {
	if version > 0 && e.Change != nil && !e.Change.Cancel {
		return e.Change.Due
	}
	return e.Due
}

// awaited is from when on a delivery of a version is late: when it was asked for, or
// when its insert was answered if that was later.
func (e *entry) awaited(version uint32) time.Time {
	if due := e.due(version); due.After(e.Back) {
		return due
	}
	return e.Back
}

// String is for a breach's trace.
func (e *entry) String() string {
	if e.order != nil {
		return e.order.String()
	}
	if e.firing != nil {
		return e.firing.String()
	}
	text := fmt.Sprintf("biz_id %d, job_id %s, %s, fails %d %s: add for %s sent %s, %s %s", e.BizID, e.JobID, e.Type, e.Fail, e.Do,
		e.Due.UTC().Format(clockForm), e.Sent.UTC().Format(clockForm), e.Word, e.Back.UTC().Format(clockForm))
	if o := e.Change; o != nil {
		verb := "reschedule to " + o.Due.UTC().Format(clockForm)
		if o.Cancel {
			verb = "cancel"
		}
		text += fmt.Sprintf("\n  %s sent %s, %s %s %+v", verb, o.Sent.UTC().Format(clockForm), o.Word, o.Back.UTC().Format(clockForm), o.Change)
	}
	return text
}

// ledger remembers every operation. Safe for concurrent use; the entries belong
// to whoever works on them until the producer has ended.
type ledger struct {
	mu   sync.Mutex
	next uint64
	all  map[uint64]*entry
}

func newLedger() *ledger { return &ledger{all: map[uint64]*entry{}} }

// open makes an entry with a new biz_id.
func (l *ledger) open(typ string, due time.Time) *entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next++
	e := &entry{BizID: l.next, Type: typ, Due: due}
	l.all[e.BizID] = e
	return e
}

// drop forgets tasks that were never sent.
func (l *ledger) drop(drafts []draft) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range drafts {
		delete(l.all, d.entry.BizID)
	}
}
