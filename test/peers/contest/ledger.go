package contest

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"
)

// ledger notes the deliveries of a work's tasks, which are numbered from first.
// Safe for concurrent use.
type ledger struct {
	first  int
	times  []atomic.Int32 // deliveries by task
	starts []atomic.Int64 // Unix nanoseconds of the first delivery, by task
	seen   atomic.Int64   // tasks delivered
	again  atomic.Int64   // deliveries beyond the first of a task
	stray  atomic.Int64   // deliveries of what is no task of the work
	begin  atomic.Int64   // Unix nanoseconds of the first delivery of all
}

func newLedger(first, n int) *ledger {
	return &ledger{first: first, times: make([]atomic.Int32, n), starts: make([]atomic.Int64, n)}
}

// deliver is the handler of every system.
func (l *ledger) deliver(body string) {
	now := time.Now().UnixNano()
	n, err := number(body)
	n -= l.first
	if err != nil || n < 0 || n >= len(l.times) {
		l.stray.Add(1)
		return
	}
	if l.times[n].Add(1) > 1 {
		l.again.Add(1)
		return
	}
	l.starts[n].Store(now)
	if l.seen.Add(1) == 1 {
		l.begin.Store(now)
	}
}

func (l *ledger) began() time.Time        { return time.Unix(0, l.begin.Load()) }
func (l *ledger) start(n int) time.Time   { return time.Unix(0, l.starts[n].Load()) }
func (l *ledger) count() (seen, more int) { return int(l.seen.Load()), int(l.again.Load()) }

const (
	lookEvery   = time.Millisecond
	stallWithin = time.Minute // without a delivery
)

// await returns when n tasks have been delivered and s has stored all outcomes.
func (l *ledger) await(ctx context.Context, s System, n int) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	last, moved := int64(-1), time.Now()
	for {
		if seen := l.seen.Load(); seen != last {
			last, moved = seen, time.Now()
		}
		if last >= int64(n) {
			if quiet, err := s.Quiet(ctx); err != nil || quiet {
				return err
			}
		}
		if time.Since(moved) > stallWithin {
			return fmt.Errorf("stalled: %d of %d tasks were delivered, and nothing more happened for %s", last, n, stallWithin)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// digits of the number at the beginning of a body.
const digits = 10

// Body is the payload of the task with the number: of the size of a small JSON
// object, and no JSON, so that nobody decodes it.
func Body(number int) string {
	return fmt.Sprintf("%0*d order A-1234567890, reason unpaid, customer 4711, note thirty minutes", digits, number)
}

// number reads what Body wrote.
func number(body string) (int, error) {
	if len(body) < digits {
		return 0, fmt.Errorf("delivered %q, which no task has as its body", body)
	}
	return strconv.Atoi(body[:digits])
}
