package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-isatty"
	"github.com/rs/zerolog"
	"github.com/schollz/progressbar/v3"

	"github.com/tocsinhq/tocsin/operator"
)

// columns writes rows for people, each column as wide as its widest cell. The
// last one is not padded.
func columns(w io.Writer, rows ...[]string) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	_ = t.Flush() // an error of w shows at its own writes too
}

// table writes a head, and a row for each of some things.
func table[T any](w io.Writer, head []string, all []T, row func(T) []any) {
	rows := [][]string{head}
	for _, one := range all {
		var cells []string
		for _, cell := range row(one) {
			cells = append(cells, fmt.Sprint(cell))
		}
		rows = append(rows, cells)
	}
	columns(w, rows...)
}

// printed is where the command prints. What others wrote can't steer the terminal there: control characters and those that change
// the direction of a text are printed as \u001b. In JSON that is the same text.
type printed struct {
	file   *os.File
	failed *error // set to the first error of a write: a command that ignores it has failed all the same; nil: not kept
}

// Fd returns the file's descriptor.
func (p printed) Fd() uintptr { return p.file.Fd() }

// Write implements io.Writer.
func (p printed) Write(text []byte) (int, error) {
	safe := text
	if bytes.ContainsFunc(text, steers) {
		safe = make([]byte, 0, len(text)+64)
		for rest := text; len(rest) > 0; {
			r, n := utf8.DecodeRune(rest)
			switch {
			case r == utf8.RuneError && n == 1:
				safe = fmt.Appendf(safe, `\x%02x`, rest[0])
			case steers(r):
				safe = fmt.Appendf(safe, `\u%04x`, r)
			default:
				safe = append(safe, rest[:n]...)
			}
			rest = rest[n:]
		}
	}
	n, err := p.file.Write(safe)
	if err == nil && n < len(safe) {
		err = io.ErrShortWrite
	}
	if err != nil {
		if p.failed != nil && *p.failed == nil {
			*p.failed = err
		}
		return min(n, len(text)), err
	}
	return len(text), nil
}

// steers reports whether a terminal does something else with r than to show it. A byte that is no text may begin an escape too.
func steers(r rune) bool {
	return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) || r == utf8.RuneError
}

// draws reports whether a program can move the cursor on what shows this output: a terminal that is not a dumb one.
// Standard output and standard error are each asked, as either may go to a file.
func (p printed) draws() bool {
	kind := os.Getenv("TERM")
	return isatty.IsTerminal(p.Fd()) && kind != "" && kind != "dumb"
}

// colours reports whether this output may have colours: see no-color.org. No variable forces them into a file.
func (p printed) colours() bool { return p.draws() && os.Getenv("NO_COLOR") == "" }

// plainEvery is how often progress is a line where no bar can be drawn.
const plainEvery = 3 * time.Second

// progress shows on standard error how far long work has come: a bar on a
// terminal, now and then a line elsewhere, nothing with --json. Safe for
// concurrent use.
type progress struct {
	to    io.Writer
	verb  string
	unit  string
	total int // of what add counts

	mu   sync.Mutex
	done int                      // as add counted
	bar  *progressbar.ProgressBar // nil: lines
	line time.Time                // when the last line was due; zero with --json
}

// progress begins the progress of, for instance, "create" "tables".
func (a *app) progress(verb, unit string) *progress {
	p := &progress{to: a.err, verb: verb, unit: unit}
	switch {
	case !a.json && a.err.draws():
		p.bar = progressbar.NewOptions(1,
			progressbar.OptionSetWriter(a.err.file),
			progressbar.OptionSetDescription(verb+" "+unit),
			progressbar.OptionShowCount(),
			progressbar.OptionSetPredictTime(true),
			progressbar.OptionThrottle(50*time.Millisecond),
			progressbar.OptionClearOnFinish(),
		)
	case !a.json:
		p.line = time.Now()
	}
	return p
}

// tableProgress starts the progress of work on total tables. Call add for those that are done.
func (a *app) tableProgress(verb string, total int) *progress {
	p := a.progress(verb, "tables")
	p.total = total
	return p
}

// report says that done of total are done.
func (p *progress) report(done, total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.draw(done, total)
}

func (p *progress) draw(done, total int) {
	switch {
	case p.bar != nil:
		p.bar.ChangeMax(max(total, 1))
		_ = p.bar.Set(done) // fails where done is over total: then there is no more to show
	case !p.line.IsZero() && time.Since(p.line) >= plainEvery:
		p.line = time.Now()
		fmt.Fprintf(p.to, "%s %s: %d of %d\n", p.verb, p.unit, done, total)
	}
}

// add counts tables that are done. It may be called concurrently.
func (p *progress) add(tables int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += tables
	p.draw(p.done, p.total)
}

// end clears the bar, so that what follows begins a line.
func (p *progress) end() {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}

// stages shows the progress of work that has several, one after the other. Safe
// for concurrent use.
type stages struct {
	app   *app
	units map[string]string // by stage: what it counts

	mu    sync.Mutex
	stage string
	shown *progress // of the stage; nil between stages
}

// progress shows how far a stage is; another stage ends the one before.
func (s *stages) progress(stage string, done, total int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shown == nil || stage != s.stage {
		s.close()
		s.stage, s.shown = stage, s.app.progress(stage, s.units[stage])
	}
	s.shown.report(done, total)
}

// end ends the last stage, so that what follows begins a line.
func (s *stages) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.close()
}

func (s *stages) close() {
	if s.shown != nil {
		s.shown.end()
		s.shown = nil
	}
}

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
		var to io.Writer = a.err
		if a.err.colours() {
			to = a.err.file
		}
		log = log.Output(zerolog.ConsoleWriter{Out: to, NoColor: !a.err.colours(), TimeFormat: terminalTime})
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

// nothingRead reports whether an error leaves nothing to print: no server could be read in full.
func nothingRead(failed error) bool {
	var partial *operator.Partial
	return failed != nil && (!errors.As(failed, &partial) || partial.All)
}

// inWhat follows what was not found: beside an error that is certain of a part only.
func inWhat(failed error) string {
	if failed != nil {
		return " in what could be read"
	}
	return ""
}

// writeUncounted names the servers whose tasks are not all in the counts above.
func writeUncounted(w io.Writer, failed error) {
	var partial *operator.Partial
	if errors.As(failed, &partial) {
		fmt.Fprintf(w, "not counted in full: %s\n", strings.Join(partial.Servers, ", "))
	}
}
