//go:build unix && !solaris && !illumos && !aix

package devserver

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// tryLock takes the lock without waiting; false means that somebody holds it. The lock ends with the last process
// that holds this open file, children included.
func tryLock(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// isOurs reports whether the file belongs to the user of this process.
func isOurs(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

// fileLimit returns the hard limit of open files, to which a server may raise its own.
func fileLimit() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return defaultFiles
	}
	return int(min(uint64(l.Max), maxFiles))
}
