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

func TestServersEndWithAParentThatIsKilled(t *testing.T) {
	t.Parallel()
	tmp := shortDir(t)
	p := startParent(t, testBinary(t), tmp, func(*exec.Cmd) {})
	killAndAwaitServers(t, p)
	for _, dir := range p.dirs {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("the killed parent's folder: %v", err)
		}
	}
	removeStale(tmp)
	wantEmpty(t, tmp)
}

// Root becomes an ordinary user for this; anybody else is one.
func TestServersRunForAnOrdinaryUser(t *testing.T) {
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
	killAndAwaitServers(t, startParent(t, binary, tmp, become))
}

// killAndAwaitServers kills the parent with SIGKILL and fails unless its servers end by themselves.
func killAndAwaitServers(t *testing.T, p *parent) {
	t.Helper()
	var fds []int
	for _, pid := range p.pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		fds = append(fds, fd)
	}
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if n := poll(fd, 20_000); n != 1 {
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
			t.Error("a server outlives its parent")
		}
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
	writeExecutable(t, to, data)
}
