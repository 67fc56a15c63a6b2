package main

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// The engines log with slog. The lines of the command are those that zerolog writes, field by field, and their times have milliseconds.
func TestLogLinesAreZerologs(t *testing.T) {
	t.Parallel()
	at, reason, names := time.Date(2026, 3, 4, 5, 6, 7, 8_000_000, time.UTC), errors.New("no room"), []string{"toc_0", "toc_1"}
	for name, c := range map[string]struct {
		format string
		slog   func(*slog.Logger)
		zero   func(zerolog.Logger)
	}{
		"strings and numbers": {
			"json",
			func(l *slog.Logger) {
				l.With("server", "db1").Info("moved", "took", 3, "biz_id", uint64(7), "lasted", (2 * time.Second).String())
			},
			func(l zerolog.Logger) {
				l.Info().Str("server", "db1").Int("took", 3).Uint64("biz_id", 7).Stringer("lasted", 2*time.Second).Msg("moved")
			},
		},
		"an error, a list, a time, a duration": {
			"json",
			func(l *slog.Logger) {
				l.Warn("lost", "error", reason, "databases", names, "tables", []int{1, 2}, "next", at, "offset", 1500*time.Microsecond)
			},
			func(l zerolog.Logger) {
				l.Warn().Err(reason).Strs("databases", names).Ints("tables", []int{1, 2}).Time("next", at).Dur("offset", 1500*time.Microsecond).Msg("lost")
			},
		},
		"below the level": {"json", func(l *slog.Logger) { l.Debug("polled") }, func(l zerolog.Logger) { l.Debug().Msg("polled") }},
		"text, in a file without colours": {
			"text",
			func(l *slog.Logger) { l.Error("failed", "error", reason, "tables", 3) },
			func(l zerolog.Logger) { l.Error().Err(reason).Int("tables", 3).Msg("failed") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want bytes.Buffer
			var out io.Writer = &want
			if c.format == "text" {
				out = zerolog.ConsoleWriter{Out: &want, NoColor: true, TimeFormat: terminalTime}
			}
			c.zero(zerolog.New(out).Level(zerolog.InfoLevel).Hook(zerolog.HookFunc(func(e *zerolog.Event, _ zerolog.Level, _ string) {
				e.Str("time", at.Format(logTime))
			})))
			file, err := os.Create(filepath.Join(t.TempDir(), "log"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = file.Close() }()
			c.slog((&app{err: printed{file: file}}).logger("info", c.format))
			got, err := os.ReadFile(file.Name())
			times := regexp.MustCompile(`"time":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(Z|[+-]\d\d:\d\d)"|\d\d:\d\d:\d\d\.\d{3}`)
			if plain := times.ReplaceAllString(string(got), "T"); err != nil || plain != times.ReplaceAllString(want.String(), "T") {
				t.Errorf("wrote %q, %v; zerolog writes %q", got, err, want.String())
			}
		})
	}
}
