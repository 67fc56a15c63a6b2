package dispatcher

import (
	"fmt"
	"strings"
	"time"

	"github.com/tocsinhq/tocsin"
)

const (
	laterFor    = 24 * time.Hour // for so long since the first one, an answer "later" is no attempt of its task; a receiver's Retry-After is bounded by as much
	mostLater   = time.Minute    // between two deliveries of a task that is told so again and again, if neither its target nor the policy wants more: others may just be quicker
	leastSnooze = time.Second    // until a task comes again that its target has put off: a target must not keep a node busy for ever
)

// told is how often a task was answered "later" in a row, and since when. It stands before the reason in last_error, where it
// outlives the process and people see it:
//
//	told later 3x since 2026-11-22T08:36:41Z: callback answered 429 Too Many Requests
type told struct {
	times int
	since time.Time // in whole seconds, rounded up
}

// toldOf reads what a task's row says. A task that was rescheduled or redriven since begins anew.
func toldOf(task *tocsin.Info) (t told) {
	head, _, _ := strings.Cut(task.LastError, ": ")
	var since string
	if n, _ := fmt.Sscanf(head, "told later %dx since %s", &t.times, &since); n < 2 || t.times < 1 {
		return told{}
	}
	at, err := time.Parse(time.RFC3339, since)
	if err != nil || at.Before(task.DueTime) {
		return told{}
	}
	t.since = at
	return t
}

// again returns t after one more, at a time in Unix milliseconds.
func (t told) again(now int64) told {
	if t.times == 0 {
		t.since = time.Unix((now+999)/1000, 0).UTC()
	}
	t.times++
	return t
}

// over reports whether the task was told so for too long: from then on each time is a failed attempt.
func (t told) over(now int64) bool { return time.UnixMilli(now).Sub(t.since) >= laterFor }

func (t told) before(reason string) string {
	return fmt.Sprintf("told later %dx since %s: %s", t.times, t.since.Format(time.RFC3339), reason)
}
