package docs_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

const noClient = "the mariadb client is not in PATH, and this test runs the statements through it: run scripts/install-deps.sh"

// home makes a home folder whose .my.cnf leads the client to the test's server.
func home(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("mariadb"); err != nil {
		t.Fatal(noClient)
	}
	cfg, err := mysql.ParseDSN(devtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	where := "socket=" + cfg.Addr
	if host, port, err := net.SplitHostPort(cfg.Addr); err == nil {
		where = "protocol=tcp\nhost=" + host + "\nport=" + port
	}
	dir := t.TempDir()
	text := fmt.Sprintf("[client]\nuser=%s\npassword=%s\n%s\n", cfg.User, cfg.Passwd, where)
	write(t, filepath.Join(dir, ".my.cnf"), text)
	return dir
}

// shell runs a script of the document as its reader would.
func shell(t *testing.T, home, script string, args ...string) (stdout string, err error) {
	t.Helper()
	file := filepath.Join(home, "script.sh")
	write(t, file, script)
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{file}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+home)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if stderr.Len() > 0 {
		t.Logf("stderr: %s", &stderr)
	}
	return string(out), err
}

// session is one run of the client, which keeps its variables from block to block.
type session struct {
	in     io.WriteCloser
	out    *bufio.Scanner
	cmd    *exec.Cmd
	errors bytes.Buffer // read after close
	blocks int
}

// connect starts the client with a session that begins with a SET. Errors do not end it: close returns them.
func connect(t *testing.T, set string) *session {
	t.Helper()
	dir := home(t)
	s := &session{cmd: exec.CommandContext(t.Context(), "mariadb", "--batch", "--unbuffered", "--force",
		"--comments", "--init-command=SET "+set)}
	s.cmd.Env = append(os.Environ(), "HOME="+dir)
	s.cmd.Stderr = &s.errors
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.out = bufio.NewScanner(out)
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// run sends a block and returns what the client printed: a line a row, column names first, words between tabs.
func (s *session) run(t *testing.T, sql string) []string {
	t.Helper()
	s.blocks++
	end := fmt.Sprintf("end of block %d", s.blocks)
	if _, err := fmt.Fprintf(s.in, "%s\nSELECT '%s' AS ``;\n", sql, end); err != nil {
		t.Fatalf("%v\n%s", err, sql)
	}
	var lines []string
	for s.out.Scan() {
		if s.out.Text() == end {
			return lines[:len(lines)-1] // the empty column name
		}
		lines = append(lines, s.out.Text())
	}
	t.Fatalf("the client ended (%v) in\n%s", s.out.Err(), sql)
	return nil
}

// close ends the client and returns what it said of errors: the statement and a line "ERROR ..." for each.
func (s *session) close(t *testing.T) string {
	t.Helper()
	if err := s.in.Close(); err != nil {
		t.Error(err)
	}
	for s.out.Scan() {
		t.Errorf("more output: %s", s.out.Text())
	}
	_ = s.cmd.Wait() // exits 1 after an error, also after one that the document expects
	return s.errors.String()
}
