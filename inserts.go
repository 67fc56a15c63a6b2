package tocsin

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/tocsinhq/tocsin/internal/name"
)

// maxInserts bounds Inserts.Rate and Inserts.Burst.
const maxInserts = 1_000_000

// maxSpread bounds Inserts.Spread.
const maxSpread = time.Hour

// Inserts limits the tasks of a biz type that one client adds, so that a program that runs wild can't flood tables which others
// share, and spreads those that would all fall due in the same moment. Each client counts for itself: the limit of a service is that of a process times its processes. What counts is the
// tasks of a call, also those that exist already or are refused; tasks in an outbox count when they are written there.
type Inserts struct {
	Rate  float64 // tasks a second, at most 1000000; 0: no limit
	Burst int     // tasks at once after a pause, at most 1000000; 0: Rate, rounded up

	// Wait makes a call over the limit wait, until there is room for all of its tasks or its context ends; one with more than
	// Burst tasks waits for a portion after the other, and then stores them all. A call in a transaction keeps its locks
	// meanwhile. If the context's deadline is too near, or without Wait, the call fails at once with an InsertLimitError.
	Wait bool

	// Spread moves a task of At that is due exactly on a whole minute later by a fixed part of this window, in [0, Spread): whole
	// milliseconds, at most an hour; 0: no task is moved. The part follows from the biz_id and the dedup or unique key, so that a
	// task that is added again has the same time; without a key it follows from the job_id that the call made. Both action_time and
	// due_time hold the moved time. In, Reschedule, runs of schedules (which have a jitter) and rows of plain SQL are not moved.
	//
	// It is what FixedRandomDelay= does to RandomizedDelaySec= in systemd.timer(5): a delay that is random over the units, but the
	// same each time. Temporal's schedules draw their jitter from a hash too (temporalio/temporal, scheduler/spec.go).
	Spread time.Duration
}

// InsertLimitError is the error of a call that is over the limit of Config.Inserts. None of its tasks is stored, and a
// transaction is as it was.
type InsertLimitError struct {
	BizType string
	After   time.Duration // there is room for the call after this time, if nothing else takes it; 0: never, as it has more tasks than Burst

	text string
}

func (e *InsertLimitError) Error() string { return e.text }

func (i Inserts) validate(bizType string) error {
	switch err := name.CheckLower("inserts: biz type", bizType); {
	case err != nil:
		return err
	case !(i.Rate >= 0 && i.Rate <= maxInserts): // NaN too
		return fmt.Errorf("inserts of %s: rate %g: use at most %d, or 0 for no limit", bizType, i.Rate, maxInserts)
	case i.Burst < 0 || i.Burst > maxInserts:
		return fmt.Errorf("inserts of %s: burst %d: use 1 to %d, or 0 for that of the rate", bizType, i.Burst, maxInserts)
	case i.Rate == 0 && i.Burst > 0:
		return fmt.Errorf("inserts of %s: burst needs a rate", bizType)
	case i.Rate == 0 && i.Wait:
		return fmt.Errorf("inserts of %s: wait needs a rate", bizType)
	case i.Spread < 0 || i.Spread > maxSpread || i.Spread%time.Millisecond != 0:
		return fmt.Errorf("inserts of %s: spread %s: use whole milliseconds, at most %s", bizType, i.Spread, maxSpread)
	}
	return nil
}

// spread returns when the task acts, given the window of its biz type. It is pure.
func (r *row) spread(window time.Duration) When {
	w := r.when
	if window == 0 || !w.absolute() || !w.at.Truncate(time.Minute).Equal(w.at) {
		return w
	}
	seed := make([]byte, 0, 8+MaxDedupKey)
	if r.dedup == nil {
		seed = binary.BigEndian.AppendUint64(seed, uint64(r.id))
	} else {
		seed = append(binary.BigEndian.AppendUint64(seed, r.bizID), r.dedup...)
	}
	hash := sha256.Sum256(seed)
	w.at = w.at.Add(time.Duration(binary.BigEndian.Uint64(hash[:])%uint64(window/time.Millisecond)) * time.Millisecond)
	return w
}

