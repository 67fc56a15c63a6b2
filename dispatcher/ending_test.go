package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/internal/client"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
	"github.com/tocsinhq/tocsin/internal/store"
)

// callback is an error of a sink that tells its cause.
type callback string

func (callback) Error() string          { return "no" }
func (c callback) FailureCause() string { return string(c) }

// unreadable is an error whose nil pointer has no text.
type unreadable struct{ text string }

func (u *unreadable) Error() string { return u.text }

// unhappy is an error whose text can be read, and whose other methods panic.
type unhappy struct{}

func (unhappy) Error() string        { return "no" }
func (unhappy) NotReached() bool     { panic("not a word") }
func (unhappy) FailureCause() string { panic("not a word") }

// chained is an error whose nil pointer has a text, and no cause.
type chained struct{ cause error }

func (*chained) Error() string   { return "no" }
func (c *chained) Unwrap() error { return c.cause }

// cannotBeRead is the reason of an error of a type.
func cannotBeRead(of string) string {
	return "the handler returned a *dispatcher." + of + " that can't be read: runtime error: invalid memory address or nil pointer dereference"
}

// says is a delivery with an output, which ends with the error.
func says(text string, err error) handler {
	return func(ctx context.Context, _ tocsin.Info) error {
		tocsin.Output(ctx, text)
		return err
	}
}

// slowly is a delivery that takes a second.
func slowly(h handler) handler {
	return func(ctx context.Context, task tocsin.Info) error {
		time.Sleep(time.Second)
		return h(ctx, task)
	}
}

// endingCase is how deliveries of a task end, and what the row, the metrics, the log and the history say of it 4.5 s after the first
// began. Retries come after 3 s.
type endingCase struct {
	handler handler
	last    bool             // the first attempt is the last
	key     any              // the task's BizKey; nil: it has none
	change  func(*store.Row) // of the row, in flight; nil: nothing changes
	status  tocsin.Status
	calls   int32
	tries   int           // that are counted in the row
	reason  string        // in the row; anyReason: not checked, as it depends on chance
	said    string        // in the log; "": the reason
	fate    any           // in the log; nil: none
	next    time.Duration // of a pending row, from the first delivery
	cause   string        // of failures, as many as calls; "": none is counted
	second  string        // cause of one second delivery; "": none is counted
	logged  []string      // level and message of each line
	runs    []string      // nil: each call was retried for the reason
}

const anyReason = "*"

var (
	logFailed = []string{"warn delivery failed"}
	logLate   = []string{"warn delivery timed out"}
	logDead   = []string{"error delivery failed for good: the task is dead"}
	logNot    = []string{"warn delivery failed for good, but its task had changed meanwhile and is not dead"}
)

