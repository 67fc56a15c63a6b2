package client

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limits bound the tasks that are added, by biz type; see tocsin.Inserts. The zero value bounds none. Take may be called
// concurrently.
type Limits struct {
	of map[string]*limit

	mu sync.Mutex // held while tokens are taken at once: for all biz types of a call, or for none
}

// limit is that of a biz type.
type limit struct {
	*rate.Limiter
	bizType string
	wait    bool
}

// OverLimit is the error of a call that is over the limit of a biz type; see tocsin.InsertLimitError.
type OverLimit struct {
	BizType string
	After   time.Duration
	Text    string
}

func (e *OverLimit) Error() string { return e.Text }

// Set limits a biz type to a rate of tasks a second, and a burst. A call over the limit waits, or fails at once.
func (l *Limits) Set(bizType string, perSecond float64, burst int, wait bool) {
	if l.of == nil {
		l.of = map[string]*limit{}
	}
	l.of[bizType] = &limit{rate.NewLimiter(rate.Limit(perSecond), burst), bizType, wait}
}

// None reports whether no biz type is limited.
func (l *Limits) None() bool { return len(l.of) == 0 }

// Take takes a token for each task of a limited biz type, given how many tasks of each type a call has. Its error is an OverLimit,
// or that of ctx. It then has given back all tokens except those that it had waited for.
func (l *Limits) Take(ctx context.Context, tasks map[string]int) error {
	counts := map[*limit]int{}
	for bizType, n := range tasks {
		if of := l.of[bizType]; of != nil {
			counts[of] = n
		}
	}
	if over := l.takeNow(ctx, counts); over != nil {
		return over
	}
	for of, n := range counts {
		if !of.wait {
			continue
		}
		if err := of.await(ctx, n); err != nil {
			for of, n := range counts {
				if !of.wait {
					of.ReserveN(time.Now(), -n) // gives them back
				}
			}
			return err
		}
	}
	return nil
}

// takeNow takes the tokens that are not waited for. If they are not all there, or the others will not be before ctx ends, it takes
// none, and names the biz type that needs the longest time.
func (l *Limits) takeNow(ctx context.Context, counts map[*limit]int) *OverLimit {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	deadline, bounded := ctx.Deadline()
	var over *OverLimit
	for of, n := range counts {
		if n > of.Burst() && !of.wait {
			return &OverLimit{BizType: of.bizType, Text: fmt.Sprintf("biz type %q: %d tasks in one call, and the limit of inserts takes %d at once: split them up", of.bizType, n, of.Burst())}
		}
		after := of.missing(n, now)
		late := !of.wait || bounded && now.Add(after).After(deadline)
		if after > 0 && late && (over == nil || after > over.After) {
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
	seconds := (float64(n) - l.TokensAt(now)) / float64(l.Limit())
	return time.Duration(math.Ceil(min(seconds, maxDuration.Seconds()) * float64(time.Second)))
}

func (l *limit) over(after time.Duration) *OverLimit {
	return &OverLimit{BizType: l.bizType, After: after, Text: fmt.Sprintf("biz type %q is over the limit of inserts, %.15g a second: nothing is stored, try again in %s",
		l.bizType, float64(l.Limit()), after.Round(time.Millisecond)+time.Millisecond)}
}
