// Package loglimit keeps a lasting fault from flooding the log. The first line of a cause is written at once, then at
// most one a minute, which counts the lines left out since ("suppressed": 41).
//
// A loop reports every failure, not only the first in a row. So a fault that lasts is logged again each minute, and no
// caller has to remember what it has already logged.
//
// rate.Sometimes and zerolog's BurstSampler limit one place in the code. Neither counts what it leaves out, nor forgets
// causes that ended.
package loglimit

import (
	"sync"
	"time"

	"github.com/rs/zerolog"
)

const (
	// interval is the time between two lines of one cause.
	interval = time.Minute
	// causes is how many causes are kept apart. All others share one line a minute.
	causes = 256
	// others is the cause of those others. No caller's cause is empty.
	others = ""
)

// Limit remembers the recent lines. The zero value is ready to use; all methods may be called concurrently.
type Limit struct {
	mu    sync.Mutex
	known map[string]*cause
}

type cause struct {
	written    time.Time // the last line
	suppressed int       // lines left out since
}

// Of returns e if a line of this cause may be written now, with the number of lines left out since the last one.
// Otherwise it discards e and returns nil, on which all methods of an event do nothing:
//
//	limit.Of(log.Warn(), "peek "+server).Err(err).Msg("server can't be peeked")
//
// The cause names the faulty thing, and never contains a table, a row or an error's text: one sick server has one cause
// in each loop.
func (l *Limit) Of(e *zerolog.Event, what string) *zerolog.Event {
	suppressed, ok := l.take(what, time.Now())
	if !ok {
		return e.Discard()
	}
	if suppressed > 0 {
		e.Int("suppressed", suppressed)
	}
	return e
}

// take reports whether a line may be written at now, and how many were left out before it.
func (l *Limit) take(what string, now time.Time) (suppressed int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.cause(what, now)
	if !c.written.IsZero() && now.Sub(c.written) < interval {
		c.suppressed++
		return 0, false
	}
	suppressed = c.suppressed
	*c = cause{written: now}
	return suppressed, true
}

// cause returns the state of a cause, or that of all others if there is no room for one more.
func (l *Limit) cause(what string, now time.Time) *cause {
	if c, ok := l.known[what]; ok {
		return c
	}
	if len(l.known) >= causes {
		l.forget(now)
	}
	if len(l.known) >= causes {
		what = others
		if c, ok := l.known[others]; ok {
			return c
		}
	}
	if l.known == nil {
		l.known = make(map[string]*cause)
	}
	c := new(cause)
	l.known[what] = c
	return c
}

// forget drops causes whose minute is over. The number of lines they left out is lost with them, as they have ended.
func (l *Limit) forget(now time.Time) {
	for what, c := range l.known {
		if now.Sub(c.written) >= interval {
			delete(l.known, what)
		}
	}
}
