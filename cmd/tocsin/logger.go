package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/rs/zerolog"
)

// Log times have milliseconds, so that the lines of two nodes can be ordered within a second.
const (
	logTime      = "2006-01-02T15:04:05.000Z07:00"
	terminalTime = "15:04:05.000"
)

// logger writes to standard error: text on a terminal or where asked for, which quotes values, else
// JSON. level is one of zerolog's names, checked with the config.
func (a *app) logger(level, format string) *slog.Logger {
	parsed, err := zerolog.ParseLevel(level)
	if err != nil || level == "" {
		parsed = zerolog.InfoLevel
	}
	log := zerolog.New(a.err)
	if format == "text" || format == "" && isatty.IsTerminal(a.err.Fd()) {
		log = log.Output(zerolog.ConsoleWriter{Out: a.err.file, TimeFormat: terminalTime})
	}
	return slog.New(stamped{zerolog.NewSlogHandler(log.Level(parsed))})
}

// stamped writes the time of a line with milliseconds. zerolog has one format of times per process, with whole seconds.
type stamped struct{ slog.Handler }

func (h stamped) Handle(ctx context.Context, line slog.Record) error {
	line.AddAttrs(slog.String(zerolog.TimestampFieldName, line.Time.Format(logTime)))
	line.Time = time.Time{}
	return h.Handler.Handle(ctx, line)
}

func (h stamped) WithAttrs(attrs []slog.Attr) slog.Handler {
	return stamped{h.Handler.WithAttrs(attrs)}
}

func (h stamped) WithGroup(name string) slog.Handler { return stamped{h.Handler.WithGroup(name)} }
