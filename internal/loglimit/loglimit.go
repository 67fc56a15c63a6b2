// Package loglimit keeps a lasting fault from flooding the log. The first line of a cause is written at once, then at
// most one a minute, which counts the lines left out since ("suppressed": 41).
//
// A loop reports every failure, not only the first of a row: so a fault that lasts is told again each minute, and
// nobody keeps a "said already" of their own.
//
// rate.Sometimes and zerolog's BurstSampler limit one place of the code. Neither counts what it leaves out, nor forgets
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
	// causes is how many are known apart at most. Those beyond share one line a minute.
	causes = 256
	// others is the cause that those share. No caller's cause is empty.
	others = ""
)

// Limit knows what was written lately. The zero value is ready to use; all methods may be called concurrently.
type Limit struct {
	mu    sync.Mutex
	known map[string]*cause
}

type cause struct {
	written    time.Time // the last line
	suppressed int       // lines left out since
}

// Of returns e if a line of this cause may be written now, with what was left out since the last one. Otherwise it
// discards e and returns nil, on which all methods of an event do nothing:
//
//	limit.Of(log.Warn(), "peek "+server).Err(err).Msg("server can't be peeked")
//
// The cause names what is at fault, and is never made of a table, a row or an error's text: one sick server has one
// cause in each loop.
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

// cause returns what is known of a cause, or of all others if there is no room for one more.
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

// forget drops the causes that may write again anyway. What they left out is lost with them: they have ended.
func (l *Limit) forget(now time.Time) {
	for what, c := range l.known {
		if now.Sub(c.written) >= interval {
			delete(l.known, what)
		}
	}
}
