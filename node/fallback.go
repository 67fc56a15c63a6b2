package node

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/dispatcher"
	"github.com/tocsinhq/tocsin/sink"
)

// links delivers by a biz type's first link, and by the second one while the first has been away for long. It answers for both:
// the breaker of the biz type opens before that time is over, and when both are away. Then and while the second one
// delivers, the first is tried again after 1 s, doubling to 30 s.
//
//	up ------> missed    a delivery could not reach the first link; its tasks wait, as the breaker has it
//	missed --> standing  a later one could not either, and after has passed: it goes by the second link, as all do from then on
//	standing --> up      a try reached the first link
type links struct {
	first, second dispatcher.Sink
	after         time.Duration
	halves        bool               // the first link has half of a delivery's time: only a webhook tells soon that it can't be reached
	log           *slog.Logger       // names the biz type
	taken         prometheus.Counter // counts what the second link takes

	mu       sync.Mutex
	missed   time.Time // since then the first link is away; zero: it is not
	standing bool      // the second link delivers
	trying   bool      // standing: a delivery tries the first link; the others don't wait for what it finds
	next     time.Time // standing: when the first link is tried again
	waits    *backoff.ExponentialBackOff
}

const (
	firstTry   = time.Second      // of the first link while the second one delivers
	longestTry = 30 * time.Second // between two of them
)

// finding is what a delivery tells of the first link. Of several tasks, the greatest counts.
type finding int

const (
	nothing finding = iota // nothing was sent, or the delivery was called off
	missed                 // no task reached it
	reached
)

// Deliver implements dispatcher.Sink.
func (l *links) Deliver(ctx context.Context, tasks []tocsin.Info) []error {
	if tries, alone := l.tries(time.Now()); tries {
		if errs, goOn := l.try(ctx, tasks, alone); !goOn {
			return errs
		}
	}
	return l.bySecond(ctx, tasks)
}

// bySecond delivers by the second link.
func (l *links) bySecond(ctx context.Context, tasks []tocsin.Info) []error {
	errs := l.second.Deliver(ctx, tasks)
	for _, err := range errs {
		if err == nil {
			l.taken.Inc()
		}
	}
	return errs
}

// away returns for how long the first link has been away, while the second one delivers; else 0.
func (l *links) away(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.standing {
		return 0
	}
	return now.Sub(l.missed)
}

// tries reports whether the delivery at hand goes to the first link, and whether it is the only one that does.
func (l *links) tries(now time.Time) (tries, alone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.standing {
		return true, false
	}
	if l.trying || now.Before(l.next) {
		return false, false
	}
	l.trying = true
	return true, true
}

// try delivers by the first link, and reports whether the second one is to deliver instead.
func (l *links) try(ctx context.Context, tasks []tocsin.Info, alone bool) (errs []error, goOn bool) {
	var found finding
	defer func() { goOn = l.turn(time.Now(), alone, found) }() // also if the first link panics
	within := ctx
	if deadline, ok := ctx.Deadline(); ok && l.halves {
		var cancel context.CancelFunc
		within, cancel = context.WithDeadline(ctx, time.Now().Add(time.Until(deadline)/2))
		defer cancel()
	}
	errs = l.first.Deliver(within, tasks)
	if errors.Is(ctx.Err(), context.Canceled) {
		return errs, false
	}
	for _, err := range errs {
		switch {
		case sink.IsUnavailable(err):
			found = max(found, missed)
		case !sink.IsUnfit(err):
			found = reached
		}
	}
	return errs, false
}

// turn takes in what a try has found, and reports whether its tasks go by the second link.
func (l *links) turn(now time.Time, alone bool, found finding) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if alone {
		l.trying = false
	}
	switch {
	case found == nothing:
		return false
	case found == reached:
		if l.standing {
			l.log.Info("the first link of a biz type delivers again", "after", now.Sub(l.missed).Round(time.Millisecond).String())
		}
		l.missed, l.standing = time.Time{}, false
		return false
	case l.missed.IsZero():
		l.missed = now
	}
	if now.Sub(l.missed) < l.after {
		return false
	}
	if !l.standing {
		l.standing, alone = true, true
		l.waits = &backoff.ExponentialBackOff{InitialInterval: firstTry, Multiplier: 2, MaxInterval: longestTry}
		l.waits.Reset()
		l.log.Warn("the first link of a biz type is away: its fallback delivers", "away_for", now.Sub(l.missed).Round(time.Millisecond).String())
	}
	if alone {
		l.next = now.Add(l.waits.NextBackOff())
	}
	return true
}

// goOn takes over what another pair with the same first link knows of it.
func (l *links) goOn(from *links) {
	from.mu.Lock()
	defer from.mu.Unlock()
	l.missed, l.standing, l.next, l.waits = from.missed, from.standing, from.next, from.waits
}
