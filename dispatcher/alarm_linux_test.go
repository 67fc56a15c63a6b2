package dispatcher

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// An alarm of a descriptor that the poller refuses would never ring.
func TestADescriptorThatCannotBePolledIsNoTimer(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0) // epoll refuses regular files
	if err != nil {
		t.Fatal(err)
	}
	if made := heard(fd, func() {}); made != nil {
		t.Error("it was taken")
		made.close()
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != unix.EBADF {
		t.Errorf("%v: it is still open", err)
	}
}
