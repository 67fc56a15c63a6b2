package main

import (
	"time"

	"github.com/mattn/go-isatty"
	"github.com/rs/zerolog"
)

// logger writes to standard error: text on a terminal or where asked for, else
// JSON. level is one of zerolog's names, checked with the config.
func (a *app) logger(level, format string) zerolog.Logger {
	parsed, err := zerolog.ParseLevel(level)
	if err != nil || level == "" {
		parsed = zerolog.InfoLevel
	}
	if format == "text" || format == "" && isatty.IsTerminal(a.err.Fd()) {
		return zerolog.New(zerolog.ConsoleWriter{Out: a.err, TimeFormat: time.TimeOnly}).Level(parsed).With().Timestamp().Logger()
	}
	return zerolog.New(a.err).Level(parsed).With().Timestamp().Logger()
}
