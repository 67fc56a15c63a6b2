package main

import (
	"time"

	"github.com/mattn/go-isatty"
	"github.com/rs/zerolog"
)

// Log times have milliseconds, so that the lines of two nodes can be ordered within a second.
const (
	logTime      = "2006-01-02T15:04:05.000Z07:00"
	terminalTime = "15:04:05.000"
)

// logger writes to standard error: text on a terminal or where asked for, else
// JSON. level is one of zerolog's names, checked with the config.
func (a *app) logger(level, format string) zerolog.Logger {
	parsed, err := zerolog.ParseLevel(level)
	if err != nil || level == "" {
		parsed = zerolog.InfoLevel
	}
	log := zerolog.New(a.err)
	if format == "text" || format == "" && isatty.IsTerminal(a.err.Fd()) {
		log = log.Output(zerolog.ConsoleWriter{Out: a.err, TimeFormat: terminalTime})
	}
	return log.Level(parsed).Hook(zerolog.HookFunc(stamp))
}

// stamp adds the time. zerolog's own Timestamp has one format per process, with whole seconds.
func stamp(e *zerolog.Event, _ zerolog.Level, _ string) {
	e.Str(zerolog.TimestampFieldName, time.Now().Format(logTime))
}