// limits are those of Config.Inserts.
type limits struct {
	of map[string]*limit // by biz type

	mu sync.Mutex // held while tokens are taken at once: for all biz types of a call, or for none
}

// limit is that of a biz type.
type limit struct {
	*rate.Limiter
	bizType string
	wait    bool
}

// limited adds the limits to the functions of Config.Use, as the innermost: tasks that another function refuses do not count.
func (c Config) limited() []func(AddFunc) AddFunc {
	l := &limits{of: map[string]*limit{}}
	for bizType, i := range c.Inserts {
		if i.Rate > 0 {
			burst := cmp.Or(i.Burst, int(math.Ceil(i.Rate)))
			l.of[bizType] = &limit{rate.NewLimiter(rate.Limit(i.Rate), burst), bizType, i.Wait}
		}
	}
	if len(l.of) == 0 {
		return c.Use
	}
	return append(slices.Clip(c.Use), l.around)
}

func (l *limits) around(next AddFunc) AddFunc {
	return func(ctx context.Context, call *Adding) ([]Added, error) {
		if err := l.take(ctx, call.Tasks); err != nil {
			return nil, err
		}
		return next(ctx, call)
	}
}

// take takes a token for each task of a limited biz type.
func (l *limits) take(ctx context.Context, tasks []NewTask) error {
	counts := map[*limit]int{}
	for _, t := range tasks {
		if of := l.of[t.bizType]; of != nil {
			counts[of]++
		}
	}
	if err := l.takeNow(counts); err != nil {
		return err
	}
	for of, n := range counts {
		if of.wait {
			if err := of.await(ctx, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// takeNow takes the tokens that are not waited for. If they are not all there it takes none, and names the biz type that
// needs the longest time.
func (l *limits) takeNow(counts map[*limit]int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	var over *InsertLimitError
	for of, n := range counts {
		if n > of.Burst() && !of.wait {
			return &InsertLimitError{BizType: of.bizType, text: fmt.Sprintf("biz type %q: %d tasks in one call, and the limit of inserts takes %d at once: split them up", of.bizType, n, of.Burst())}
		}
		if after := of.missing(n, now); after > 0 && !of.wait && (over == nil || after > over.After) {
			over = of.over(after)
		}
	}
	if over != nil {
		return over
	}
	for of, n := range counts {
		if !of.wait {
			of.AllowN(now, n)
		}
	}
	return nil
}

// await waits for the tokens of n tasks, in portions of at most Burst.
func (l *limit) await(ctx context.Context, n int) error {
	now := time.Now()
	if deadline, some := ctx.Deadline(); some && now.Add(l.missing(n, now)).After(deadline) {
		return l.over(l.missing(n, now))
	}
	for n > 0 {
		portion := min(n, l.Burst())
		err := l.WaitN(ctx, portion)
		switch {
		case err == nil:
			n -= portion
		case ctx.Err() != nil:
			return fmt.Errorf("biz type %q: nothing is stored, the call waited for the limit of inserts: %w", l.bizType, ctx.Err())
		default: // others were faster, and the deadline is too near now
			return l.over(max(l.missing(n, time.Now()), time.Millisecond))
		}
	}
	return nil
}

// missing returns the time after which there are tokens for n tasks; at most 0: they are there.
func (l *limit) missing(n int, now time.Time) time.Duration {
	return time.Duration(math.Ceil((float64(n) - l.TokensAt(now)) / float64(l.Limit()) * float64(time.Second)))
}

func (l *limit) over(after time.Duration) *InsertLimitError {
	return &InsertLimitError{BizType: l.bizType, After: after, text: fmt.Sprintf("biz type %q is over the limit of inserts, %g a second: nothing is stored, try again in %s",
		l.bizType, float64(l.Limit()), after.Round(time.Millisecond)+time.Millisecond)}
}
