package devserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// parentEnv makes the test binary a parent that starts a server, instead of running tests.
const parentEnv = "DEVSERVER_TEST_PARENT"

// runParent starts a server and an etcd, prints their pids and folders, and stops them when its standard input ends.
func runParent() int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	begin := time.Now()
	m, err := StartMariaDB(ctx, MariaDBConfig{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	e, err := StartEtcd(ctx, EtcdConfig{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(m.Pid(), m.Dir(), e.Pid(), e.Dir(), time.Since(begin).Round(time.Millisecond))
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := errors.Join(m.Stop(), e.Stop()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// parent is a re-executed test binary with a server and an etcd.
type parent struct {
	cmd   *exec.Cmd
	stdin io.Closer
	pids  [2]int
	dirs  [2]string
}

// startParent runs the binary with temporary folders under tmp. prepare may change the command.
func startParent(t *testing.T, binary, tmp string, prepare func(*exec.Cmd)) *parent {
	t.Helper()
	cmd := exec.Command(binary)
	cmd.Dir = tmp
	cmd.Env = []string{parentEnv + "=1", "TMPDIR=" + tmp, "PATH=/usr/bin:/bin"}
	for _, name := range []string{EnvProduct, EnvEtcd, "HOME", "XDG_CACHE_HOME", Product(os.Getenv(EnvProduct)).EnvDir()} { // where the servers are
		cmd.Env = append(cmd.Env, name+"="+os.Getenv(name))
	}
	cmd.Stderr = os.Stderr
	prepare(cmd)
	p := &parent{cmd: cmd}
	var err error
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, _ := bufio.NewReader(out).ReadString('\n')
	if _, err := fmt.Sscan(line, &p.pids[0], &p.dirs[0], &p.pids[1], &p.dirs[1]); err != nil {
		t.Fatalf("parent printed %q", line)
	}
	t.Logf("pids, folders, start-up time: %s", line)
	return p
}

func TestStopInAParentLeavesNothingInItsFolder(t *testing.T) {
	t.Parallel()
	tmp := shortDir(t)
	p := startParent(t, testBinary(t), tmp, func(*exec.Cmd) {})
	p.stdin.Close()
	if err := p.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	wantEmpty(t, tmp)
}

func testBinary(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// shortDir is a temporary folder that every user may enter, unlike t.TempDir.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "devserver")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func wantEmpty(t *testing.T, dir string) {
	t.Helper()
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 0 {
		t.Errorf("left %v", left)
	}
}
