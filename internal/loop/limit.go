package loop

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// interval is the time between two lines of one cause.
	interval = time.Minute
	// causes is how many causes are kept apart. All others share one line a minute.
	causes = 256
	// others is the cause of those others. No caller's cause is empty.
	others = ""
)

// LogLimit remembers the recent lines. The zero value is ready to use; all methods may be called concurrently.
type LogLimit struct {
	mu    sync.Mutex
	known map[string]*cause
}

type cause struct {
	written    time.Time // the last line
	suppressed int       // lines left out since
}

// silent is the logger of lines that are left out.
var silent = slog.New(slog.DiscardHandler)

// Of returns the logger for one line. If a line of this cause may be written now, that is log, with the number of lines
// left out since the last one. Otherwise it is a logger that writes nothing and is not Enabled:
//
//	limit.Of(log, "peek "+server).Warn("server can't be peeked", "error", err)
//
// The cause names the faulty thing, and never contains a table, a row or an error's text: one sick server has one cause
// in each loop.
func (l *LogLimit) Of(log *slog.Logger, what string) *slog.Logger {
	suppressed, ok := l.take(what, time.Now())
	switch {
	case !ok:
		return silent
	case suppressed > 0:
		return log.With("suppressed", suppressed)
	}
	return log
}

// Logger returns log, or for nil a logger that passes warnings and errors to slog.Default(), so that no fault is silent.
func Logger(log *slog.Logger) *slog.Logger {
	if log != nil {
		return log
	}
	return AtLeast(slog.Default(), slog.LevelWarn)
}

// AtLeast returns a logger that passes the lines of a level and above to log.
func AtLeast(log *slog.Logger, level slog.Level) *slog.Logger {
	return slog.New(atLeast{log.Handler(), level})
}

// atLeast passes on the lines of a level and above.
type atLeast struct {
	slog.Handler

	level slog.Level
}

func (h atLeast) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= h.level && h.Handler.Enabled(ctx, level)
}

func (h atLeast) WithAttrs(attrs []slog.Attr) slog.Handler {
	return atLeast{h.Handler.WithAttrs(attrs), h.level}
}

func (h atLeast) WithGroup(name string) slog.Handler {
	return atLeast{h.Handler.WithGroup(name), h.level}
}

// take reports whether a line may be written at now, and how many were left out before it.
func (l *LogLimit) take(what string, now time.Time) (suppressed int, ok bool) {
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
func (l *LogLimit) cause(what string, now time.Time) *cause {
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
func (l *LogLimit) forget(now time.Time) {
	for what, c := range l.known {
		if now.Sub(c.written) >= interval {
			delete(l.known, what)
		}
	}
}
