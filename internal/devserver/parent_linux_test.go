package devserver

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const nobody = 65534

func TestServerEndsWithAParentThatIsKilled(t *testing.T) {
	t.Parallel()
	tmp := shortDir(t)
	p := startParent(t, testBinary(t), tmp, func(*exec.Cmd) {})
	killAndAwaitServer(t, p)
	if _, err := os.Stat(p.serverDir); err != nil {
		t.Errorf("the killed parent's folder: %v", err)
	}
	removeStale(tmp)
	wantEmpty(t, tmp)
}

// Root becomes an ordinary user for this; anybody else is one.
func TestServerRunsForAnOrdinaryUser(t *testing.T) {
	t.Parallel()
	tmp := shortDir(t)
	binary := filepath.Join(shortDir(t), "parent") // go test's own folder is root's alone
	copyFile(t, testBinary(t), binary)
	become := func(*exec.Cmd) {}
	if os.Geteuid() == 0 {
		if err := os.Chown(tmp, nobody, nobody); err != nil {
			t.Fatal(err)
		}
		become = func(cmd *exec.Cmd) {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		}
	}
	killAndAwaitServer(t, startParent(t, binary, tmp, become))
}

// killAndAwaitServer kills the parent with SIGKILL and fails unless its server ends by itself.
func killAndAwaitServer(t *testing.T, p *parent) {
	t.Helper()
	fd, err := unix.PidfdOpen(p.serverPid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if n := poll(fd, 20_000); n != 1 {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		t.Fatal("the server outlives its parent")
	}
}

// poll waits for the end of the process behind fd, for at most ms milliseconds.
func poll(fd, ms int) int {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, ms)
		if !errors.Is(err, unix.EINTR) {
			return n
		}
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o755); err != nil {
		t.Fatal(err)
	}
}
