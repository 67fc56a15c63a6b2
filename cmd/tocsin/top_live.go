package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
	"golang.org/x/term"

	"github.com/tocsinhq/tocsin/internal/wait"
)

// What a terminal understands, ECMA-48.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // another screen, without a cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	toTop       = "\x1b[H"
	clearLine   = "\x1b[K"
	clearRest   = "\x1b[J"
)

// plainHeight is how high a terminal is taken to be that does not say.
const plainHeight = 24

// ctrlC is what the key sends while the terminal is raw.
const ctrlC = 3

// live draws one look after another until q, Ctrl-C or the end of ctx, and leaves the terminal as it was.
func (w *watch) live(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	if isatty.IsTerminal(os.Stdin.Fd()) {
		was, err := term.MakeRaw(int(os.Stdin.Fd()))
		if err != nil {
			return fmt.Errorf("read keys from the terminal: %w", err)
		}
		defer func() { _ = term.Restore(int(os.Stdin.Fd()), was) }()
		go awaitQuit(os.Stdin, end) // it waits for a key for ever, and ends with the process
	}
	fmt.Fprint(w.out.file, enterScreen)
	defer fmt.Fprint(w.out.file, leaveScreen)
	for {
		began := time.Now()
		v := w.look(ctx)
		if ctx.Err() != nil {
			return nil // what was cut off says nothing
		}
		var text strings.Builder
		writeTop(&text, v, w.cluster)
		if _, err := io.WriteString(w.out.file, w.screen(text.String())); err != nil {
			return err
		}
		if wait.For(ctx, w.flags.interval-time.Since(began)) != nil {
			return nil
		}
	}
}

// awaitQuit calls end at the first q or Ctrl-C, or when there are no more keys.
func awaitQuit(keys io.Reader, end func()) {
	defer end()
	for key := make([]byte, 16); ; {
		n, err := keys.Read(key)
		if err != nil || bytes.ContainsAny(key[:n], "qQ"+string(rune(ctrlC))) {
			return
		}
	}
}

// screen cuts text to the terminal, and draws it over what is there.
func (w *watch) screen(text string) string {
	width, height, err := term.GetSize(int(w.out.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		width, height = plainWidth, plainHeight
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if more := len(lines) - (height - 1); more > 0 {
		lines = append(lines[:max(height-2, 0)], fmt.Sprintf("and %d lines more: make the window larger, or use --once", more+1))
	}
	var b strings.Builder
	b.WriteString(toTop)
	for _, line := range append(lines, "q: quit") {
		if letters := []rune(line); len(letters) > width {
			line = string(letters[:width])
		}
		b.WriteString(line + clearLine + "\r\n")
	}
	return strings.TrimSuffix(b.String(), "\r\n") + clearRest
}

// tidied writes rows as lines, in columns as wide as their cells. Foreign text can't steer the terminal.
func tidied(rows [][]string) []string {
	var text strings.Builder
	var block [][]string
	flush := func() {
		columns(&text, block...)
		block = nil
	}
	for _, row := range rows {
		for i := range row {
			row[i] = oneCell(row[i])
		}
		if len(row) == 1 {
			flush()
			text.WriteString(row[0] + "\n")
			continue
		}
		block = append(block, row)
	}
	flush()
	return strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
}