var endingCases = map[string]endingCase{
	"a success":                {handler: succeeds, status: tocsin.Done, calls: 1, runs: []string{"1 completed: "}},
	"a success with an output": {handler: says("sent", nil), status: tocsin.Done, calls: 1, runs: []string{"1 completed: sent"}},
	"an error": {
		handler: says("", errors.New("no answer")), key: "ord_1", status: tocsin.Pending, calls: 2, tries: 2, reason: "no answer",
		next: 6 * time.Second, cause: "error", logged: logFailed,
	},
	"an error with an output": {
		handler: says("tried 3 hosts", errors.New("no answer")), status: tocsin.Pending, calls: 2, tries: 2, reason: "no answer",
		cause: "error", logged: logFailed, runs: []string{"1 retried: no answer\ntried 3 hosts", "2 retried: no answer\ntried 3 hosts"},
	},
	"an error in the last attempt": {
		handler: says("", errors.New("no stock")), last: true, status: tocsin.Dead, calls: 1, tries: 1, reason: "no stock",
		cause: "error", logged: logDead, runs: []string{"1 buried: no stock"},
	},
	"Bury": {
		handler: says("", tocsin.Bury(callback("status_4xx"))), key: "ord_1", status: tocsin.Dead, calls: 1, tries: 1, reason: "no",
		cause: "status_4xx", logged: logDead, runs: []string{"1 buried: no"},
	},
	"RetryIn": {
		handler: says("", tocsin.RetryIn(time.Hour, callback("status_5xx"))), status: tocsin.Pending, calls: 1, tries: 1, reason: "no",
		next: time.Hour, cause: "status_5xx", logged: logFailed,
	},
	"Snooze": {
		handler: says("not yet", tocsin.Snooze(time.Hour)), status: tocsin.Pending, calls: 1, next: time.Hour,
		runs: []string{"1 snoozed: not yet"},
	},
	"a panic": {
		handler: func(context.Context, tocsin.Info) error { panic("nil order") }, status: tocsin.Pending, calls: 2, tries: 2,
		reason: "panic: nil order", next: 6 * time.Second, cause: "panic", logged: []string{"error handler panicked", logFailed[0]},
	},
	"an end of its goroutine, which leaves the slot free": {
		handler: func(context.Context, tocsin.Info) error { exit(); return nil }, status: tocsin.Pending, calls: 2, tries: 2,
		reason: errExited.Error(), cause: "error", logged: logFailed,
	},
	"an error that panics": {
		handler: says("", (*unreadable)(nil)), status: tocsin.Pending, calls: 2, tries: 2, cause: "error", logged: logFailed,
		reason: cannotBeRead("unreadable"),
	},
	"an error that panics in RetryIn": {
		handler: says("", tocsin.RetryIn(time.Hour, (*unreadable)(nil))), status: tocsin.Pending, calls: 1, tries: 1, cause: "error",
		reason: cannotBeRead("unreadable"), next: time.Hour, logged: logFailed,
	},
	"an error that panics in Bury": {
		handler: says("", tocsin.Bury((*unreadable)(nil))), status: tocsin.Dead, calls: 1, tries: 1, cause: "error",
		reason: cannotBeRead("unreadable"), logged: logDead, runs: []string{"1 buried: " + cannotBeRead("unreadable")},
	},
	"an error that panics if it is unwrapped": {
		handler: says("", (*chained)(nil)), status: tocsin.Pending, calls: 2, tries: 2, cause: "error", reason: cannotBeRead("chained"), logged: logFailed,
	},
	"an error that panics if it is asked": {
		handler: says("", unhappy{}), status: tocsin.Pending, calls: 2, tries: 2, cause: "error", reason: "no", logged: logFailed,
	},
	"a time-out of the handler": {
		handler: func(ctx context.Context, _ tocsin.Info) error { <-ctx.Done(); return ctx.Err() }, status: tocsin.Pending, calls: 1,
		tries: 1, reason: anyReason, next: 5 * time.Second, cause: "timeout", logged: logLate,
	},
	"a handler without an ear": {
		handler: func(context.Context, tocsin.Info) error { time.Sleep(3 * time.Second); return errors.New("late") }, status: tocsin.Pending,
		calls: 1, tries: 1, reason: "delivery timed out after 2s", next: 5 * time.Second, cause: "timeout", logged: logLate,
	},
	"nobody there": {
		handler: says("", callback("unreachable")), status: tocsin.Pending, calls: 2, tries: 2, reason: "no", cause: "unreachable", logged: logFailed,
	},
	"a cause that nobody knows": {
		handler: says("", callback("moon phase")), status: tocsin.Pending, calls: 2, tries: 2, reason: "no", cause: "error", logged: logFailed,
	},
	"cancelled in flight": {
		handler: slowly(says("sent", nil)), change: cancelled, status: tocsin.Cancelled, calls: 1, runs: []string{"1 cancelled: sent"},
	},
	"rescheduled in flight": {
		handler: slowly(says("sent", nil)), change: inAnHour, status: tocsin.Pending, calls: 1, runs: []string{"1 rescheduled: sent"},
	},
	"given up though it is done in its own transaction": {
		handler: slowly(says("", tocsin.Bury(errors.New("no order")))), status: tocsin.Done, calls: 1, said: "no order", fate: "in_tx",
		change: func(row *store.Row) { row.Status, row.ClaimedBy = tocsin.Done, client.CompletedInTx }, cause: "error",
		logged: logNot, runs: []string{"1 completed: no order"},
	},
	"given up though it is cancelled": {
		handler: slowly(says("", tocsin.Bury(errors.New("no order")))), status: tocsin.Cancelled, calls: 1, said: "no order", fate: "cancelled",
		change: cancelled, cause: "error", logged: logNot, runs: []string{"1 cancelled: no order"},
	},
	"given up though it is rescheduled": {
		handler: slowly(says("", tocsin.Bury(errors.New("no order")))), status: tocsin.Pending, calls: 1, said: "no order", fate: "rescheduled",
		change: inAnHour, cause: "error", logged: logNot, runs: []string{"1 rescheduled: no order"},
	},
	"settled by another": {
		handler: slowly(says("sent", errors.New("no answer"))), change: func(row *store.Row) { row.Status = tocsin.Done }, status: tocsin.Done,
		calls: 1, said: "no answer", cause: "error", second: "elsewhere", logged: logFailed, runs: []string{"1 lost: no answer\nsent"},
	},
	"claimed by another": {
		handler: slowly(says("", errors.New("too slow"))), status: tocsin.Claimed, calls: 1, said: "too slow", cause: "error", second: "elsewhere",
		change: func(row *store.Row) { row.Status, row.ClaimedBy = tocsin.Claimed, "sweeper" }, logged: logFailed, runs: []string{"1 lost: too slow"},
	},
}

