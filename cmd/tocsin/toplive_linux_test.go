package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

// terminal opens a pseudo-terminal: what is written to one end is typed at the other.
func terminal(t *testing.T, width, height int) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = person.Close() })
	fd := int(person.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(height), Col: uint16(width)}); err != nil {
		t.Fatal(err)
	}
	if program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	return person, program
}

func TestTopDrawsItsTerminalUntilAKey(t *testing.T) {
	t.Parallel()
	s, _ := callbackSite(t)
	s.serve("one", "--listen", devtest.FreeAddress())
	s.ownedBy(map[string]int{"one": 8})
	for _, key := range []string{"q", "\x03"} {
		person, program := terminal(t, 60, 7)
		before, err := unix.IoctlGetTermios(int(program.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), runWithin)
		defer cancel()
		cmd := command(ctx, s.dir, "top", "--interval", "500ms")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = program, program, program
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		drawn := &output{}
		go func() { // it ends when the terminal is closed
			for buf := make([]byte, 4096); ; {
				n, err := person.Read(buf)
				_, _ = drawn.Write(buf[:n])
				if err != nil {
					return
				}
			}
		}()
		s.waitFor("two looks are drawn", func() bool {
			return strings.Count(drawn.String(), toTop) >= 2 && strings.Contains(drawn.String(), answers)
		})
		if _, err := person.Write([]byte(key)); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("after the key %q: %v", key, err)
		}
		s.waitFor("the terminal is as before", func() bool { return strings.HasSuffix(drawn.String(), leaveScreen) })
		looksRight(t, drawn.String())
		after, err := unix.IoctlGetTermios(int(program.Fd()), unix.TCGETS)
		if err != nil || *after != *before {
			t.Errorf("the settings of the terminal were %+v and are %+v, %v", before, after, err)
		}
	}
}

// answers stands in a look for which the node was asked in time.
const answers = ": 1 of 1 nodes"

// looksRight wants lines that fit a terminal of 60 x 7.
func looksRight(t *testing.T, drawn string) {
	t.Helper()
	begin, rest, _ := strings.Cut(drawn, toTop)
	screen := ""
	for look := range strings.SplitSeq(rest, toTop) {
		if look, _, whole := strings.Cut(look, clearRest); whole && screen == "" && strings.Contains(look, answers) {
			screen = look
		}
	}
	if begin != enterScreen || !strings.Contains(screen, "and 2 lines more") || !strings.HasSuffix(screen, "q: quit"+clearLine) {
		t.Errorf("drawn: %q", drawn)
	}
	lines := strings.Split(screen, "\r\n")
	if len(lines) != 7 {
		t.Errorf("%d lines: %q", len(lines), lines)
	}
	for _, line := range lines {
		if n := len(bytes.Runes([]byte(strings.TrimSuffix(line, clearLine)))); n > 60 {
			t.Errorf("%d columns: %q", n, line)
		}
	}
}

// Standard output and standard error are judged each by itself, and what the environment forbids goes to no terminal.
func TestColoursAndBarsGoToATerminalAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.write("tocsin.yaml", s.yaml(s.layout, s.dsn())+"log:\n  format: text\n")
	for _, c := range []struct {
		env    []string
		colour bool // in the log
		bar    bool // and the live screen of top
	}{
		{nil, true, true},
		{[]string{"NO_COLOR=1"}, false, true},
		{[]string{"NO_COLOR=", "CLICOLOR_FORCE="}, true, true}, // an empty one is none: no-color.org
		{[]string{"TERM=dumb"}, false, false},
		{[]string{"TERM="}, false, false},
	} {
		run := func(toTerminal func(*exec.Cmd, *os.File), args ...string) (drawn, file string) {
			return s.drawn(c.env, toTerminal, args...)
		}
		toErr := func(cmd *exec.Cmd, f *os.File) { cmd.Stderr = f }
		toOut := func(cmd *exec.Cmd, f *os.File) { cmd.Stdout = f }
		if drawn, _ := run(toErr, serveArgs("one")...); strings.Contains(drawn, "\x1b[") != c.colour || !strings.Contains(drawn, "INF") {
			t.Errorf("%q: a log on a terminal: %q", c.env, drawn)
		}
		if drawn, file := run(toOut, serveArgs("one")...); strings.Contains(drawn, "\x1b") || steersTerminal(file) != "" || !strings.Contains(file, "INF") {
			t.Errorf("%q: a log in a file while standard output is a terminal: %q", c.env, file)
		}
		if drawn, _ := run(toErr, "ddl", "apply"); strings.Contains(strings.ReplaceAll(drawn, "\r\n", "\n"), "\r") != c.bar {
			t.Errorf("%q: progress on a terminal: %q", c.env, drawn)
		}
		if drawn, file := run(toOut, "ddl", "apply"); strings.Contains(drawn, "\x1b") || steersTerminal(file) != "" {
			t.Errorf("%q: progress in a file: %q, %q", c.env, drawn, file)
		}
		if c.bar {
			continue // TestTopDrawsItsTerminalUntilAKey
		}
		if drawn, file := run(toOut, "top"); strings.Contains(drawn, "\x1b") || !strings.Contains(file, "no terminal that can be drawn on") {
			t.Errorf("%q: top: %q, %q", c.env, drawn, file)
		}
	}
}

// drawn calls a command one of whose outputs is a terminal, and returns what that terminal and the other output got.
func (s *site) drawn(env []string, toTerminal func(*exec.Cmd, *os.File), args ...string) (drawn, file string) {
	s.t.Helper()
	person, program := terminal(s.t, 80, 24)
	dir := s.dir
	if args[0] == "ddl" {
		dir = bareSite(s.t).dir // only tables that are created make a bar
	}
	cmd := command(s.t.Context(), dir, args...)
	cmd.Env = append(cmd.Env, env...)
	shown, written := &output{}, &output{}
	cmd.Stdout, cmd.Stderr = written, written
	toTerminal(cmd, program)
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	const end = "END OF IT"
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for buf := make([]byte, 4096); !strings.Contains(shown.String(), end); {
			n, err := person.Read(buf)
			if _, _ = shown.Write(buf[:n]); err != nil {
				return
			}
		}
	}()
	if args[0] == "serve" {
		s.waitFor("it logs", func() bool { return strings.Contains(shown.String()+written.String(), "INF") })
		_ = cmd.Process.Signal(syscall.SIGTERM)
	}
	_ = cmd.Wait()
	fmt.Fprint(program, end)
	<-ended
	return shown.String(), written.String()
}
