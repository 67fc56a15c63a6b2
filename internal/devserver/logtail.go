package devserver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
)

// maxLine bounds what is kept of one line of the log, in bytes.
const maxLine = 4096

// logTail passes a server's log on and keeps what explains a failure.
type logTail struct {
	dst     io.Writer
	ready   string                   // part of the line by which the server is ready
	failure func(line string) string // returns the error in a line, or ""; nil: every line is one

	mu     sync.Mutex
	line   []byte   // the unfinished last line
	errors []string // since reset, the first and the last few
	isUp   bool     // since reset, there was a line with ready
}

// Write passes p on. It never fails: a full disk must not end the server's log pipe and thereby the server.
func (t *logTail) Write(p []byte) (int, error) {
	_, _ = t.dst.Write(p)
	t.mu.Lock()
	defer t.mu.Unlock()
	for rest := p; len(rest) > 0; {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		if len(t.line) < maxLine {
			t.line = append(t.line, line...)
		}
		if ended {
			t.endLine()
		}
		rest = after
	}
	return len(p), nil
}

// endLine is called with mu held.
func (t *logTail) endLine() {
	text := string(t.line)
	t.line = t.line[:0]
	t.isUp = t.isUp || strings.Contains(text, t.ready)
	if t.failure != nil {
		text = t.failure(text)
	}
	if text == "" {
		return
	}
	if len(t.errors) == 8 {
		t.errors = append(t.errors[:4], t.errors[5:]...)
	}
	t.errors = append(t.errors, text)
}

func (t *logTail) isReady() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.isUp
}

// reset forgets an earlier launch.
func (t *logTail) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.line, t.errors, t.isUp = t.line[:0], nil, false
}

// portTaken reports whether the server failed to bind its port.
func (t *logTail) portTaken() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.errors {
		if strings.Contains(e, "TCP/IP port") || strings.Contains(e, "already in use") {
			return true
		}
	}
	return false
}

// explain adds the last error of the log to the end of a process; nil stays nil.
func (t *logTail) explain(err error) error {
	if err == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.errors) == 0 {
		return err
	}
	return fmt.Errorf("%w: %s", err, t.errors[len(t.errors)-1])
}

// errEnded says that the server ended, with status 0, before it answered.
var errEnded = errors.New("the server ended before it answered")