func TestHowADeliveryEnds(t *testing.T) { eachWay(t, testHowADeliveryEnds) }

func testHowADeliveryEnds(t *testing.T) {
	for name, c := range endingCases {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			var log devtest.Log
			var b book
			p := kept(oneSlot())
			if c.last {
				p.Attempts = 1
			}
			sink := handler(func(ctx context.Context, task tocsin.Info) error {
				calls.Add(1)
				return c.handler(ctx, task)
			})
			inBubbleWith(t, p, sink, func(cfg *Config) { cfg.Record, cfg.Logger = b.record, log.Logger() }, func(r *rig) {
				began, id := time.Now(), r.insert(0, 1, 0)
				r.store.change(id, func(row *store.Row) { row.BizKey, _ = c.key.(string) })
				r.offer(id)
				pass(500 * time.Millisecond)
				if c.change != nil {
					r.store.change(id, c.change)
				}
				pass(4 * time.Second)
				if calls.Load() != c.calls {
					t.Errorf("%d calls, want %d", calls.Load(), c.calls)
				}
				c.checkRow(t, r.store.row(id), began)
				c.checkMetrics(r)
				c.checkLog(t, &log, id)
				c.checkRuns(t, b.lines())
			})
		})
	}
}

func (c endingCase) checkRow(t *testing.T, row store.Row, began time.Time) {
	t.Helper()
	if row.Status != c.status || row.Attempts != c.tries || c.reason != anyReason && row.LastError != c.reason {
		t.Errorf("it is %s after %d attempts, %q", row.Status, row.Attempts, row.LastError)
	}
	if next := time.UnixMilli(row.Action).Sub(began); c.next != 0 && !near(next, c.next) {
		t.Errorf("next after %s, want %s", next, c.next)
	}
}

func (c endingCase) checkMetrics(r *rig) {
	r.t.Helper()
	failures, second := map[string]float64{}, map[string]float64{}
	if c.cause != "" {
		failures[" order.close "+c.cause] = float64(c.calls)
	}
	if c.second != "" {
		second[" "+c.second] = 1
	}
	if got := r.read("failures_total"); !maps.Equal(got, failures) {
		r.t.Errorf("failures %v, want %v", got, failures)
	}
	if got := r.read("second_deliveries_total"); !maps.Equal(got, second) {
		r.t.Errorf("second deliveries %v, want %v", got, second)
	}
}

func (c endingCase) checkLog(t *testing.T, log *devtest.Log, id tocsin.JobID) {
	t.Helper()
	var got []string
	for _, line := range log.Lines() {
		got = append(got, fmt.Sprint(line["level"], " ", line["message"]))
	}
	if !slices.Equal(got, c.logged) {
		t.Fatalf("logged %q, want %q", got, c.logged)
	}
	if len(got) == 0 {
		return
	}
	line := log.Lines()[len(got)-1]
	if line["biz_type"] != "order.close" || line["job_id"] != id.String() || line["attempt"] != 1.0 || line["biz_key"] != c.key || line["fate"] != c.fate {
		t.Errorf("logged %v", line)
	}
	if want := cmp.Or(c.said, c.reason); want != anyReason && line["error"] != want {
		t.Errorf("logged the error %q, want %q", line["error"], want)
	}
}

func (c endingCase) checkRuns(t *testing.T, got []string) {
	t.Helper()
	want := c.runs
	for i := 0; c.runs == nil && i < int(c.calls); i++ {
		want = append(want, fmt.Sprintf("%d retried: %s", i+1, c.reason))
	}
	if c.reason != anyReason && !slices.Equal(got, want) {
		t.Errorf("history %q, want %q", got, want)
	}
}
