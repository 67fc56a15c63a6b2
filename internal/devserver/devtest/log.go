package devtest

import (
	"encoding/json"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// awaitLine bounds the wait for a line, on a busy machine.
const awaitLine = 2 * time.Minute

// Log keeps log lines for tests. The zero Log is empty and ready; its methods may be called concurrently.
type Log struct {
	mu    sync.Mutex
	lines []Line
}

// Line is one line of a Log, by field: "level" and "message" are among them.
type Line map[string]any

// Logger returns a logger that writes to l.
func (l *Log) Logger() *slog.Logger { return NewLogger(l) }

// NewLogger returns a logger of every level that writes lines of JSON without a time, as the command does: the level in
// small letters first, then the message under "message".
func NewLogger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: plain}))
}

func plain(groups []string, a slog.Attr) slog.Attr {
	switch {
	case len(groups) > 0:
	case a.Key == slog.TimeKey:
		return slog.Attr{}
	case a.Key == slog.LevelKey:
		return slog.String(a.Key, strings.ToLower(a.Value.String()))
	case a.Key == slog.MessageKey:
		a.Key = "message"
	}
	return a
}

// Write takes one line of JSON, as loggers write it.
func (l *Log) Write(text []byte) (int, error) {
	var line Line
	if err := json.Unmarshal(text, &line); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	return len(text), nil
}

// Lines returns the lines so far, in order: those with one of the messages, or all if no message is given.
func (l *Log) Lines(messages ...string) []Line {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []Line
	for _, line := range l.lines {
		if message, _ := line["message"].(string); len(messages) == 0 || slices.Contains(messages, message) {
			found = append(found, line)
		}
	}
	return found
}

// Await waits until a line with the message is written, and returns the first.
func (l *Log) Await(tb testing.TB, message string) Line {
	tb.Helper()
	tick, late := time.NewTicker(5*time.Millisecond), time.After(awaitLine)
	defer tick.Stop()
	for {
		if found := l.Lines(message); len(found) > 0 {
			return found[0]
		}
		select {
		case <-tick.C:
		case <-late:
			tb.Fatalf("waited too long for the log line %q among\n%v", message, l.Lines())
		}
	}
}
